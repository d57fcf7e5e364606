"""Reads what an HTTP client accepts: media types and codings with weights.

prometheus_client ignores weights, so it sends what a client refuses with ``q=0``.
"""

from __future__ import annotations

import math
import re
from typing import Final

_FORMATS: Final = frozenset({"application/openmetrics-text", "text/plain"})
_ANY: Final = frozenset({"*/*", "text/*"})
_VERSION: Final = re.compile(r";\s*version=(?![0-9]{1,3}(\.[0-9]{1,3}){0,2}(;|$))")


def by_weight(header: str) -> list[str]:
    """Return the accepted values of a header such as Accept, the most wanted first.

    Values of weight 0 are left out. Parameters other than the weight stay. A malformed weight
    counts as 1, because the client names the value.

    Source: RFC 9110, section 12.4.2, "Quality Values".
    """
    weighted = [_parse(item) for item in header.split(",") if item.strip()]
    return [value for value, weight in sorted(weighted, key=lambda pair: -pair[1]) if weight > 0]


def scrape_format(accept: str) -> str:
    """Return the scrape format that an Accept header wants most.

    Empty is text 0.0.4, also if the header accepts no format of Prometheus, because a scraper can
    do more with it than with an error.
    """
    for value in by_weight(accept):
        media_type = value.partition(";")[0].lower()
        if media_type in _FORMATS:
            # prometheus_client raises ValueError for a version that is no number.
            return media_type if _VERSION.search(value) else value
        if media_type in _ANY:
            return ""
    return ""


def accepts_coding(header: str, coding: str) -> bool:
    """Return whether an Accept-Encoding header accepts a content coding.

    A ``*`` stands for codings that the header does not name (RFC 9110, section 12.5.3).
    """
    weights = {value.lower(): weight for value, weight in map(_parse, header.split(","))}
    return weights.get(coding, weights.get("*", 0.0)) > 0


def _parse(item: str) -> tuple[str, float]:
    """Return a value with its other parameters, and its weight."""
    kept, weight = [], 1.0
    for part in item.split(";"):
        name, _, text = part.partition("=")
        if name.strip().lower() == "q":
            weight = _number(text)
        else:
            kept.append(part.strip())
    return ";".join(kept), weight


def _number(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 1.0
    return weight if math.isfinite(weight) else 1.0
