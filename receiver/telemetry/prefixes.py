"""Finds prefixes of a subscription that match no known metric, which are mostly misspelt.

Known are the metrics of the catalogue and those that clients were seen to push. A client compares
prefixes with its own names, letter by letter (KIP-714, "Client metrics configuration"), so a
misspelt prefix asks for nothing, and no error says so.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.catalogue import CATALOGUE
from receiver.plugin import Push

__all__ = ["SeenMetrics", "unmatched"]

#: Seconds between two pushes whose names are read; reading a push takes about a millisecond.
_SAMPLE_EVERY_S: Final = 1.0

#: Names kept, and their greatest length.
_MAX_NAMES: Final = 4_096
_MAX_NAME_CHARS: Final = 256

#: Largest push that is read, in bytes.
_MAX_SAMPLED_BYTES: Final = 262_144


class SeenMetrics:
    """Names of metrics that clients push, from one push a second at most."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._next = float("-inf")

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def sample(self, push: Push, now: float) -> None:
        """Read the names of a push if the last reading is a second ago (``now``: monotonic)."""
        data = push.payload.data
        if now < self._next or len(data) > _MAX_SAMPLED_BYTES:
            return
        self._next = now + _SAMPLE_EVERY_S
        for resource in MetricsData.FromString(data).resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if len(self._names) < _MAX_NAMES and len(metric.name) <= _MAX_NAME_CHARS:
                        self._names[metric.name] = None


def unmatched(prefixes: Iterable[str], seen: SeenMetrics) -> list[str]:
    """Return a warning for each prefix that matches no catalogued and no seen metric."""
    names = (*_catalogued(), *seen)
    return [
        f"no known metric begins with {prefix!r}{_advice(prefix)}"
        for prefix in prefixes
        if prefix not in {"", "*"} and not any(name.startswith(prefix) for name in names)
    ]


@cache
def _catalogued() -> tuple[str, ...]:
    return tuple(metric.name for metric in CATALOGUE)


@cache
def _catalogued_prefixes() -> tuple[str, ...]:
    found: dict[str, None] = {}
    for name in _catalogued():
        parts = name.split(".")
        for count in range(1, len(parts)):
            found[".".join(parts[:count]) + "."] = None
        found[name] = None
    return tuple(found)


def _advice(prefix: str) -> str:
    wanted = prefix[:_MAX_NAME_CHARS]
    inside = next((name for name in _catalogued() if f".{wanted}" in name), None)
    if inside is not None:
        nearest = [inside[: inside.index(f".{wanted}") + 1 + len(wanted)]]
    else:
        nearest = difflib.get_close_matches(wanted, _catalogued_prefixes(), n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""
