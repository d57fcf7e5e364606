"""Subscriptions: which clients push which metrics, and how often (KIP-714).

Owns validation, matching and the subscription id (KIP-714, "Client metrics configuration"). A new
selector is one line in :data:`SELECTORS`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import google_crc32c

from receiver.patterns import compile_pattern
from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.identity import ClientIdentity
from receiver.wire.uuid import Uuid

__all__ = [
    "ALL_METRICS",
    "DEFAULT_INTERVAL_MS",
    "MAX_INTERVAL_MS",
    "MAX_METRICS",
    "MAX_NAME_LENGTH",
    "MAX_PATTERN_LENGTH",
    "MAX_PREFIXES",
    "MAX_SUBSCRIPTIONS",
    "MIN_INTERVAL_MS",
    "SELECTORS",
    "Assignment",
    "Subscription",
    "SubscriptionError",
    "SubscriptionSet",
    "subscription_id",
]

#: An operator's word for every metric. Clients are answered ``[""]``, which all of them understand.
ALL_METRICS: Final = "*"

#: KIP-714, "Client metrics configuration": the interval when no subscription matches.
DEFAULT_INTERVAL_MS: Final = 300_000
MIN_INTERVAL_MS: Final = 100
MAX_INTERVAL_MS: Final = 3_600_000

#: The longest name of a subscription, in characters. Kafka has no limit of its own.
MAX_NAME_LENGTH: Final = 255
#: The maximum number of prefixes in one subscription.
MAX_METRICS: Final = 256
#: The longest pattern of a selector, in characters.
MAX_PATTERN_LENGTH: Final = 1024
#: The maximum number of subscriptions, because each is matched against each new client.
MAX_SUBSCRIPTIONS: Final = 1000
#: The maximum number of different prefixes in all subscriptions. librdkafka closes the connection
#: after an answer with more than 1,000.
MAX_PREFIXES: Final = 1000

#: KIP-714's selectors in its order, and how each reads its value from a client's identity. A
#: selector has the name of the label with the same value.
SELECTORS: Final[Mapping[str, Callable[[ClientIdentity], str | int | None]]] = {
    "client_instance_id": lambda client: client.instance_text,
    "client_id": lambda client: client.client_id,
    "client_software_name": lambda client: client.client_software_name,
    "client_software_version": lambda client: client.client_software_version,
    "client_source_address": lambda client: client.source_address,
    "client_source_port": lambda client: client.source_port,
}

# An OpenTelemetry instrument name, of which a prefix is the beginning.
_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-/]{0,254}")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The metrics and the interval of a client: the union of the subscriptions that match it."""

    prefixes: tuple[str, ...]  # of metric names, sorted by code point; ``("",)`` is every metric
    interval_ms: int  # the smallest of the matching subscriptions
    matched: tuple[str, ...]  # names of the matching subscriptions, sorted


@dataclass(frozen=True, slots=True)
class Subscription:
    """One subscription, valid by construction (KIP-714, "Client metrics configuration").

    Attributes:
        name: Any text without control characters, as Kafka allows for a resource.
        metrics: Prefixes of metric names, at most :data:`MAX_METRICS`. ``*`` or an empty text is
            every metric; an empty tuple is none.
        interval_ms: The push interval, :data:`MIN_INTERVAL_MS` to :data:`MAX_INTERVAL_MS`.
        match: Regular expressions (RE2) by selector. All must match, each the whole value. An empty
            mapping matches every client.

    Raises:
        SubscriptionError: A value is invalid; the error names its field.
    """

    name: str
    metrics: tuple[str, ...]
    interval_ms: int = DEFAULT_INTERVAL_MS
    match: Mapping[str, str] = field(default_factory=dict, hash=False)
    _patterns: tuple[tuple[str, Any], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "metrics", _checked_metrics(self.metrics))
        _check_interval(self.interval_ms)
        if not isinstance(self.match, Mapping):
            raise SubscriptionError("match", self.match, "is not a mapping", "give patterns by selector")
        object.__setattr__(self, "match", MappingProxyType(dict(self.match)))
        patterns = tuple(_compiled(selector, pattern) for selector, pattern in self.match.items())
        object.__setattr__(self, "_patterns", patterns)

    def matches(self, client: ClientIdentity) -> bool:
        """Return whether every selector's pattern matches the client's whole value."""
        return all(
            pattern.fullmatch(_value(client, selector)) is not None for selector, pattern in self._patterns
        )

    @property
    def wants_all(self) -> bool:
        """Whether it asks for every metric."""
        return ALL_METRICS in self.metrics or "" in self.metrics


class SubscriptionSet:
    """All subscriptions, immutable: a change makes a new object.

    Attributes:
        subscriptions: The subscriptions, sorted by name.
        version: A hash of the content, 16 hexadecimal digits, equal on every sidecar.

    Raises:
        SubscriptionError: Two subscriptions have the same name, or a bound is exceeded.
    """

    def __init__(self, subscriptions: Iterable[Subscription] = ()) -> None:
        self.subscriptions: Final = tuple(sorted(subscriptions, key=lambda subscription: subscription.name))
        _check_set(self.subscriptions)
        content = [[s.name, s.metrics, s.interval_ms, sorted(s.match.items())] for s in self.subscriptions]
        digest = hashlib.blake2b(json.dumps(content).encode("ascii"), digest_size=8)
        self.version: Final = digest.hexdigest()

    def __len__(self) -> int:
        return len(self.subscriptions)

    def get(self, name: str) -> Subscription | None:
        """Return the subscription of that name, or None."""
        return next((s for s in self.subscriptions if s.name == name), None)

    def assignment(
        self, client: ClientIdentity, *, default_interval_ms: int = DEFAULT_INTERVAL_MS
    ) -> Assignment:
        """Return the prefixes and the smallest interval of the matching subscriptions."""
        matching = [subscription for subscription in self.subscriptions if subscription.matches(client)]
        prefixes = {prefix for subscription in matching for prefix in subscription.metrics}
        everything = any(subscription.wants_all for subscription in matching)
        return Assignment(
            prefixes=("",) if everything else tuple(sorted(prefixes)),
            interval_ms=min((s.interval_ms for s in matching), default=default_interval_ms),
            matched=tuple(subscription.name for subscription in matching),
        )


def subscription_id(client_instance_id: Uuid, prefixes: tuple[str, ...], interval_ms: int) -> int:
    """Compute the subscription id, a signed 32-bit integer that is equal on every sidecar.

    It is CRC32C over the prefixes and the interval, XOR a hash of the instance id (KIP-714,
    "Subscription ID"). The text is the same as in Kafka's broker, so for none, one or all metrics a
    broker computes the same id. With several prefixes, the broker's id depends on the order of a
    hash set. The requested ``prefixes`` are sorted, and ``("",)`` for every metric.
    """
    shown = ALL_METRICS if prefixes == ("",) else ", ".join(prefixes)
    crc = int(google_crc32c.value(f"[{shown}]{interval_ms}".encode()))
    halves = int.from_bytes(client_instance_id[:8], "big") ^ int.from_bytes(client_instance_id[8:], "big")
    unsigned = (crc ^ (halves >> 32) ^ halves) & 0xFFFFFFFF
    return unsigned - (1 << 32) if unsigned >> 31 else unsigned


def _value(client: ClientIdentity, selector: str) -> bytes:
    """Return a client's value for a selector; empty when it has none."""
    value = SELECTORS[selector](client)
    # A client id may be any bytes, and text that UTF-8 cannot encode must not raise here.
    return b"" if value is None else str(value).encode("utf-8", "replace")


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise SubscriptionError("name", name, "is not a name", "give a text of one character or more")
    if len(name) > MAX_NAME_LENGTH:
        raise _too_long("name", name, MAX_NAME_LENGTH)
    if _UNPRINTABLE.search(name):
        raise SubscriptionError("name", name, "has a control character", "remove it")


def _checked_metrics(metrics: object) -> tuple[str, ...]:
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise SubscriptionError("metrics", metrics, "is not a list", 'give a list of prefixes, or ["*"]')
    checked = tuple(metrics)
    if len(checked) > MAX_METRICS:
        raise SubscriptionError(
            "metrics",
            f"{len(checked)} prefixes",
            "are too many",
            f"give at most {MAX_METRICS}; a shorter prefix stands for many metrics",
        )
    for index, prefix in enumerate(checked):
        if prefix in (ALL_METRICS, ""):
            continue
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            wildcard = isinstance(prefix, str) and _PREFIX.fullmatch(prefix.rstrip("*")) is not None
            raise SubscriptionError(
                f"metrics[{index}]",
                prefix,
                "is no prefix of a metric name",
                f"write {str(prefix).rstrip('*')!r}: a prefix needs no wildcard"
                if wildcard
                else "use at most 255 of the letters A to Z, digits and _ . - /, or * alone for every metric",
            )
    return checked


def _check_interval(interval_ms: object) -> None:
    if type(interval_ms) is not int:
        raise SubscriptionError(
            "interval_ms", interval_ms, "is not a whole number", "give milliseconds as a number"
        )
    if not MIN_INTERVAL_MS <= interval_ms <= MAX_INTERVAL_MS:
        raise SubscriptionError(
            "interval_ms",
            interval_ms,
            "is out of range",
            f"give {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS} milliseconds",
        )


def _compiled(selector: str, pattern: object) -> tuple[str, Any]:
    """Return the selector and its compiled pattern."""
    path = f"match.{selector}"
    if selector not in SELECTORS:
        raise SubscriptionError(
            path, pattern, "has an unknown selector", f"use one of {', '.join(SELECTORS)}"
        )
    if not isinstance(pattern, str):
        raise SubscriptionError(path, pattern, "is not a text", "give a pattern")
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise _too_long(path, pattern, MAX_PATTERN_LENGTH)
    try:
        return selector, compile_pattern(pattern)
    except ValueError as error:
        raise SubscriptionError(
            path, pattern, f"is no regular expression: {error}", "write it for RE2"
        ) from None


def _too_long(field: str, text: str, max_length: int) -> SubscriptionError:
    return SubscriptionError(field, text, f"has {len(text)} characters", f"give at most {max_length}")


def _check_set(subscriptions: tuple[Subscription, ...]) -> None:
    if len(subscriptions) > MAX_SUBSCRIPTIONS:
        raise SubscriptionError(
            "name", f"{len(subscriptions)} subscriptions", "are too many", f"keep at most {MAX_SUBSCRIPTIONS}"
        )
    for before, after in itertools.pairwise(subscriptions):
        if before.name == after.name:
            raise SubscriptionError("name", after.name, "is a duplicate", "give another name")
    prefixes = {prefix for subscription in subscriptions for prefix in subscription.metrics}
    if len(prefixes) > MAX_PREFIXES:
        raise SubscriptionError(
            "metrics",
            f"{len(prefixes)} different prefixes in all subscriptions",
            "are too many for clients",
            f"keep at most {MAX_PREFIXES}; a shorter prefix stands for many metrics",
        )
