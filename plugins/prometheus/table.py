"""The table of all live series with their last values.

It turns pushes into samples. The names and labels of a series are computed once, and no two series
have the same name and labels. No I/O.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakValueDictionary

from plugins._shared.cumulative import Cumulative, Ended, Kind, Series, Target, peer_of
from plugins.prometheus.config import PrometheusConfig
from plugins.prometheus.family import Cursor, Exposed, Family
from plugins.prometheus.labelling import Labelling
from plugins.prometheus.lines import ONE_SAMPLE, LabelSet, Line, layout_of, lines_of, number, values_of
from plugins.prometheus.lingering import Lingering
from plugins.prometheus.messages import (
    Sample,
    Version,
    native_sample,
    number_sample,
    stale_sample,
    start_field,
    time_field,
)
from plugins.prometheus.names import MetricName, MetricType
from plugins.prometheus.native import native_histogram
from plugins.prometheus.targets import Labels
from plugins.prometheus.trust import MetricNames, description
from receiver.plugin import Push

_TARGET_INFO: Final = MetricName(name="target_info", type=MetricType.INFO, unit="")
_TARGET_HELP: Final = "Attributes of the client that are not labels of its other series."
#: Kinds that count since a start.
_COUNTING: Final = frozenset({Kind.COUNTER, Kind.HISTOGRAM, Kind.EXPONENTIAL, Kind.SUMMARY})
#: Older start times of clients are ignored, because Prometheus would insert a zero there.
_MAX_ELAPSED_NS: Final = 366 * 24 * 3600 * 1_000_000_000


@dataclass(slots=True)
class TargetState:
    """The table's state of a target."""

    labels: Labels
    info: Exposed
    resource: bytes = b""
    """The Resource of these labels."""
    time_ms: int = 0
    """Time of its last samples."""
    time_field: bytes = b""
    """The same, encoded for remote write; empty without remote write."""
    label_sets: WeakValueDictionary[tuple[bytes, ...], LabelSet] = field(default_factory=WeakValueDictionary)
    """Labels of its live series by attributes, shared between series."""


@dataclass(slots=True)
class PushSamples:
    """The remote write samples of a push."""

    samples: list[Sample]
    ends: list[Sample]
    """Staleness markers to write after the samples."""
    reasons: Mapping[str, int]
    """Number of dropped points by the reason, for the log."""
    evicted: int
    """Number of series that ended for lack of room."""


class SeriesTable:
    """The table of all live series. Thread-safe."""

    def __init__(self, config: PrometheusConfig) -> None:
        self._version: Version | None = None if config.remote_write is None else config.remote_write.version
        self._labelling = Labelling(config)
        self._metric_names = MetricNames(config.metric_prefixes)
        self._cumulative = Cumulative(
            max_series=config.max_series,
            max_bytes=config.max_bytes,
            identify=lambda resource: self._labelling.target(resource).series,
            series_bytes=self._labelling.series_bytes,
            target_bytes=self._labelling.target_bytes,
        )
        self._targets = Family(_TARGET_INFO, _TARGET_HELP)
        self._families: dict[MetricName, Family] = {_TARGET_INFO: self._targets}
        # Metrics by the names of their samples.
        self._named: dict[str, list[Family]] = {}
        # Staleness markers of the current call.
        self._ends: list[Sample] = []
        # Ended series that stay visible until the last scrape.
        self._lingering = Lingering()
        self._linger_ms = 0 if config.bind is None else config.linger_s * 1000
        self._max_series, self._max_bytes = config.max_series, config.max_bytes
        self._evicted = 0
        self._next_number = 0
        self._lock = threading.Lock()

    def add(self, push: Push) -> PushSamples:
        """Add a push.

        Samples get the push's receive time, because a client's clock may be wrong and a destination
        refuses times that are far from its own.
        """
        with self._lock:
            return self._add(push)

    def expire(self, now_ns: int) -> list[Sample]:
        """End silent series, and return their staleness markers.

        See :meth:`plugins._shared.cumulative.Cumulative.expire`. Without remote write there are no
        markers.
        """
        with self._lock:
            self._end(self._cumulative.expire(now_ns), now_ns // 1_000_000)
            self._hide_lingering(now_ns // 1_000_000)
            return self._collect_ends()

    def families(self) -> list[Family]:
        """Return all metrics. Read their series with :meth:`read_block` only."""
        with self._lock:
            return list(self._families.values())

    def read_block(self, name: MetricName, cursor: Cursor) -> list[Exposed]:
        """Read the next series of a metric; see :meth:`Family.read_block`."""
        with self._lock:
            family = self._families.get(name)
            return [] if family is None else family.read_block(cursor)

    def _add(self, push: Push) -> PushSamples:
        result = self._cumulative.accumulate(push)
        now_ms = push.context.received_at_ns // 1_000_000
        ended_by_push, ended_before = Ended(), Ended()
        present = {target for target, *_ in result.points.values()}
        for series in result.ended.series:
            (ended_by_push if series in result.points else ended_before).series.append(series)
        for target in result.ended.targets:
            (ended_by_push if target in present else ended_before).targets.append(target)
        self._end(ended_before, now_ms)
        self._hide_lingering(now_ms)
        samples: list[Sample] = []
        states = {target: self._update_target(target, now_ms, samples) for target in present}
        hidden = 0
        for series, (target, point, _, _) in result.points.items():
            exposed: Exposed | None = series.state
            state = states[target]
            if exposed is None:
                exposed = series.state = self._expose(series, state)
            family = exposed.family
            if family is None or not self._update_point(series, exposed, family, state, point, samples):
                hidden += 1
        # A client's last push has not been scraped yet.
        self._end(ended_by_push, now_ms, linger_ms=self._linger_ms, peer=peer_of(push.context))
        self._bound_lingering()
        return self._push_samples(samples, result.late, result.refused, hidden)

    def _push_samples(self, samples: list[Sample], late: int, refused: int, hidden: int) -> PushSamples:
        reasons = {
            "not after the last of the series": late,
            "invalid, too large, or no room (max_series, max_bytes)": refused,
            "name and labels taken by another series, or buckets that Prometheus lacks": hidden,
        }
        evicted = self._cumulative.statistics.evicted_series - self._evicted
        self._evicted += evicted
        return PushSamples(
            samples=samples,
            ends=self._collect_ends(),
            reasons={reason: count for reason, count in reasons.items() if count},
            evicted=evicted,
        )

    def _collect_ends(self) -> list[Sample]:
        ends, self._ends = self._ends, []
        return ends

    def _update_target(self, target: Target, now_ms: int, samples: list[Sample]) -> TargetState:
        state: TargetState | None = target.state
        if state is None or state.resource != target.resource:
            labels = self._labelling.target(target.resource)
            if state is None:
                state = target.state = TargetState(labels.series, self._info(labels.info))
            elif state.info.labels.pairs != labels.info:
                self._end_exposed(state.info, now_ms)
                self._hide(state.info)
                state.info = self._info(labels.info)
            state.resource = target.resource
        # The times of a series' samples must increase.
        state.time_ms = state.info.time_ms = max(now_ms, state.time_ms + 1)
        if self._version:
            state.time_field = time_field(state.time_ms)
            samples.append((state.info.last[0][0], number_sample(1.0, state.time_field)))
        return state

    def _info(self, pairs: Labels) -> Exposed:
        labels = LabelSet(pairs)
        exposed = self._join(self._targets, Kind.GAUGE, labels)
        exposed.last = (lines_of(_TARGET_INFO, _TARGET_HELP, labels, ONE_SAMPLE), (1.0,), 0)
        return exposed

    def _expose(self, series: Series, target: TargetState) -> Exposed:
        labels = target.label_sets.get(series.attributes)
        if labels is None:
            labels = self._labelling.series(target.labels, series.attributes)
            target.label_sets[series.attributes] = labels
        name = self._metric_names.of(series.name, series.unit, series.kind)
        same = [
            member
            for sample in name.samples
            for family in self._named.get(sample, ())
            if (member := family.members.get(labels.pairs)) is not None
        ]
        if not all(member.ended for member in same):
            return Exposed(series.kind, None, labels)
        for member in same:
            self._hide(member)
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(name, description(series, name))
            for sample in name.samples:
                self._named.setdefault(sample, []).append(family)
        return self._join(family, series.kind, labels)

    def _join(self, family: Family, kind: Kind, labels: LabelSet) -> Exposed:
        """Add a series to a metric, as its last member."""
        if family.members.pop(labels.pairs, None) is not None:
            family.removed += 1
        self._next_number += 1
        exposed = family.members[labels.pairs] = Exposed(kind, family, labels, self._next_number)
        return exposed

    def _update_point(
        self,
        series: Series,
        exposed: Exposed,
        family: Family,
        target: TargetState,
        point: Any,
        samples: list[Sample],
    ) -> bool:
        """Add a point to a series and the samples; False if Prometheus has no such type."""
        value, time_ms = series.number, target.time_ms
        lines, _, start_ms = exposed.last
        layout = ONE_SAMPLE if value is not None else layout_of(exposed.kind, point)
        if layout != exposed.layout:
            if len(set(layout)) < len(layout):
                # Duplicate boundaries or quantiles would be one series with two values.
                return False
            removed = [line for line, part in zip(lines, exposed.layout, strict=True) if part not in layout]
            self._add_end_markers(exposed, removed, time_ms)
            lines = lines_of(family.name, family.description, exposed.labels, layout)
            exposed.layout = layout
        if series.start_ns != exposed.start_ns and exposed.kind in _COUNTING:
            start_ms = _start_ms(series, time_ms, exposed.time_ms)
            exposed.start_ns = series.start_ns
            exposed.start_field = start_field(start_ms, self._version) if self._version else b""
        exposed.time_ms = time_ms
        native = None
        if value is not None:
            values: tuple[float, ...] = (number(value),)
        elif exposed.kind is Kind.EXPONENTIAL:
            # The text formats have no native histograms.
            values, native = (), native_histogram(point)
        else:
            values = values_of(exposed.kind, point, layout)
        exposed.last = (lines, values, start_ms)
        if native is None and not values:
            return False
        if self._version:
            fields = target.time_field + exposed.start_field
            samples += [
                (line, number_sample(text, fields)) for line, text in zip(lines, values, strict=False)
            ]
            if native is not None:
                encoded = native_sample(native, self._version, time_ms=time_ms, start_ms=start_ms)
                samples.append((lines[0], encoded))
        return True

    def _end(self, ended: Ended, now_ms: int, linger_ms: int = 0, peer: str = "") -> None:
        ending = [(series.state, series.size) for series in ended.series if series.state is not None]
        ending += [(target.state.info, target.size) for target in ended.targets if target.state is not None]
        for exposed, size in ending:
            self._end_exposed(exposed, now_ms)
            if linger_ms:
                self._lingering.add(peer, exposed, size=size, until_ms=now_ms + linger_ms)
            else:
                self._hide(exposed)

    def _end_exposed(self, exposed: Exposed, now_ms: int) -> None:
        exposed.ended = True
        self._add_end_markers(exposed, exposed.last[0], now_ms)

    def _bound_lingering(self) -> None:
        """Hide lingering series while they and the live ones exceed the budget."""
        lingering, living = self._lingering, self._cumulative.statistics
        while (
            lingering.count + living.series > self._max_series
            or lingering.size + living.size > self._max_bytes
        ) and (exposed := lingering.pop_heaviest()) is not None:
            self._hide(exposed)

    def _hide_lingering(self, now_ms: int) -> None:
        for exposed in self._lingering.pop_expired(now_ms):
            self._hide(exposed)

    def _hide(self, exposed: Exposed) -> None:
        family, pairs = exposed.family, exposed.labels.pairs
        # A client that returned has a new series with the same labels.
        if family is None or family.members.get(pairs) is not exposed:
            return
        del family.members[pairs]
        family.removed += 1
        if not family.members and family is not self._targets:
            del self._families[family.name]
            for name in family.name.samples:
                self._named[name].remove(family)
                if not self._named[name]:
                    del self._named[name]

    def _add_end_markers(self, exposed: Exposed, lines: Iterable[Line], now_ms: int) -> None:
        if self._version and exposed.family is not None:
            time_ms = max(now_ms, exposed.time_ms + 1)
            sample = stale_sample(self._version, time_ms=time_ms, native=exposed.kind is Kind.EXPONENTIAL)
            self._ends += [(line, sample) for line in lines]


def _start_ms(series: Series, time_ms: int, last_ms: int) -> int:
    """Return the start of a series on the receiver's clock, or 0 if it is unknown.

    It is as long before the sample as the client's start is before its point. A series that starts
    anew starts after its previous sample, at ``last_ms`` (0: none).
    """
    elapsed_ns = series.time_ns - series.start_ns
    if not series.start_ns or not 0 < elapsed_ns <= _MAX_ELAPSED_NS:
        return 0
    return max(min(time_ms - elapsed_ns // 1_000_000, time_ms - 1), last_ms)
