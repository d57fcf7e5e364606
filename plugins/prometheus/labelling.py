"""Labels targets and series, and estimates the memory of both with their labels."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Final, cast

from plugins.prometheus.config import PrometheusConfig
from plugins.prometheus.lines import LabelSet, series_labels
from plugins.prometheus.targets import Labels, TargetLabels, target_labels
from plugins.prometheus.trust import reserved_labels

#: Bytes of a series, and of a target, with dictionary entries and without texts.
_SERIES_BYTES: Final = 1_800
_TARGET_BYTES: Final = 3_000
#: Bytes of a histogram line, and of a label set, without texts.
_LINE_BYTES: Final = 500
_LABEL_SET_BYTES: Final = 500
_PAIR_BYTES: Final = 64


class Labelling:
    """The labels of targets and series under the operator's settings."""

    def __init__(self, config: PrometheusConfig) -> None:
        self._names, self._job = config.resource_labels, config.job
        self._reserved = reserved_labels(config.resource_labels)
        # Number of copies of each label text: for scrapes, and for remote write 1.0.
        self._copies = 2 if config.remote_write is not None and config.remote_write.version == "1.0" else 1

    def target(self, resource: bytes) -> TargetLabels:
        """Return the labels of a target from its Resource."""
        return target_labels(resource, names=self._names, job=self._job, reserved=self._reserved)

    def series(self, target: Labels, attributes: tuple[bytes, ...]) -> LabelSet:
        """Return the labels of a series of a target."""
        return LabelSet(series_labels(target, attributes, self._reserved))

    def target_bytes(self, resource: bytes) -> int:
        """Estimate the bytes of a target."""
        labels = self.target(resource)
        texts = sum(self._label_bytes(LabelSet(pairs), ()) for pairs in (labels.series, labels.info))
        return _TARGET_BYTES + len(resource) + texts

    def series_bytes(self, target: Hashable, attributes: tuple[bytes, ...], samples: int) -> int:
        """Estimate the bytes of a series; ``target`` are the labels of its target."""
        size = _SERIES_BYTES + sum(map(sys.getsizeof, attributes))
        if not attributes and samples == 1:
            # Its labels are its target's, which are counted already.
            return size
        known = cast("Labels", target)
        labels = self.series(known, attributes)
        if attributes:
            size += self._label_bytes(labels, known)
        if samples > 1:
            line = _LINE_BYTES + self._copies * len(labels.text) + _PAIR_BYTES * len(labels.pairs)
            # A histogram has a sum and a count in addition to its buckets.
            size += (samples + 1) * line
        return size

    def _label_bytes(self, labels: LabelSet, known: Labels) -> int:
        """Estimate the bytes of labels that share the texts of ``known``."""
        own = set(labels.pairs).difference(known)
        texts = sum(sys.getsizeof(name) + sys.getsizeof(value) for name, value in own)
        pairs = _PAIR_BYTES * len(labels.pairs)
        return _LABEL_SET_BYTES + texts + pairs + self._copies * len(labels.text)
