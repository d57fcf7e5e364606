"""Builds the decoder's plan from the catalogue of standard metrics."""

from __future__ import annotations

import json
from typing import Final

from spark_streaming.rows import RULES
from spark_streaming.standard_metric import load
from spark_streaming.watched import WATCHED

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


def plan(
    *,
    min_minute: int | None = None,
    max_behind_s: float,
    max_ahead_s: float,
    max_value: float = MAX_VALUE,
    max_count: int = MAX_COUNT,
    max_partitions: int = MAX_PARTITIONS,
) -> str:
    """Return the argument ``plan`` of the decoder's functions, always the same JSON.

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
                metric.name: {"rule": rules[metric.combines], "finer": metric.finer} for metric in load()
            },
            "watched": [{"keeps": slot.keeps, "metrics": slot.metrics} for slot in WATCHED],
        },
        separators=(",", ":"),
    )
