"""Tells the series of a push apart, without parsing its values.

A series is a Resource, a scope, a metric's name and kind, and the attributes of a data point. Two
pushes of a client nearly always have the same series, so :attr:`PushedSeries.shape` answers that in
C; a key for each data point is computed only where it differs.

Attributes in another order make another key, so a client that shuffles them has more series here
than at its destinations, never fewer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Any, Final, Protocol, TypeAlias

from receiver.telemetry.labels import length_delimited
from receiver.telemetry.otlp_views import Identified

_NAME_TAG: Final = b"\x0a"

#: The encoded Resource and scope of neighbouring metrics, and the number of these.
Owner: TypeAlias = tuple[bytes, bytes, int]


class AdmitSeries(Protocol):
    """Decides which series of a push may be added to those that its client had before."""

    def __call__(self, pushed: PushedSeries) -> AbstractSet[int]:
        """Return the keys of the series that may not be added."""


class PushedSeries:
    """The series of a push.

    Args:
        together: The metrics as an encoded ScopeMetrics.
        owners: Their Resources and scopes, in the order of the metrics.
        is_required: Whether KIP-714 requires the metric of an encoded name.

    Attributes:
        shape: The same for pushes with the same points of the same series in one order.
    """

    def __init__(
        self, together: bytes, owners: Sequence[Owner], is_required: Callable[[bytes], bool]
    ) -> None:
        self._owners = owners
        self._is_required = is_required
        self._view = Identified.FromString(together)
        self._view.DiscardUnknownFields()
        self.shape: Final = hash((self._view.SerializeToString(), *owners))

    @cached_property
    def by_metric(self) -> list[list[int]]:
        """The key of each data point of each metric.

        The keys of a metric with several kinds of data are more than its data points.
        """
        owners = itertools.chain.from_iterable(
            itertools.repeat(hash((resource, scope)), metrics) for resource, scope, metrics in self._owners
        )
        return [_keys(owner, metric) for owner, metric in zip(owners, self._view.metrics, strict=True)]

    def distinct(self) -> list[int]:
        """Return each series' key once, those that KIP-714 requires first."""
        required: dict[int, None] = {}
        others: dict[int, None] = {}
        for metric, keys in zip(self._view.metrics, self.by_metric, strict=True):
            name = length_delimited(_NAME_TAG, metric.name)
            (required if self._is_required(name) else others).update(dict.fromkeys(keys))
        return list(required | others)


def _keys(owner: int, metric: Any) -> list[int]:
    name = metric.name
    return [
        hash((owner, name, field.number, point.SerializeToString()))
        for field, data in metric.ListFields()
        if field.name != "name"
        for point in data.data_points
    ]
