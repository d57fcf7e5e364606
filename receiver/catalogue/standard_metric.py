"""What a standard metric is, as a type, and the catalogue of them.

Owns both shapes. The metrics themselves are data, ``standard_metrics.json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from typing import Any, Final

__all__ = ["Catalogue", "Combination", "MetricKind", "StandardMetric", "load"]

_VERSION: Final = 1


class MetricKind(StrEnum):
    """OTLP's type of a metric, named as in ``Metric.data``; every sum of the catalogue is monotonic."""

    GAUGE = "gauge"
    SUM = "sum"
    HISTOGRAM = "histogram"


class Combination(StrEnum):
    """How values combine over the clients and the time that a roll-up puts together."""

    SUM = "sum"
    """Deltas add up; a rate is the sum over the window divided by the window's length."""

    RATE = "rate"
    """The mean over time of each client, then the sum over clients."""

    LAST = "last"
    """The last value of each client in the window, then the sum over clients."""

    MAX = "max"
    """The greatest value."""

    MIN = "min"
    """The least value."""

    DISTRIBUTION = "distribution"
    """Never added: a distribution over clients; the buckets of histograms add up."""

    NONE = "none"
    """Not at all: the value names something, or is a point in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardMetric:
    """One metric.

    Attributes:
        name: Its name as clients send it.
        kind: Its type.
        unit: Its unit in UCUM; None where nobody says.
        description: What it tells, in one sentence.
        combines: How its values combine.
        required: Whether KIP-714 requires it of a producer or consumer.
        clients: Clients that are known to send it.
        by: By which attributes it has series, as the receiver names them: one set for each level. A metric
            with two levels counts the same things in both, so only one of them may be added up.
        draft_name: What the draft of KIP-714 called it, or something that counts the same; None where the
            draft has no such metric. The draft's own metrics have their own name here.
        released_names: Names of the released metrics that it is, or that took the place of a draft's metric;
            empty where none did.
    """

    name: str
    kind: MetricKind
    unit: str | None
    description: str
    combines: Combination
    required: bool
    clients: tuple[str, ...]
    by: tuple[tuple[str, ...], ...]
    draft_name: str | None
    released_names: tuple[str, ...]


class Catalogue:
    """Metrics by name.

    Args:
        document: What ``standard_metrics.json`` holds.

    Raises:
        ValueError: It is no catalogue of this version, or names a metric twice.
    """

    __slots__ = ("_metrics",)

    def __init__(self, document: dict[str, Any]) -> None:
        if document.get("version") != _VERSION:
            raise ValueError(f"the catalogue's version is {document.get('version')}, not {_VERSION}")
        self._metrics: dict[str, StandardMetric] = {}
        for entry in document["metrics"]:
            metric = StandardMetric(
                name=entry["name"],
                kind=MetricKind(entry["kind"]),
                unit=entry["unit"],
                description=entry["description"],
                combines=Combination(entry["combines"]),
                required=entry["required"],
                clients=tuple(entry["clients"]),
                by=tuple(tuple(keys) for keys in entry["by"]),
                draft_name=entry["draft_name"],
                released_names=tuple(entry["released_names"]),
            )
            if metric.name in self._metrics:
                raise ValueError(f"the catalogue has {metric.name} twice")
            self._metrics[metric.name] = metric

    def metric(self, name: str) -> StandardMetric | None:
        """Return the metric of that name, the draft's names included; None where it is not a standard one."""
        return self._metrics.get(name)

    def __iter__(self) -> Iterator[StandardMetric]:
        """Iterate over all metrics in the order of their names."""
        return iter(self._metrics.values())

    def __len__(self) -> int:
        return len(self._metrics)


def load() -> Catalogue:
    """Read the catalogue that is shipped with the receiver."""
    data = resources.files(__package__).joinpath("standard_metrics.json").read_text("utf-8")
    return Catalogue(json.loads(data))
