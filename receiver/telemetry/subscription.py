"""Subscriptions: which clients push which metrics, and how often (KIP-714).

Owns the union for a client and the subscription id (KIP-714, "Client metrics configuration").
:mod:`receiver.telemetry.selectors` has the selectors,
:mod:`receiver.telemetry.subscription_checks` the bounds.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Final

import google_crc32c

from receiver.patterns import compile_pattern
from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.matching import Matcher, bits
from receiver.telemetry.selectors import (
    NOTHING_REVEALED,
    REVEALED_SELECTORS,
    Revealed,
    selector_of,
    selector_value,
)
from receiver.telemetry.subscription_checks import (
    ALL_METRICS,
    CHECKS,
    DEFAULT_INTERVAL_MS,
    MAX_PREFIXES,
    MAX_SUBSCRIPTIONS,
    Temporality,
)
from receiver.wire.uuid import Uuid

# Clients with the same subscriptions share an assignment. At the bound all are made anew.
_MAX_ASSIGNMENTS_KEPT: Final = 4096

# The first that a matching subscription has is used. Deltas can be computed from cumulative values,
# but a lost delta is lost for good.
_TEMPORALITIES: Final = (Temporality.CUMULATIVE, Temporality.DELTA)


class State(StrEnum):
    """Whether a subscription applies."""

    ACTIVE = "active"
    DISABLED = "disabled"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a client is to push: the union of the subscriptions that match it."""

    prefixes: tuple[str, ...]  # of metric names, sorted by code point; ``("",)`` is every metric
    interval_ms: int  # the smallest of the matching subscriptions
    matched: tuple[str, ...]  # names of the matching subscriptions, sorted
    temporality: Temporality | None = None  # cumulative if one of them is; None: none of them says


@dataclass(frozen=True, slots=True)
class Subscription:
    """One valid subscription (KIP-714, "Client metrics configuration").

    Raises:
        SubscriptionError: A value is invalid. The error names its field, and ``further`` has the
            errors of all other fields.
    """

    name: str
    """Any text without control characters, as Kafka allows for a resource."""
    metrics: tuple[str, ...]
    """Prefixes of metric names, at most :data:`MAX_METRICS`. ``*`` or an empty text is every
    metric; an empty tuple is none."""
    interval_ms: int = DEFAULT_INTERVAL_MS
    """The push interval, :data:`MIN_INTERVAL_MS` to :data:`MAX_INTERVAL_MS`."""
    match: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Regular expressions (RE2) by selector. All must match, each the whole value; that of
    ``selector!`` must not match. An empty mapping matches every client."""
    enabled: bool = field(default=True, kw_only=True)
    expires_at: datetime | None = field(default=None, kw_only=True)
    """When it ends by itself; to the millisecond, with a time zone."""
    temporality: Temporality | None = field(default=None, kw_only=True)
    """How its clients push counters; None leaves it to ``telemetry``."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False, kw_only=True)
    """The operator's own words by key. They change nothing."""
    description: str = field(default="", kw_only=True)
    """The operator's own text. It changes nothing."""
    changed_by: str | None = field(default=None, compare=False, kw_only=True)
    """Who changed it last, as far as the store knows."""
    changed_at: datetime | None = field(default=None, compare=False, kw_only=True)
    """When that was."""

    def __post_init__(self) -> None:
        errors: list[SubscriptionError] = []
        for key in fields(self):
            check = CHECKS.get(key.name)
            if check is not None:
                object.__setattr__(self, key.name, check(getattr(self, key.name), errors.append))
        if errors:
            first, *first.further = errors
            raise first

    def matches(self, client: ClientIdentity, revealed: Revealed = NOTHING_REVEALED) -> bool:
        """Return whether its selectors match the client; it need not be active."""
        return not self.mismatches(client, revealed)

    def mismatches(self, client: ClientIdentity, revealed: Revealed = NOTHING_REVEALED) -> tuple[str, ...]:
        """Return the keys of ``match`` that keep it from matching the client."""
        found = []
        for condition, pattern in self.match.items():
            selector, negated = selector_of(condition)
            value = selector_value(selector, client, revealed)
            if (compile_pattern(pattern).fullmatch(value) is not None) is negated:
                found.append(condition)
        return tuple(found)

    def state(self, now: datetime) -> State:
        """Return whether it applies at a time."""
        if not self.enabled:
            return State.DISABLED
        if self.expires_at is not None and now >= self.expires_at:
            return State.EXPIRED
        return State.ACTIVE

    @property
    def wants_all(self) -> bool:
        """Whether it asks for every metric."""
        return ALL_METRICS in self.metrics or "" in self.metrics


class SubscriptionSet:
    """All subscriptions, immutable: a change makes a new object.

    Raises:
        SubscriptionError: Two subscriptions have the same name, or a bound is exceeded.
    """

    def __init__(self, subscriptions: Iterable[Subscription] = ()) -> None:
        self.subscriptions: Final = tuple(sorted(subscriptions, key=lambda subscription: subscription.name))
        _check_set(self.subscriptions)
        self._by_name = {subscription.name: subscription for subscription in self.subscriptions}
        self._assignments: dict[int, Assignment] = {}

    @classmethod
    def prepared(cls, subscriptions: Iterable[Subscription]) -> SubscriptionSet:
        """Return a set that is ready to match, for use in another thread."""
        made = cls(subscriptions)
        # Both take some milliseconds for a thousand subscriptions, and would delay a request.
        _ = made._matcher, made.version
        return made

    def __len__(self) -> int:
        return len(self.subscriptions)

    @cached_property
    def version(self) -> str:
        """A hash of the content, 16 hexadecimal digits, equal on every sidecar."""
        content = [_content(subscription) for subscription in self.subscriptions]
        return hashlib.blake2b(json.dumps(content).encode("ascii"), digest_size=8).hexdigest()

    def get(self, name: str) -> Subscription | None:
        """Return the subscription of that name, or None."""
        return self._by_name.get(name)

    def active(self, now: datetime) -> SubscriptionSet:
        """Return the subscriptions that apply at a time."""
        applying = tuple(
            subscription for subscription in self.subscriptions if subscription.state(now) is State.ACTIVE
        )
        return self if len(applying) == len(self.subscriptions) else SubscriptionSet(applying)

    def next_end(self, now: datetime) -> datetime | None:
        """Return when the next active subscription ends by itself, or None."""
        ends = (subscription.expires_at for subscription in self.subscriptions if subscription.enabled)
        return min((end for end in ends if end is not None and end > now), default=None)

    @cached_property
    def reads_revealed(self) -> bool:
        """Whether a selector reads what a push reveals."""
        return not self._matcher.selectors.isdisjoint(REVEALED_SELECTORS)

    def assignment(
        self,
        client: ClientIdentity,
        revealed: Revealed = NOTHING_REVEALED,
        *,
        default_interval_ms: int = DEFAULT_INTERVAL_MS,
    ) -> Assignment:
        """Return the union of the matching subscriptions, whether they are active or not."""
        matching = self._matcher.matching(client, revealed)
        if not matching:
            return Assignment(prefixes=(), interval_ms=default_interval_ms, matched=())
        assignment = self._assignments.get(matching)
        if assignment is None:
            assignment = _union([self.subscriptions[index] for index in bits(matching)])
            if len(self._assignments) >= _MAX_ASSIGNMENTS_KEPT:
                self._assignments.clear()
            self._assignments[matching] = assignment
        return assignment

    @cached_property
    def _matcher(self) -> Matcher:
        return Matcher([subscription.match for subscription in self.subscriptions])


def within_bounds(
    subscriptions: Iterable[Subscription],
) -> tuple[list[Subscription], list[tuple[Subscription, SubscriptionError]]]:
    """Return the subscriptions that fit into one set, and why others don't.

    An earlier one goes before a later one. So a reader of a store puts those in force first, and
    what is too much for the set changes none of them.
    """
    kept: list[Subscription] = []
    others: list[tuple[Subscription, SubscriptionError]] = []
    names: set[str] = set()
    prefixes: set[str] = set()
    for subscription in subscriptions:
        new = set(subscription.metrics) - prefixes
        if len(kept) >= MAX_SUBSCRIPTIONS:
            others.append((subscription, _too_many_subscriptions(len(kept) + 1)))
        elif len(prefixes) + len(new) > MAX_PREFIXES:
            others.append((subscription, _too_many_prefixes(len(prefixes) + len(new))))
        elif subscription.name in names:
            others.append((subscription, _duplicate(subscription.name)))
        else:
            kept.append(subscription)
            names.add(subscription.name)
            prefixes |= new
    return kept, others


def _union(matching: list[Subscription]) -> Assignment:
    temporalities = {subscription.temporality for subscription in matching}
    everything = any(subscription.wants_all for subscription in matching)
    prefixes = set[str]().union(*(subscription.metrics for subscription in matching))
    return Assignment(
        prefixes=("",) if everything else tuple(sorted(prefixes)),
        interval_ms=min(subscription.interval_ms for subscription in matching),
        matched=tuple(subscription.name for subscription in matching),
        temporality=next(
            (temporality for temporality in _TEMPORALITIES if temporality in temporalities), None
        ),
    )


def subscription_id(
    client_instance_id: Uuid, prefixes: tuple[str, ...], interval_ms: int, *, delta: bool = True
) -> int:
    """Compute the subscription id (int32), which is equal on every sidecar.

    It is CRC32C over the prefixes and the interval, XOR a hash of the instance id (KIP-714,
    "Subscription ID"). The text is the same as in Kafka's broker, so for none, one or all metrics a
    broker computes the same id. With several prefixes, the broker's id depends on the order of a
    hash set. The requested ``prefixes`` are sorted, and ``("",)`` for every metric. A broker always
    asks for deltas; the id of cumulative values differs, because the client must learn of a change.
    """
    shown = ALL_METRICS if prefixes == ("",) else ", ".join(prefixes)
    text = f"[{shown}]{interval_ms}" + ("" if delta else Temporality.CUMULATIVE)
    crc = int(google_crc32c.value(text.encode()))
    halves = int.from_bytes(client_instance_id[:8], "big") ^ int.from_bytes(client_instance_id[8:], "big")
    unsigned = (crc ^ (halves >> 32) ^ halves) & 0xFFFFFFFF
    return unsigned - (1 << 32) if unsigned >> 31 else unsigned


def _content(subscription: Subscription) -> list[object]:
    content: list[object] = [
        subscription.name,
        subscription.metrics,
        subscription.interval_ms,
        sorted(subscription.match.items()),
    ]
    more = {
        "enabled": subscription.enabled,
        "expires_at": None if subscription.expires_at is None else subscription.expires_at.timestamp(),
        "temporality": subscription.temporality,
        "labels": dict(sorted(subscription.labels.items())),
        "description": subscription.description,
    }
    # Left out while they have their defaults, so that the version of older content stays.
    changed = {key: value for key, value in more.items() if value not in (True, None, {}, "")}
    return [*content, changed] if changed else content


def _check_set(subscriptions: tuple[Subscription, ...]) -> None:
    if len(subscriptions) > MAX_SUBSCRIPTIONS:
        raise _too_many_subscriptions(len(subscriptions))
    for before, after in itertools.pairwise(subscriptions):
        if before.name == after.name:
            raise _duplicate(after.name)
    prefixes = {prefix for subscription in subscriptions for prefix in subscription.metrics}
    if len(prefixes) > MAX_PREFIXES:
        raise _too_many_prefixes(len(prefixes))


def _too_many_subscriptions(count: int) -> SubscriptionError:
    fix = f"keep at most {MAX_SUBSCRIPTIONS}"
    return SubscriptionError("name", f"{count} subscriptions", "are too many", fix)


def _duplicate(name: str) -> SubscriptionError:
    return SubscriptionError("name", name, "is a duplicate", "give another name")


def _too_many_prefixes(count: int) -> SubscriptionError:
    return SubscriptionError(
        "metrics",
        f"{count} different prefixes in all subscriptions",
        "are too many for clients",
        f"keep at most {MAX_PREFIXES}; a shorter prefix stands for many metrics",
    )
