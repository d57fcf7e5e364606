"""The catalogue of standard metrics.

The roll-up, the receiver and the dashboards read it here. The data is ``standard_metrics.json``.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib import resources
from typing import Any, Final

_VERSION: Final = 1

# The end of an average's name that is not over the catalogue's 60 s. Clients choose the period.
_AVERAGE: Final = re.compile(r"\.avg([1-9][0-9]{0,5})s\Z")
_CATALOGUED_AVERAGE: Final = ".avg60s"


class MetricKind(StrEnum):
    """A metric's type, named as in OTLP's ``Metric.data``; every sum is monotonic."""

    GAUGE = "gauge"
    SUM = "sum"
    HISTOGRAM = "histogram"


class Combination(StrEnum):
    """How a roll-up combines values over time and clients."""

    SUM = "sum"
    """Add the deltas; a rate is the sum divided by the length of the window."""

    RATE = "rate"
    """Average over time for each client, then add the clients."""

    LAST = "last"
    """Take the last value of each client in the window, then add the clients."""

    MAX = "max"
    """Take the greatest value."""

    MIN = "min"
    """Take the least value."""

    DISTRIBUTION = "distribution"
    """Never add: show the distribution over clients; add the buckets of histograms."""

    NONE = "none"
    """Do not combine: the value is an id or a point in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardMetric:
    """One standard metric."""

    name: str
    kind: MetricKind
    unit: str | None
    """The unit in UCUM; None when no source defines it."""
    description: str
    """One sentence."""
    combines: Combination
    required: bool
    """Whether KIP-714 requires it of producers or consumers."""
    clients: tuple[str, ...]
    by: tuple[tuple[str, ...], ...]
    """The attributes of its series, as the receiver names them, one set for each level. A metric
    with two levels counts the same things in both, so only one level may be added."""
    draft_name: str | None
    """The metric of KIP-714's draft that counts the same; None when there is none. A metric of the
    draft has its own name here."""
    released_names: tuple[str, ...]
    """The released metrics that replaced a metric of the draft, or the metric's own name; empty
    when none did."""

    @property
    def finer(self) -> tuple[str, ...]:
        """Attributes that only points of finer levels than the first have, sorted."""
        first, *others = self.by
        return tuple(sorted({key for level in others for key in level}.difference(first)))


class Catalogue:
    """The standard metrics by name, from the content of ``standard_metrics.json``.

    Raises:
        ValueError: The document has another version, or a duplicate metric.
    """

    __slots__ = ("_metrics",)

    def __init__(self, document: dict[str, Any]) -> None:
        if document.get("version") != _VERSION:
            raise ValueError(
                f"the catalogue's version is {document.get('version', 'absent')}, not {_VERSION}"
            )
        self._metrics: dict[str, StandardMetric] = {}
        for entry in document["metrics"]:
            fields: dict[str, Any] = {
                **entry,
                "kind": MetricKind(entry["kind"]),
                "combines": Combination(entry["combines"]),
                "clients": tuple(entry["clients"]),
                "by": tuple(map(tuple, entry["by"])),
                "released_names": tuple(entry["released_names"]),
            }
            metric = StandardMetric(**fields)
            if metric.name in self._metrics:
                raise ValueError(f"the catalogue has {metric.name} twice")
            self._metrics[metric.name] = metric

    def metric(self, name: str) -> StandardMetric | None:
        """Return the metric of that name, which may be a draft's name.

        None for other metrics.

        Instead of a histogram, a client of the draft may send a gauge with its average over a
        period, which the gauge's name ends with (KIP-714's draft, "Metric types"). The
        catalogue has ``.avg60s``, which stands for every period: ``.avg10s`` is found too.
        """
        known = self._metrics.get(name)
        if known is not None or (period := _AVERAGE.search(name)) is None:
            return known
        average = self._metrics.get(name[: period.start()] + _CATALOGUED_AVERAGE)
        if average is None:
            return None
        description = average.description.replace("60 s", f"{period[1]} s", 1)
        return replace(average, name=name, draft_name=name, description=description)

    def __iter__(self) -> Iterator[StandardMetric]:
        """Iterate over all metrics, sorted by name."""
        return iter(self._metrics.values())

    def __len__(self) -> int:
        return len(self._metrics)


@functools.cache
def load() -> Catalogue:
    """Read the catalogue of this release."""
    data = resources.files(__package__).joinpath("standard_metrics.json").read_text("utf-8")
    return Catalogue(json.loads(data))
