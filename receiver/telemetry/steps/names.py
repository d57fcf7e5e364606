"""Reads the names of encoded metrics without parsing, and adds units.

A name is kept as the bytes of its field (``Metric.name``), because a metric in the usual encoding
starts with them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from operator import add
from typing import Any, Final, Generic, TypeVar

from receiver.catalogue import Catalogue
from receiver.telemetry.labels import length_delimited
from receiver.telemetry.otlp_views import MetricHead
from receiver.telemetry.scrub import refuse_too_many

_NAME_TAG: Final = b"\x0a"
_DESCRIPTION_TAG: Final = b"\x12"
_UNIT_TAG: Final = b"\x1a"

# Lengths below this take one byte.
_SHORT: Final = 0x80
_CACHE_SIZE: Final = 4_096

_Answer = TypeVar("_Answer")


class Names:
    """Reads the names of metrics from their first bytes."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    def read(self, metrics: Sequence[bytes], counted: Any) -> list[bytes]:
        """Return the encoded name of each metric, empty for a metric without a name.

        ``counted`` are the same metrics as a ``Counted``.

        Raises:
            TooLargeError: The encoding is unusual and there are too many metrics to parse.
        """
        # If there are as many names as metrics and each metric starts with a name, each has exactly
        # one.
        if len(counted.metrics.name) == len(metrics):
            with contextlib.suppress(IndexError):  # an empty metric
                names = [metric[: metric[1] + 2] for metric in metrics]
                if self._known.issuperset(names) or self._are_names(names):
                    return names
        refuse_too_many(len(metrics))
        return [length_delimited(_NAME_TAG, MetricHead.FromString(metric).name) for metric in metrics]

    def _are_names(self, names: Iterable[bytes]) -> bool:
        new = set(names) - self._known
        if not all(name[0] == _NAME_TAG[0] and name[1] < _SHORT and len(name) == name[1] + 2 for name in new):
            return False
        if len(self._known) + len(new) > _CACHE_SIZE:
            self._known.clear()
        if len(new) <= _CACHE_SIZE:
            self._known |= new
        return True


def has_prefix(name: bytes, prefixes: tuple[bytes, ...]) -> bool:
    """Return whether an encoded name begins with one of the prefixes (UTF-8)."""
    if 1 < len(name) < _SHORT:
        return name.startswith(prefixes, 2)
    text: bytes = MetricHead.FromString(name).name
    return text.startswith(prefixes)


class ByName(dict[bytes, _Answer], Generic[_Answer]):
    """Caches a function of a metric's name, for names of usual length."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Callable[[str], _Answer]) -> None:
        super().__init__()
        self._answer = answer

    def __missing__(self, name: bytes) -> _Answer:
        answer = self._answer(MetricHead.FromString(name).name.decode())
        if len(name) < _SHORT:
            if len(self) >= _CACHE_SIZE:
                self.clear()
            self[name] = answer
        return answer


class Units:
    """Appends units and descriptions to standard metrics that have none."""

    def __init__(self, catalogue: Catalogue, *, units: bool, descriptions: bool) -> None:
        self._catalogue = catalogue
        self._units = units
        self._descriptions = descriptions
        self._missing = ByName(lambda name: self._fields(name, units=units, descriptions=descriptions))

    def added(self, metrics: Iterable[bytes], names: Sequence[bytes], counted: Any) -> list[bytes]:
        """Return the metrics with units and descriptions.

        ``counted`` are the same metrics as a ``Counted``, before any change.

        Raises:
            TooLargeError: Some metrics have units or descriptions, and there are too many to parse.
        """
        sent = counted.metrics
        if not (self._units and sent.unit) and not (self._descriptions and sent.description):
            return list(map(add, metrics, map(self._missing.__getitem__, names)))
        refuse_too_many(len(names))
        return list(map(self._completed, metrics))

    def _completed(self, metric: bytes) -> bytes:
        head = MetricHead.FromString(metric)
        return metric + self._fields(
            head.name.decode(),
            units=self._units and not head.unit,
            descriptions=self._descriptions and not head.description,
        )

    def _fields(self, name: str, *, units: bool, descriptions: bool) -> bytes:
        standard = self._catalogue.metric(name)
        if standard is None:
            return b""
        description = length_delimited(_DESCRIPTION_TAG, standard.description.encode())
        unit = b"" if standard.unit is None else length_delimited(_UNIT_TAG, standard.unit.encode())
        return (description if descriptions else b"") + (unit if units else b"")
