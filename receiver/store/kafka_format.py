"""Subscriptions as Kafka keeps them: a CLIENT_METRICS resource and a record.

Pure. A resource has the keys ``metrics``, ``interval.ms`` and ``match`` (KIP-714, "Client metrics
configuration"; Kafka's ``ClientMetricsConfigs``). Its lists are split at commas, and a pattern of
``match`` at its equals sign, so patterns with either go into the record, as does everything that
Kafka has no key for. The resource decides whether a subscription exists and wins where both say
something, because Kafka's tools write it.

A broker with a telemetry plugin reads the same resources, and an empty ``match`` is every client to
it. So the resource of a subscription that Kafka can't express, or that is disabled, matches no
client: it has :data:`NOBODY`, which is not read back where there is a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from receiver.numbers import whole_number
from receiver.store.document import KEYS, Mistake, from_document
from receiver.telemetry.subscription import Subscription
from receiver.telemetry.subscription_checks import DEFAULT_INTERVAL_MS
from receiver.telemetry.subscription_document import to_document

#: The keys of a resource.
RESOURCE_KEYS: Final = ("metrics", "interval.ms", "match")

#: Marks a record that has the whole subscription, because the brokers have no such resources.
COMPLETE: Final = "complete"

#: Kafka's selectors (``ClientMetricsConfigs``).
SELECTORS: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
_INSTANCE: Final = "client_instance_id"
#: A pattern of :data:`_INSTANCE` that matches no client: an id has 22 characters.
NOBODY: Final = "matched-by-kafka-client-telemetry"
#: Kafka's ``interval.ms`` is an int32.
_MAX_INT32: Final = 2**31 - 1

_OF_KAFKA: Final = ("name", "metrics", "interval_ms", "match")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A subscription in Kafka."""

    configs: Mapping[str, str] | None = None
    """The keys of the resource; None: there is none."""
    beside: Mapping[str, Any] = field(default_factory=dict)
    """The record's value; empty: there is no record."""

    @property
    def exists(self) -> bool:
        """Whether it is a subscription, and not the record of one that is deleted."""
        return self.configs is not None or bool(self.beside.get(COMPLETE))


def beyond_kafka(subscription: Subscription) -> tuple[str, ...]:
    """Return the keys of ``match`` that a CLIENT_METRICS resource can't have."""
    return tuple(
        condition
        for condition, pattern in subscription.match.items()
        if condition not in SELECTORS or not _fits(pattern)
    )


def split(subscription: Subscription, *, match_beside: bool = False) -> Entry:
    """Return how Kafka keeps a subscription.

    Args:
        match_beside: Put all patterns into the record, because the brokers refuse one.
    """
    document = to_document(subscription)
    plain = to_document(Subscription(name=subscription.name, metrics=()))
    beside = {key: document[key] for key in KEYS if key not in _OF_KAFKA and document[key] != plain[key]}
    beyond = subscription.match if match_beside else beyond_kafka(subscription)
    ours = {condition: subscription.match[condition] for condition in beyond}
    hidden = bool(ours) or not subscription.enabled
    if hidden and _INSTANCE in subscription.match:
        ours[_INSTANCE] = subscription.match[_INSTANCE]
    if ours:
        beside["match"] = ours
    metrics = ["*"] if subscription.wants_all else list(dict.fromkeys(subscription.metrics))
    theirs = [f"{name}={pattern}" for name, pattern in subscription.match.items() if name not in ours]
    if hidden:
        theirs.append(f"{_INSTANCE}={NOBODY}")
    configs = {
        "metrics": ",".join(metrics),
        "interval.ms": str(subscription.interval_ms),
        "match": ",".join(theirs),
    }
    return Entry(configs=configs, beside=beside)


def split_complete(subscription: Subscription) -> Entry:
    """Return the record of a subscription where there is no CLIENT_METRICS."""
    return Entry(beside={**to_document(subscription), COMPLETE: True})


def join(name: str, entry: Entry) -> Subscription | list[Mistake]:
    """Read a subscription, or return why it can't be used here."""
    beside = {key: value for key, value in entry.beside.items() if key not in (COMPLETE, "name")}
    if entry.configs is None:
        return from_document(beside, name=name, is_stored=True)
    document: dict[str, Any] = {key: value for key, value in beside.items() if key not in _OF_KAFKA}
    document["metrics"] = _listed(entry.configs.get("metrics", ""))
    interval = entry.configs.get("interval.ms", str(DEFAULT_INTERVAL_MS))
    number = whole_number(interval, _MAX_INT32)
    document["interval_ms"] = interval if number is None else number
    others = beside.get("match", {})
    if not isinstance(others, Mapping):
        return [Mistake(("match",), "the record has no mapping; put the subscription again")]
    match = dict(others)
    for pair in _listed(entry.configs.get("match", "")):
        selector, _, pattern = map(str.strip, pair.partition("="))
        if not (beside and (selector, pattern) == (_INSTANCE, NOBODY)):
            match[selector] = pattern
    document["match"] = match
    return from_document(document, name=name, is_stored=True)


def _fits(pattern: str) -> bool:
    """Whether Kafka reads the pattern as it is written."""
    return bool(pattern) and pattern == pattern.strip() and not set(pattern) & {",", "="}


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
