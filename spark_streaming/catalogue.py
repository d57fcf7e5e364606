"""Reads the catalogue of standard metrics and builds the decoder's plan from it.

The receiver owns the catalogue. ``standard_metrics.json`` is a link to it in the repository, and a
copy in an installed package.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from spark_streaming.rows import RULES
from spark_streaming.watched import WATCHED

_VERSION: Final = 1
_PLAN_VERSION: Final = 1
_NS: Final = 1_000_000_000

#: Default bound of a value's magnitude: the range of OTLP integers. Sums of such values stay finite
#: in 64-bit floating point.
MAX_VALUE: Final = 2.0**64
#: Default bound of the observations in one push's histograms. A client that observes a value every
#: microsecond needs twelve days to reach it.
MAX_COUNT: Final = 1 << 40
#: Default number of partitions of a topic that have series of their own.
MAX_PARTITIONS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric of the catalogue.

    Attributes:
        name: The name that clients send.
        kind: OTLP type: ``gauge``, ``sum`` or ``histogram``.
        unit: UCUM unit; None if undocumented.
        description: Meaning, in one sentence.
        combines: How values combine over clients and time, one of ``RULES``.
        required: Whether KIP-714 requires it of producers or consumers.
        clients: Clients that are known to send it.
        by: Attributes of its series, one set for each level of detail. Levels count the same
            things.
        draft_name: Name in the draft of KIP-714; None if it has no such metric.
        released_names: Names of the same metric in the released KIP-714.
    """

    name: str
    kind: str
    unit: str | None
    description: str
    combines: str
    required: bool
    clients: tuple[str, ...]
    by: tuple[tuple[str, ...], ...]
    draft_name: str | None
    released_names: tuple[str, ...]

    @property
    def finer(self) -> tuple[str, ...]:
        """Attributes that only points of finer levels than the first have, sorted."""
        first, *others = self.by
        return tuple(sorted({key for level in others for key in level}.difference(first)))


@functools.cache
def metrics() -> tuple[Metric, ...]:
    """Return every metric of the catalogue, sorted by name.

    Raises:
        ValueError: The catalogue has an unsupported version.
    """
    document = json.loads(resources.files(__package__).joinpath("standard_metrics.json").read_text("utf-8"))
    if document.get("version") != _VERSION:
        raise ValueError(
            f"unsupported version {document.get('version')} of the catalogue (supported: {_VERSION})"
        )
    return tuple(map(_metric, document["metrics"]))


def _metric(entry: dict[str, Any]) -> Metric:
    by = tuple(map(tuple, entry["by"]))
    texts = {key: tuple(entry[key]) for key in ("clients", "released_names")}
    return Metric(**(entry | texts | {"by": by}))


def plan(
    *,
    min_minute: int | None = None,
    max_behind_s: float,
    max_ahead_s: float,
    max_value: float = MAX_VALUE,
    max_count: int = MAX_COUNT,
    max_partitions: int = MAX_PARTITIONS,
) -> str:
    """Build the argument ``plan`` of the decoder's functions.

    Args:
        min_minute: Ignore data points before this minute since the epoch. Their entry is returned
            without values, so that the push does not look empty.
        max_behind_s: A data point earlier than its push by more than this gets the time of receipt.
        max_ahead_s: The same for a data point after the time of receipt.
        max_value: Greatest magnitude of a value. A push with a greater one is refused.
        max_count: Greatest sum of the counts of one push's histograms, and of their buckets. A push
            with a greater one is refused.
        max_partitions: Partitions from this one on are one series, named "other". 0 means that
            partitions are no dimension.

    Returns:
        JSON. The same arguments give the same text.
    """
    rules = {rule: code for code, rule in enumerate(RULES)}
    return json.dumps(
        {
            "version": _PLAN_VERSION,
            "min_minute": min_minute,
            "max_behind_ns": round(max_behind_s * _NS),
            "max_ahead_ns": round(max_ahead_s * _NS),
            "max_value": max_value,
            "max_count": max_count,
            "max_partitions": max_partitions,
            "metrics": {
                metric.name: {"rule": rules[metric.combines], "finer": metric.finer} for metric in metrics()
            },
            "watched": [{"keeps": slot.keeps, "metrics": slot.metrics} for slot in WATCHED],
        },
        separators=(",", ":"),
    )
