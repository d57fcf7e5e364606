"""Subscriptions as client metrics resources, for Kafka's tools (KIP-714).

Pure. Reads and changes a subscription by the keys ``metrics``, ``interval.ms`` and ``match``, with
the mapping of the store `kafka` (:mod:`receiver.store.kafka_format`). So settings that Kafka has no
key for survive, and a change has the same effect whether the brokers or the receiver keep the
resource. Wrong values get Kafka's errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from receiver.store.kafka_format import RESOURCE_KEYS, SELECTORS, Entry, join, split
from receiver.telemetry.subscription import Subscription
from receiver.telemetry.subscription_checks import DEFAULT_INTERVAL_MS
from receiver.wire.altered_configs import AlteredConfig, Operation
from receiver.wire.error_codes import ErrorCode
from receiver.wire.k32_describe_configs import DEFAULT_CONFIG, DescribedConfig

_METRICS, _INTERVAL, _MATCH = RESOURCE_KEYS

_DEFAULTS: Final = {_INTERVAL: str(DEFAULT_INTERVAL_MS), _MATCH: "", _METRICS: ""}

#: The source of a value that was set (Kafka's ``ConfigSource.CLIENT_METRICS_CONFIG``).
_SET: Final = 7
#: Types of values (Kafka's ``ConfigType``).
_INT, _LIST = 3, 7
#: Kafka 4.4's words (``ClientMetricsConfigs``), in its order.
_ABOUT: Final = {
    _INTERVAL: (_INT, "Metrics push interval in milliseconds"),
    _MATCH: (_LIST, "Client match criteria"),
    _METRICS: (_LIST, "Telemetry metric name prefix list"),
}

_MAX_MESSAGE: Final = 1000


@dataclass(eq=False)
class ResourceError(Exception):
    """A change of a resource is wrong."""

    error_code: ErrorCode
    message: str

    def __str__(self) -> str:
        return self.message


def described(subscription: Subscription | None) -> tuple[DescribedConfig, ...]:
    """Return the configs of a resource.

    Those of one that does not exist have their defaults.
    """
    configs = {} if subscription is None else _configs(subscription)
    return tuple(
        DescribedConfig(
            name=key,
            value=configs.get(key, _DEFAULTS[key]),
            source=_SET if key in configs else DEFAULT_CONFIG,
            type=kind,
            documentation=documentation,
        )
        for key, (kind, documentation) in _ABOUT.items()
    )


def altered(
    name: str,
    existing: Subscription | None,
    changes: Iterable[AlteredConfig],
    *,
    changed_by: str | None,
    changed_at: datetime,
) -> Subscription | None:
    """Return a subscription with single configs changed (IncrementalAlterConfigs).

    None if no config is left, so that there is no resource.

    Raises:
        ResourceError: A change is wrong.
    """
    changes = _checked(changes)
    configs = {} if existing is None else _configs(existing)
    for change in changes:
        if change.operation == Operation.DELETE:
            configs.pop(change.name, None)
        else:
            configs[change.name] = change.value or ""
    return _with(name, existing, configs, changed_by, changed_at)


def replaced(
    name: str,
    existing: Subscription | None,
    changes: Iterable[AlteredConfig],
    *,
    changed_by: str | None,
    changed_at: datetime,
) -> Subscription | None:
    """Replace all configs of a resource (AlterConfigs); see :func:`altered`."""
    configs = {change.name: change.value or "" for change in _checked(changes)}
    return _with(name, existing, configs, changed_by, changed_at)


def _configs(subscription: Subscription) -> dict[str, str]:
    """Return the configs that a resource shows as set.

    There is one at least, and no defaults besides.
    """
    everything = split(subscription).configs or {}
    configs = {key: value for key, value in everything.items() if value != _DEFAULTS[key]}
    return configs or {_METRICS: ""}


def _checked(changes: Iterable[AlteredConfig]) -> list[AlteredConfig]:
    seen: set[str] = set()
    checked = []
    for change in changes:
        if change.name in seen:
            raise ResourceError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        seen.add(change.name)
        if change.operation == Operation.DELETE:
            checked.append(change)
            continue
        if change.value is None:
            raise ResourceError(
                ErrorCode.INVALID_REQUEST, f"Null value not supported for : {_short(change.name)}"
            )
        if change.operation in (Operation.APPEND, Operation.SUBTRACT):
            word = Operation(change.operation).name
            raise ResourceError(
                ErrorCode.INVALID_CONFIG,
                f"Can't {word} to key {_short(change.name)} because its type is not LIST.",
            )
        if change.operation != Operation.SET:
            raise ResourceError(ErrorCode.INVALID_REQUEST, f"Unknown operation {change.operation}")
        if change.name not in RESOURCE_KEYS:
            raise ResourceError(
                ErrorCode.INVALID_REQUEST,
                f"Unknown client metrics configuration: {_short(change.name)}; known are "
                f"{', '.join(RESOURCE_KEYS)}, and the sidecar's REST API has further settings",
            )
        checked.append(change)
    return checked


def _with(
    name: str,
    existing: Subscription | None,
    configs: Mapping[str, str],
    changed_by: str | None,
    changed_at: datetime,
) -> Subscription | None:
    if not name:
        raise ResourceError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    if not configs:
        return None
    _check_interval(configs.get(_INTERVAL, _DEFAULTS[_INTERVAL]))
    _check_match(configs.get(_MATCH, ""))
    beside = {} if existing is None else split(existing).beside
    stripped = {key: value.strip() for key, value in configs.items()}
    read = join(name, Entry(configs=stripped, beside=beside))
    if not isinstance(read, Subscription):
        mistakes = "; ".join(map(str, read))
        is_request = any(problem.loc[:1] in {("interval_ms",), ("name",)} for problem in read)
        code = ErrorCode.INVALID_REQUEST if is_request else ErrorCode.INVALID_CONFIG
        raise ResourceError(code, _short(mistakes))
    changed = replace(read, changed_by=changed_by, changed_at=changed_at)
    return existing if changed == existing else changed


def _check_interval(text: str) -> None:
    try:
        int(text)
    except ValueError:
        raise ResourceError(
            ErrorCode.INVALID_CONFIG,
            f"Invalid value {_short(text)} for configuration interval.ms: Not a number of type INT",
        ) from None


def _check_match(text: str) -> None:
    """Refuse selectors that Kafka's tools would not show afterwards."""
    for pair in text.split(","):
        selector, has_pattern, pattern = pair.partition("=")
        is_known = has_pattern and selector.strip() in SELECTORS
        if pair.strip() and (not is_known or not pattern.strip() or "=" in pattern):
            raise ResourceError(
                ErrorCode.INVALID_CONFIG,
                f"Illegal client matching pattern: {_short(pair)}; give SELECTOR=PATTERN, with one of "
                f"{', '.join(sorted(SELECTORS))}; the sidecar's REST API has further selectors",
            )


def _short(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}..."
