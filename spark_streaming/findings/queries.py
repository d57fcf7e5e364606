"""Reads a filter of findings from a query string or from options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qs

from spark_streaming.findings.answers import FilterError, FindingFilter
from spark_streaming.times import time_from_text

_AGO: Final = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_NAMES: Final = ("client_id", "principal", "group", "owner", "kind", "severity", "since", "state")
_STATES: Final = ("open", "all")
_MAX_CHARS: Final = 1024


def filter_of(texts: Mapping[str, Sequence[str]], now: datetime) -> FindingFilter:
    """Return the filter that texts give by name.

    Args:
        texts: ``client_id``, ``principal``, ``group``, ``owner``, ``severity``, ``since`` and
            ``state`` once, and ``kind`` several times.
        now: What ``since`` counts from if it is a duration such as ``2h``.

    Raises:
        FilterError: A text is wrong; the error names it, its value and the fix.
    """
    given: dict[str, Any] = {}
    for name, values in texts.items():
        if name not in _NAMES:
            raise FilterError(f"{name[:100]}: unknown; expected {', '.join(_NAMES)}")
        if name == "kind":
            given["kinds"] = tuple(values)
            continue
        if len(values) > 1:
            raise FilterError(f"{name}: given {len(values)} times; give it once")
        given[name] = values[0]
    if (long := next((name for name in given if len(given[name]) > _MAX_CHARS), None)) is not None:
        raise FilterError(f"{long}: longer than {_MAX_CHARS} characters")
    if (state := given.pop("state", "open")) not in _STATES:
        raise FilterError(f"state: {state!r}: expected {' or '.join(_STATES)}")
    if "since" in given:
        given["since"] = time_of(given["since"], now)
    return FindingFilter(is_open=state == "open", **given)


def filter_of_query(query: str, now: datetime) -> FindingFilter:
    """Return the filter of a URL's query.

    Raises:
        FilterError: As for :func:`filter_of`.
    """
    try:
        texts = parse_qs(query, keep_blank_values=True, max_num_fields=50, errors="strict")
    except ValueError:
        raise FilterError("the query is no text in UTF-8, or has more than 50 parameters") from None
    return filter_of(texts, now)


def time_of(text: str, now: datetime) -> datetime:
    """Return a time that is written in ISO 8601, or as a duration before now.

    Raises:
        FilterError: It is neither.
    """
    try:
        if (ago := _AGO.fullmatch(text)) is not None:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return time_from_text(text)
    except (ValueError, OverflowError):  # 999999d is before the year 1
        raise FilterError(
            f"since: {text[:100]!r}: expected a time such as 2026-01-31T00:00Z, or a duration such as 2h"
        ) from None
