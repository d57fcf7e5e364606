"""Checks of a subscription's fields, and their bounds.

A check returns the value in its final form and reports each error, so that an operator sees all
mistakes at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from receiver.patterns import compile_pattern
from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.selectors import NEGATION, SELECTORS, selector_of

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
#: The maximum number of labels, and the longest value of one, in characters.
MAX_LABELS: Final = 32
MAX_LABEL_LENGTH: Final = 256
#: The longest description, in characters.
MAX_DESCRIPTION_LENGTH: Final = 2048
#: The maximum number of subscriptions, because each is matched against each new client.
MAX_SUBSCRIPTIONS: Final = 1000
#: The maximum number of different prefixes in all subscriptions. librdkafka closes the connection
#: after an answer with more than 1,000.
MAX_PREFIXES: Final = 1000

# An OpenTelemetry instrument name, of which a prefix is the beginning.
_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-/]{0,254}")
_LABEL_KEY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.\-/]{0,61}[A-Za-z0-9])?")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Temporality(StrEnum):
    """How clients push counters (KIP-714, "DeltaTemporality")."""

    DELTA = "delta"
    CUMULATIVE = "cumulative"


_Report = Callable[[SubscriptionError], None]


def _checked_name(name: Any, report: _Report) -> Any:
    if not isinstance(name, str) or not name:
        report(SubscriptionError("name", name, "is not a name", "give a text of one character or more"))
    elif len(name) > MAX_NAME_LENGTH:
        report(_too_long("name", name, MAX_NAME_LENGTH))
    elif _UNPRINTABLE.search(name):
        report(SubscriptionError("name", name, "has a control character", "remove it"))
    return name


def _checked_metrics(metrics: Any, report: _Report) -> Any:
    if not isinstance(metrics, list | tuple):
        report(SubscriptionError("metrics", metrics, "is not a list", 'give a list of prefixes, or ["*"]'))
        return ()
    checked = tuple(metrics)
    if len(checked) > MAX_METRICS:
        report(
            SubscriptionError(
                "metrics",
                f"{len(checked)} prefixes",
                "are too many",
                f"give at most {MAX_METRICS}; a shorter prefix stands for many metrics",
            )
        )
        return ()
    for index, prefix in enumerate(checked):
        if prefix in (ALL_METRICS, ""):
            continue
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            wildcard = isinstance(prefix, str) and _PREFIX.fullmatch(prefix.rstrip("*")) is not None
            fix = (
                f"write {str(prefix).rstrip('*')!r}: a prefix needs no wildcard"
                if wildcard
                else "use at most 255 of the letters A to Z, digits and _ . - /, or * alone for all metrics"
            )
            report(SubscriptionError(f"metrics[{index}]", prefix, "is no prefix of a metric name", fix))
    return checked


def _checked_interval(interval_ms: Any, report: _Report) -> Any:
    # In JSON, 1000.0 is a whole number.
    if type(interval_ms) is float and interval_ms.is_integer():
        interval_ms = int(interval_ms)
    if type(interval_ms) is not int:
        fix = "give milliseconds as a number"
        report(SubscriptionError("interval_ms", interval_ms, "is not a whole number", fix))
    elif not MIN_INTERVAL_MS <= interval_ms <= MAX_INTERVAL_MS:
        fix = f"give {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS} milliseconds"
        report(SubscriptionError("interval_ms", interval_ms, "is out of range", fix))
    return interval_ms


def _checked_match(match: Any, report: _Report) -> Any:
    if not isinstance(match, Mapping):
        report(SubscriptionError("match", match, "is not a mapping", "give patterns by selector"))
        return MappingProxyType({})
    for condition, pattern in match.items():
        _check_condition(condition, pattern, report)
    return MappingProxyType(dict(match))


def _check_condition(condition: object, pattern: object, report: _Report) -> None:
    # Another key than a text is YAML's, which a JSON document can't have.
    path = f"match.{condition if isinstance(condition, str) else json.dumps(condition, default=str)}"
    if not isinstance(condition, str) or selector_of(condition)[0] not in SELECTORS:
        fix = f"use one of {', '.join(SELECTORS)}; {NEGATION} behind it negates it"
        report(SubscriptionError(path, pattern, "has an unknown selector", fix))
    elif not isinstance(pattern, str):
        report(SubscriptionError(path, pattern, "is not a text", "give a pattern"))
    elif len(pattern) > MAX_PATTERN_LENGTH:
        report(_too_long(path, pattern, MAX_PATTERN_LENGTH))
    else:
        try:
            compile_pattern(pattern)
        except ValueError as error:
            problem = f"is no regular expression: {error}"
            report(SubscriptionError(path, pattern, problem, "write it for RE2"))


def _checked_enabled(enabled: Any, report: _Report) -> Any:
    if type(enabled) is not bool:
        report(SubscriptionError("enabled", enabled, "is not true or false", "give true or false"))
    return enabled


def _checked_time(expires_at: Any, report: _Report) -> Any:
    if expires_at is None:
        return None
    if not isinstance(expires_at, datetime) or expires_at.tzinfo is None:
        fix = "give a time with its zone, for example 2030-01-31T12:00:00Z"
        report(SubscriptionError("expires_at", expires_at, "is not a time with its zone", fix))
        return None
    try:
        utc = expires_at.astimezone(UTC)
    except OverflowError:
        fix = "give a time in the years 1 to 9999 of UTC"
        report(SubscriptionError("expires_at", expires_at, "is out of range", fix))
        return None
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


def _checked_temporality(temporality: Any, report: _Report) -> Any:
    if temporality is None:
        return None
    try:
        return Temporality(temporality)
    except ValueError:
        fix = f"give {' or '.join(Temporality)}, or omit it"
        report(SubscriptionError("temporality", temporality, "is not a temporality", fix))
        return None


def _checked_labels(labels: Any, report: _Report) -> Any:
    if not isinstance(labels, Mapping):
        report(SubscriptionError("labels", labels, "is not a mapping", "give texts by key"))
        return MappingProxyType({})
    if len(labels) > MAX_LABELS:
        fix = f"give at most {MAX_LABELS}"
        report(SubscriptionError("labels", f"{len(labels)} labels", "are too many", fix))
        return MappingProxyType({})
    for key, value in labels.items():
        path = f"labels.{key}"
        if not isinstance(key, str) or not _LABEL_KEY.fullmatch(key):
            fix = "use at most 63 of the letters A to Z, digits and _ . - /"
            report(SubscriptionError(path, value, "has no valid key", fix))
        elif not isinstance(value, str) or _UNPRINTABLE.search(value):
            fix = "give a text without control characters"
            report(SubscriptionError(path, value, "is not a text on one line", fix))
        elif len(value) > MAX_LABEL_LENGTH:
            report(_too_long(path, value, MAX_LABEL_LENGTH))
    return MappingProxyType(dict(labels))


def _checked_description(description: Any, report: _Report) -> Any:
    if not isinstance(description, str) or _UNPRINTABLE.search(description.replace("\n", "")):
        fix = "give a text without control characters"
        report(SubscriptionError("description", description, "is not a text", fix))
    elif len(description) > MAX_DESCRIPTION_LENGTH:
        report(_too_long("description", description, MAX_DESCRIPTION_LENGTH))
    return description


#: The check of each field, by the field's name.
CHECKS: Final[Mapping[str, Callable[[Any, _Report], Any]]] = {
    "name": _checked_name,
    "metrics": _checked_metrics,
    "interval_ms": _checked_interval,
    "match": _checked_match,
    "enabled": _checked_enabled,
    "expires_at": _checked_time,
    "temporality": _checked_temporality,
    "labels": _checked_labels,
    "description": _checked_description,
}


def _too_long(field: str, text: str, max_length: int) -> SubscriptionError:
    return SubscriptionError(field, text, f"has {len(text)} characters", f"give at most {max_length}")
