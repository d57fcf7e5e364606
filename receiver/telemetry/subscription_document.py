"""The document of a subscription for REST, files and the command line.

The reader reports all mistakes at once, in the operator's words. Values are those of JSON.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.subscription import Subscription
from receiver.telemetry.subscription_checks import CHECKS

#: The fields that an operator sets.
FIELDS: Final = (
    "metrics",
    "interval_ms",
    "match",
    "enabled",
    "expires_at",
    "temporality",
    "labels",
    "description",
)

#: The fields that only the receiver sets. A document may have them, so that it can be written back.
READ_ONLY_FIELDS: Final = ("changed_by", "changed_at", "state")

#: What a patch has besides :data:`FIELDS`.
_PATCH_FIELDS: Final = ("add_metrics", "remove_metrics")

# RFC 3339, section 5.6.
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)

_Report = Callable[[SubscriptionError], None]


def time_to_text(time: datetime) -> str:
    """Format a time as RFC 3339 in UTC, with milliseconds where it has any."""
    utc = time.astimezone(UTC)
    text = utc.isoformat(timespec="milliseconds" if utc.microsecond else "seconds")
    return text.replace("+00:00", "Z")


def time_from_text(text: str) -> datetime:
    """Read a time in the format of RFC 3339; return it in UTC.

    Raises:
        ValueError: It is in another format, there is no such time, or in UTC it is outside the
            years 1 to 9999.
    """
    if not _TIME.fullmatch(text):
        raise ValueError("expected a time such as 2030-01-31T12:00:00Z")
    seconds, _, rest = text.upper().partition(".")
    digits = re.match(r"\d*", rest)
    fraction = digits[0] if digits else ""
    # datetime reads at most six digits of a second.
    time = datetime.fromisoformat(f"{seconds}.{fraction[:6]:0<6}{rest[len(fraction) :]}" if rest else seconds)
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError("it is outside the years 1 to 9999 in UTC") from None


def to_document(subscription: Subscription) -> dict[str, Any]:
    """Return the document of a subscription, without its state."""
    return {
        "name": subscription.name,
        "metrics": list(subscription.metrics),
        "interval_ms": subscription.interval_ms,
        "match": dict(subscription.match),
        "enabled": subscription.enabled,
        "expires_at": _text_or_none(subscription.expires_at),
        "temporality": subscription.temporality,
        "labels": dict(subscription.labels),
        "description": subscription.description,
        "changed_by": subscription.changed_by,
        "changed_at": _text_or_none(subscription.changed_at),
    }


def read_document(
    document: object,
    *,
    name: str | None = None,
    existing: Subscription | None = None,
    changed_by: str | None = None,
    changed_at: datetime | None = None,
) -> Subscription:
    """Read the document of a subscription. A field that is null counts as left out.

    Args:
        document: What JSON or YAML gave.
        name: The name that the subscription must have; None: the document says it.
        existing: The subscription that it replaces. Without an interval it keeps that one's.

    Raises:
        SubscriptionError: It is wrong; ``all`` has every mistake.
    """
    errors: list[SubscriptionError] = []
    given = _fields_of(document, ("name", *FIELDS, *READ_ONLY_FIELDS), errors.append)
    own = given.pop("name", None)
    if name is not None and own is not None and own != name:
        fix = f"omit it, or give {name!r} as in the path"
        errors.append(SubscriptionError("name", own, "is not the subscription's name", fix))
    if given.get("metrics") is None:
        if isinstance(document, Mapping):
            fix = 'give a list of prefixes, or ["*"]'
            errors.append(SubscriptionError("metrics", None, "is required", fix))
        given["metrics"] = ()
    if given.get("interval_ms") is None and existing is not None:
        given["interval_ms"] = existing.interval_ms
    return _checked(own if name is None else name, given, errors, changed_by, changed_at)


def patched(
    existing: Subscription, document: object, *, changed_by: str | None, changed_at: datetime | None
) -> tuple[Subscription, list[str]]:
    """Apply a patch to a subscription, and return the result and warnings.

    A field replaces the subscription's; null resets it. In ``match`` and ``labels``, a key replaces
    or adds one entry; null removes it (RFC 7396). ``add_metrics`` and ``remove_metrics`` are lists
    of single prefixes.

    Raises:
        SubscriptionError: It is wrong; ``all`` has every mistake.
    """
    errors: list[SubscriptionError] = []
    warnings: list[str] = []
    given = _fields_of(document, (*FIELDS, *_PATCH_FIELDS, "name", *READ_ONLY_FIELDS), errors.append)
    if given.pop("name", None) not in (None, existing.name):
        problem = "cannot be changed"
        fix = f"omit it, or give {existing.name!r} as in the path"
        errors.append(SubscriptionError("name", "another name", problem, fix))
    now = {field: value for field, value in to_document(existing).items() if field in FIELDS}
    for field in ("match", "labels"):
        if isinstance(given.get(field), Mapping):
            merged = {**now[field], **given[field]}
            given[field] = {key: value for key, value in merged.items() if value is not None}
    metrics = given.get("metrics", now["metrics"])
    if "metrics" in given and metrics is None:
        errors.append(SubscriptionError("metrics", None, "is required", "omit it, or give a list"))
        metrics = given["metrics"] = []
    added, removed = (_metrics(given.pop(field, None), field, errors.append) for field in _PATCH_FIELDS)
    if isinstance(metrics, list):
        warnings = [f"there is no prefix {prefix!r} to remove" for prefix in removed if prefix not in metrics]
        kept = [prefix for prefix in metrics if prefix not in removed]
        given["metrics"] = [*kept, *(prefix for prefix in added if prefix not in kept)]
    return _checked(existing.name, now | given, errors, changed_by, changed_at), warnings


def _checked(
    name: Any,
    given: dict[str, Any],
    errors: list[SubscriptionError],
    changed_by: str | None,
    changed_at: datetime | None,
) -> Subscription:
    """Make the subscription of these fields, or raise all errors."""
    fields = {field: value for field, value in given.items() if value is not None}
    expires_at = fields.get("expires_at")
    if expires_at is not None:
        try:
            fields["expires_at"] = time_from_text(expires_at)
        except (TypeError, ValueError):
            fix = "give a time with its zone, for example 2030-01-31T12:00:00Z"
            errors.append(SubscriptionError("expires_at", expires_at, "is not a time (RFC 3339)", fix))
            del fields["expires_at"]
    try:
        subscription = Subscription(name, **fields, changed_by=changed_by, changed_at=changed_at)
    except SubscriptionError as error:
        errors += error.all
    if errors:
        first, *first.further = errors
        raise first
    return subscription


def _fields_of(document: object, known: tuple[str, ...], report: _Report) -> dict[str, Any]:
    """Return the known fields, without those that only the receiver sets."""
    if not isinstance(document, Mapping):
        report(SubscriptionError("", document, "is not a mapping", "give the subscription's fields"))
        return {}
    for key in document:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            offered = [field for field in known if field not in READ_ONLY_FIELDS]
            fix = f"did you mean {close[0]}?" if close else f"known are {', '.join(offered)}"
            report(SubscriptionError(str(key), document[key], "is an unknown field", fix))
    return {key: value for key, value in document.items() if key in known and key not in READ_ONLY_FIELDS}


def _metrics(prefixes: object, field: str, report: _Report) -> list[str]:
    """Check the prefixes of a patch's field; none of them count if one is wrong."""
    if prefixes is None:
        return []
    errors: list[SubscriptionError] = []
    checked = CHECKS["metrics"](prefixes, errors.append)
    for error in errors:
        report(error.renamed(field + error.field.removeprefix("metrics")))
    return [] if errors else list(checked)


def _text_or_none(time: datetime | None) -> str | None:
    return None if time is None else time_to_text(time)
