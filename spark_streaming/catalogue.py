"""Owns the roll-up's reading of the catalogue: what is known of each metric, and the decoder's plan.

The catalogue is the receiver's, read as data: ``standard_metrics.json`` is a link to it in the repository,
and a copy in an installed package. It must not know how a push is read, nor what becomes of its points.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from spark_streaming.rows import RULES
from spark_streaming.watched import WATCHED

__all__ = ["MAX_COUNT", "MAX_VALUE", "Metric", "metrics", "plan"]

_VERSION: Final = 1
_PLAN_VERSION: Final = 1
_NS: Final = 1_000_000_000

#: The default bound of a value's magnitude: the range of OTLP's integers. Sums of any number of such values
#: stay finite in 64-bit floating point.
MAX_VALUE: Final = 2.0**64
#: The default bound of what one push's histograms count, 2 ** 40. A client that observes a value every
#: microsecond needs twelve days to reach it.
MAX_COUNT: Final = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric of the catalogue.

    Attributes:
        name: Its name as clients send it.
        kind: OTLP's type of it: ``gauge``, ``sum`` or ``histogram``.
        unit: Its unit in UCUM; None where nobody says.
        description: What it tells, in one sentence.
        combines: How its values combine over clients and time, one of ``RULES``.
        required: Whether KIP-714 requires it of a producer or consumer.
        clients: Clients that are known to send it.
        by: By which attributes it has series, one set for each level; two levels count the same things.
        draft_name: What the draft of KIP-714 called it; None where the draft has no such metric.
        released_names: Names of the released metrics that it is, or that took the place of a draft's metric.
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
        """The attributes that only points of a finer level than the first have, in order."""
        first, *others = self.by
        return tuple(sorted({key for level in others for key in level}.difference(first)))


@functools.cache
def metrics() -> tuple[Metric, ...]:
    """Return every metric of the catalogue, in the order of their names.

    Raises:
        ValueError: The catalogue is of a version that this code does not know.
    """
    document = json.loads(resources.files(__package__).joinpath("standard_metrics.json").read_text("utf-8"))
    if document.get("version") != _VERSION:
        raise ValueError(f"the catalogue's version is {document.get('version')}, not {_VERSION}")
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
) -> str:
    """Write what the decoder's functions have to know of the roll-up, as their argument ``plan``.

    Args:
        min_minute: What clients said before this minute (since the epoch) is left out, and only that they
            spoke is told, so that such a push isn't taken for an empty one; None for nothing.
        max_behind_s: How long before a push was received its data points may be; the time of older ones is
            taken for wrong, and the time of receipt counts.
        max_ahead_s: The same for data points after it.
        max_value: The greatest magnitude of a value. A push with a greater one is refused.
        max_count: The most that the counts of one push's histograms add up to, and that the counts of their
            buckets add up to. A push with more is refused.

    Returns:
        JSON, the same text for the same arguments.
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
            "metrics": {
                metric.name: {"rule": rules[metric.combines], "finer": metric.finer} for metric in metrics()
            },
            "watched": [{"keeps": slot.keeps, "metrics": slot.metrics} for slot in WATCHED],
        },
        separators=(",", ":"),
    )
