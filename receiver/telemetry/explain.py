"""Explains subscriptions: what one would cost, and why a client has it.

All functions are pure and only read. They may run in a thread beside the core, so they read each
value of an instance once.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from receiver.amounts import count_text
from receiver.telemetry.client_state import SPREAD
from receiver.telemetry.control.offenders import Demand
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.instance import ClientInstance, Defaults, Request
from receiver.telemetry.matching import Matcher
from receiver.telemetry.prefixes import unmatched
from receiver.telemetry.profiles import Estimate, MetricProfiles
from receiver.telemetry.quirks import Treatment
from receiver.telemetry.selectors import REVEALED_SELECTORS, Revealed, selector_of, selector_value
from receiver.telemetry.subscription import State, Subscription, SubscriptionSet
from receiver.telemetry.subscription_checks import Temporality

#: Different values of a selector that are compared to find the nearest.
_MAX_COMPARED: Final = 2_000
_MAX_EXAMPLES: Final = 10
_SHOWN_CHARS: Final = 60
# What a regular expression has besides the text that it looks for.
_SYNTAX: Final = re.compile(r"\\.|[.*+?^$()\[\]{}|]")


class Origin(StrEnum):
    """What decides a value that a client is asked for."""

    SUBSCRIPTION = "subscription"
    DEFAULT = "default"
    QUIRK = "quirk"
    BACK_PRESSURE = "back_pressure"


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a subscription would do alone, if it were stored."""

    matched: int  # known client instances that it matches
    examples: tuple[ClientInstance, ...]  # the first of them
    clients: int  # all that are known
    series: int | None  # data points of the matched clients' pushes; None: nothing to estimate from
    bytes_per_second: float | None  # of OTLP, not compressed
    asked_within_ms: int  # until each matched client has asked for its subscription
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a subscription applies to a client, and if not, why."""

    name: str
    state: State
    matches: bool  # it is active, and its selectors match
    reasons: tuple[str, ...]  # why it does not match


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientExplanation:
    """What a client is asked for next, and where each part comes from."""

    request: Request
    in_effect: bool  # whether its latest request was answered the same
    prefixes: tuple[tuple[str, tuple[str, ...]], ...]  # with the subscriptions that ask for each
    interval_origin: Origin
    interval_subscriptions: tuple[str, ...]
    wanted_interval_ms: int  # without quirks and back-pressure
    temporality_origin: Origin
    temporality_subscriptions: tuple[str, ...]
    verdicts: tuple[Verdict, ...]  # by name
    asked_within_ms: int


def asked_within_ms(instance: ClientInstance, now: float) -> int:
    """Return the longest time until an instance's next request.

    ``now`` is monotonic seconds.
    """
    longest_s = SPREAD * instance.request.interval_ms / 1000
    return max(0, round(1000 * (longest_s - (now - instance.last_request_at))))


def dry_run(
    subscription: Subscription,
    others: SubscriptionSet,
    instances: Sequence[ClientInstance],
    profiles: MetricProfiles,
    *,
    now: float,
    wall: datetime,
) -> DryRun:
    """Estimate what a subscription would do.

    The series and bytes are those that it causes alone; other subscriptions may ask for the same
    metrics.

    Args:
        others: The other subscriptions that are active.
        profiles: What clients of each software were seen to push.
        now: Monotonic seconds.
        wall: The wall clock's time.

    Raises:
        SubscriptionError: It is over a bound together with the others.
    """
    SubscriptionSet((*others.subscriptions, subscription))
    living = [instance for instance in instances if not instance.is_expired(now)]
    matcher = Matcher([subscription.match])
    matched = [client for client in living if matcher.matching(client.identity, client.revealed)]
    prefixes = ("",) if subscription.wants_all else tuple(sorted(subscription.metrics))
    costs = _costs(subscription, matched, prefixes, profiles)
    return DryRun(
        matched=len(matched),
        examples=tuple(matched[:_MAX_EXAMPLES]),
        clients=len(living),
        series=None if costs is None else round(costs.series),
        bytes_per_second=None if costs is None else round(costs.bytes, 1),
        asked_within_ms=max((asked_within_ms(entry, now) for entry in matched), default=0),
        warnings=tuple(_warnings(subscription, living, matched, profiles, wall, known=costs is not None)),
    )


def _costs(
    subscription: Subscription,
    matched: Sequence[ClientInstance],
    prefixes: tuple[str, ...],
    profiles: MetricProfiles,
) -> Estimate | None:
    """Return the series, and the bytes in a second, of all matched clients together.

    Clients of a software of which no push was read count as the average of the others.
    """
    by_treatment = Counter((entry.identity.client_software_name, entry.treatment) for entry in matched)
    series = rate = 0.0
    known = 0
    estimates: dict[str, Estimate | None] = {}
    for (software, treatment), count in by_treatment.items():
        if software not in estimates:
            estimates[software] = profiles.estimate(software, treatment.requested(prefixes))
        estimate = estimates[software]
        if estimate is not None:
            known += count
            series += count * estimate.series
            rate += count * estimate.bytes / (treatment.interval_ms(subscription.interval_ms) / 1000)
    if not matched or not prefixes:
        return Estimate()
    if not known:
        return None
    scale = len(matched) / known
    return Estimate(series * scale, rate * scale)


def _warnings(
    subscription: Subscription,
    living: Sequence[ClientInstance],
    matched: Sequence[ClientInstance],
    profiles: MetricProfiles,
    wall: datetime,
    *,
    known: bool,
) -> Iterable[str]:
    yield from unmatched(subscription.metrics, profiles)
    state = subscription.state(wall)
    if state is State.DISABLED:
        yield "enabled is false, so it applies to no client"
    elif state is State.EXPIRED:
        yield "expires_at is over, so it applies to no client"
    if not living:
        yield "no client is known yet"
    elif not matched:
        yield from _why_nobody(subscription, living)
    if not known:
        yield "no client like these has pushed yet, so series and bytes are unknown"
    for selector in REVEALED_SELECTORS:
        if any(selector_of(condition)[0] == selector for condition in subscription.match):
            mute = sum(client.last_push_at is None for client in living)
            if mute:
                yield f"{selector} is unknown of {count_text(mute, 'client')}: only a push reveals it"
    reduced = sum(entry.demand is not Demand.EVERYTHING for entry in matched)
    if reduced:
        yield f"asked for less, because they push too much: {count_text(reduced, 'client')}"
    if subscription.temporality is Temporality.DELTA:
        cumulative = sum(entry.assignment.temporality is Temporality.CUMULATIVE for entry in matched)
        if cumulative:
            yield f"{cumulative} of the clients push cumulative values, because another subscription wants it"


def _why_nobody(subscription: Subscription, living: Sequence[ClientInstance]) -> Iterable[str]:
    """Name the conditions that no client meets, with the nearest value there is."""
    found = False
    for condition, pattern in subscription.match.items():
        matcher = Matcher([{condition: pattern}])
        if any(matcher.matching(client.identity, client.revealed) for client in living):
            continue
        found = True
        selector, negated = selector_of(condition)
        values = {selector_value(selector, client.identity, client.revealed).decode() for client in living}
        if negated:
            yield f"match.{condition}: {_shown(pattern)} matches the {selector} of every client"
            continue
        literal = _SYNTAX.sub("", pattern)
        nearest = difflib.get_close_matches(literal, sorted(values - {""})[:_MAX_COMPARED], n=1, cutoff=0.5)
        advice = f"; the nearest of {len(values)} is {_shown(nearest[0])}" if nearest else ""
        yield f"match.{condition}: {_shown(pattern)} matches the {selector} of no known client{advice}"
    if not found and subscription.match:
        yield "each selector matches some client, but no client meets all of them"


def explain_client(
    instance: ClientInstance,
    every: SubscriptionSet,
    active: SubscriptionSet,
    *,
    has_plugins: bool,
    treatment: Treatment,
    defaults: Defaults,
    demand: Demand,
    interval_factor: int,
    now: float,
    wall: datetime,
) -> ClientExplanation:
    """Explain what a client is asked for with its next request.

    Args:
        every: All subscriptions.
        active: Those of them that clients are asked for.
        has_plugins: Whether a plugin takes metrics.
        defaults: What is asked for where no subscription says it.
        demand: The part of its subscriptions that it is asked for.
        now: Monotonic seconds.
        wall: The wall clock's time.
    """
    identity, revealed = instance.identity, instance.revealed
    assignment = active.assignment(identity, revealed, default_interval_ms=defaults.interval_ms)
    request = Request.derive(
        instance.id, assignment, treatment, defaults, demand=demand, interval_factor=interval_factor
    )
    matched = [one for name in assignment.matched if (one := active.get(name)) is not None]
    wanted_ms = assignment.interval_ms
    return ClientExplanation(
        request=request,
        in_effect=request == instance.request,
        prefixes=tuple((prefix, _asking(prefix, matched)) for prefix in request.metrics),
        interval_origin=_interval_origin(request.interval_ms, wanted_ms, interval_factor, matched),
        interval_subscriptions=tuple(entry.name for entry in matched if entry.interval_ms == wanted_ms),
        wanted_interval_ms=wanted_ms,
        temporality_origin=Origin.DEFAULT if assignment.temporality is None else Origin.SUBSCRIPTION,
        temporality_subscriptions=tuple(
            entry.name
            for entry in matched
            if entry.temporality is not None and entry.temporality is assignment.temporality
        ),
        verdicts=tuple(
            _verdict(subscription, active, identity, revealed, wall, has_plugins=has_plugins)
            for subscription in every.subscriptions
        ),
        asked_within_ms=asked_within_ms(instance, now),
    )


def _asking(prefix: str, matched: Sequence[Subscription]) -> tuple[str, ...]:
    """Return the subscriptions that ask for metrics of a requested prefix.

    Quirks and reducing may have made the prefix shorter or longer than an operator wrote it.
    """
    names = []
    for entry in matched:
        wanted = ("",) if entry.wants_all else entry.metrics
        if any(prefix.startswith(own) or own.startswith(prefix) for own in wanted):
            names.append(entry.name)
    return tuple(names)


def _interval_origin(
    interval_ms: int, wanted_ms: int, factor: int, matched: Sequence[Subscription]
) -> Origin:
    if interval_ms != wanted_ms:
        return Origin.BACK_PRESSURE if factor > 1 else Origin.QUIRK
    return Origin.SUBSCRIPTION if matched else Origin.DEFAULT


def _verdict(
    subscription: Subscription,
    active: SubscriptionSet,
    identity: ClientIdentity,
    revealed: Revealed,
    wall: datetime,
    *,
    has_plugins: bool,
) -> Verdict:
    state = subscription.state(wall)
    reasons = [
        _reason(condition, subscription.match[condition], identity, revealed)
        for condition in subscription.mismatches(identity, revealed)
    ]
    if state is State.DISABLED:
        reasons.insert(0, "it is disabled")
    elif state is State.EXPIRED:
        reasons.insert(0, "its time is over")
    elif not has_plugins:
        reasons.insert(0, "there is no plugin, so clients are asked for nothing")
    elif active.get(subscription.name) is None:
        reasons.insert(0, "it is not in force yet")
    return Verdict(name=subscription.name, state=state, matches=not reasons, reasons=tuple(reasons))


def _reason(condition: str, pattern: str, identity: ClientIdentity, revealed: Revealed) -> str:
    selector, negated = selector_of(condition)
    value = selector_value(selector, identity, revealed).decode()
    if selector in REVEALED_SELECTORS and not value:
        return f"{selector} is unknown: no push has revealed it"
    verb = "must not match" if negated else "does not match"
    return f"{selector} is {_shown(value)}, which {_shown(pattern)} {verb}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}...")
