"""What Prometheus is told: every living series with its last values.

Owns the way from a push to samples: the names and labels of each series, made once and kept with it, its last
values, its end, and that no two have one name and the same labels. No I/O.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakValueDictionary

from plugins.cumulative import Cumulative, Ended, Kind, Series, Target
from plugins.prometheus.config import PrometheusConfig
from plugins.prometheus.lines import (
    ONE_SAMPLE,
    LabelSet,
    Layout,
    Line,
    layout_of,
    lines_of,
    number,
    series_labels,
    values_of,
)
from plugins.prometheus.messages import (
    Sample,
    Version,
    native_sample,
    number_sample,
    stale_sample,
    start_field,
    time_field,
)
from plugins.prometheus.names import MetricName, MetricType, metric_name
from plugins.prometheus.native import native_histogram
from plugins.prometheus.targets import Labels, TargetLabels, target_labels
from receiver.plugin import Push

__all__ = ["Exposed", "Family", "SeriesTable", "Written"]

_TARGET_INFO: Final = MetricName(name="target_info", type=MetricType.INFO, unit="")
#: Kinds that count since a start.
_COUNTING: Final = frozenset({Kind.COUNTER, Kind.HISTOGRAM, Kind.EXPONENTIAL, Kind.SUMMARY})


class Family:
    """A metric of Prometheus's.

    Attributes:
        name: Its name.
        description: The first description that a client told; may be empty.
        members: Its series by their labels.
    """

    __slots__ = ("description", "members", "name")

    def __init__(self, name: MetricName, description: str) -> None:
        self.name = name
        self.description = description
        self.members: dict[Labels, Exposed] = {}


class Exposed:
    """A series as Prometheus has it: of one line, or of several.

    Attributes:
        family: Its metric; None: it is not told, because another has its name and its labels.
        labels: Its labels, without those of single lines.
        ended: Whether its series ended, and it is only shown until it was scraped.
        last: Its lines, their values, and since when they count (milliseconds since the epoch; 0: unknown, or
            they don't). One object that is replaced as a whole: a reader on another thread sees one point.
    """

    __slots__ = (
        "ended",
        "family",
        "kind",
        "labels",
        "last",
        "layout",
        "start_field",
        "start_ns",
        "time_ms",
    )

    def __init__(self, kind: Kind, family: Family | None, labels: LabelSet) -> None:
        self.kind = kind
        self.family = family
        self.labels = labels
        self.ended = False
        self.last: tuple[tuple[Line, ...], tuple[float, ...], int] = ((), (), 0)
        self.layout: Layout = ()
        self.start_field = b""
        #: As the series had it when ``last`` was told since when it counts.
        self.start_ns = 0
        self.time_ms = 0


@dataclass(slots=True)
class TargetState:
    """What is known of a target.

    Attributes:
        labels: The labels of its series.
        info: Its ``target_info``.
        resource: The Resource that was made of.
        time_ms: The time of its last samples.
        time_field: The same as remote write has it; empty where there is none.
        label_sets: Labels of its living series by their attributes, shared by series of the same ones.
    """

    labels: Labels
    info: Exposed
    resource: bytes = b""
    time_ms: int = 0
    time_field: bytes = b""
    label_sets: WeakValueDictionary[tuple[bytes, ...], LabelSet] = field(default_factory=WeakValueDictionary)


@dataclass(slots=True)
class Written:
    """What a push became for remote write.

    Attributes:
        samples: Its samples; none where there is no remote write.
        ends: What says that series ended by it; to be written after its samples.
        left_out: How many of its points are left out.
        reason: Why, for the log.
    """

    samples: list[Sample]
    ends: list[Sample]
    left_out: int
    reason: str


class SeriesTable:
    """Every living series. Its methods may be called by several threads.

    Args:
        config: The plugin's settings.
    """

    def __init__(self, config: PrometheusConfig) -> None:
        self._version: Version | None = None if config.remote_write is None else config.remote_write.version
        self._names, self._job = config.resource_labels, config.job
        self._cumulative: Cumulative[TargetState, Exposed] = Cumulative(
            max_series=config.max_series, identify=lambda resource: self._labels(resource).series
        )
        self._targets = Family(_TARGET_INFO, "")
        self._families: dict[MetricName, Family] = {_TARGET_INFO: self._targets}
        #: The metrics that have samples of a name, by that name.
        self._named: dict[str, list[Family]] = {}
        #: What says that series ended, of the call that is under way.
        self._ends: list[Sample] = []
        #: Series whose clients have pushed their last, and until when they are shown, in order.
        self._lingering: deque[tuple[int, Exposed]] = deque()
        self._linger_ms = 0 if config.bind is None else config.linger_s * 1000
        self._max_series = config.max_series
        self._evicted = 0
        self._lock = threading.Lock()

    def take(self, push: Push) -> Written:
        """Add a push.

        The time of its samples is when it was received: a client's clock may be anything, and a destination
        refuses times that are far from its own.
        """
        with self._lock:
            return self._take(push)

    def expire(self, now_ns: int) -> list[Sample]:
        """End series by silence; see :meth:`plugins.cumulative.Cumulative.expire`.

        Returns:
            What says that they ended; nothing where there is no remote write.
        """
        with self._lock:
            self._end(self._cumulative.expire(now_ns), now_ns // 1_000_000)
            self._hide_lingering(now_ns // 1_000_000)
            return self._collect_ends()

    def families(self) -> list[Family]:
        """Every metric; read them at once, while other threads go on. Copies are made in one step each."""
        return list(self._families.values())

    def _take(self, push: Push) -> Written:
        taken = self._cumulative.take(push)
        now_ms = push.context.received_at_ns // 1_000_000
        still: Ended[TargetState, Exposed] = Ended()
        gone: Ended[TargetState, Exposed] = Ended()
        present = {target for target, *_ in taken.points.values()}
        for series in taken.ended.series:
            (still if series in taken.points else gone).series.append(series)
        for target in taken.ended.targets:
            (still if target in present else gone).targets.append(target)
        self._end(gone, now_ms)
        self._hide_lingering(now_ms)
        samples: list[Sample] = []
        states = {target: self._take_target(target, now_ms, samples) for target in present}
        hidden = 0
        for series, (target, point, _, _) in taken.points.items():
            exposed, state = series.state, states[target]
            if exposed is None:
                exposed = series.state = self._expose(series, state)
            family = exposed.family
            if family is None or not self._take_point(series, exposed, family, state, point, samples):
                hidden += 1
        # What a client pushed last has not been scraped yet.
        self._end(still, now_ms, linger_ms=self._linger_ms)
        return self._written(samples, taken.late, taken.refused, hidden)

    def _written(self, samples: list[Sample], late: int, refused: int, hidden: int) -> Written:
        reasons = {
            "not after the last of their series": late,
            "nothing that can be added, too long, or more than max_series": refused,
            "name and labels taken by another series, or buckets that Prometheus lacks": hidden,
        }
        parts = [f"{count} points left out: {why}" for why, count in reasons.items() if count]
        if evicted := self._cumulative.statistics.evicted_instances - self._evicted:
            self._evicted += evicted
            parts.append(f"{evicted} client instances ended for want of room (max_series)")
        ends = self._collect_ends()
        return Written(samples=samples, ends=ends, left_out=late + refused + hidden, reason="; ".join(parts))

    def _collect_ends(self) -> list[Sample]:
        ends, self._ends = self._ends, []
        return ends

    def _labels(self, resource: bytes) -> TargetLabels:
        return target_labels(resource, names=self._names, job=self._job)

    def _take_target(
        self, target: Target[TargetState, Exposed], now_ms: int, samples: list[Sample]
    ) -> TargetState:
        state = target.state
        if state is None or state.resource != target.resource:
            labels = self._labels(target.resource)
            if state is None:
                state = target.state = TargetState(labels.series, self._info(labels.info))
            elif state.info.labels.pairs != labels.info:
                self._end_exposed(state.info, now_ms)
                state.info = self._info(labels.info)
            state.resource = target.resource
        # A series' samples must have times that grow.
        state.time_ms = state.info.time_ms = max(now_ms, state.time_ms + 1)
        if self._version:
            state.time_field = time_field(state.time_ms)
            samples.append((state.info.last[0][0], number_sample(1.0, state.time_field)))
        return state

    def _info(self, pairs: Labels) -> Exposed:
        labels = LabelSet(pairs)
        exposed = self._targets.members[pairs] = Exposed(Kind.GAUGE, self._targets, labels)
        exposed.last = (lines_of(_TARGET_INFO, "", labels, ONE_SAMPLE), (1.0,), 0)
        return exposed

    def _expose(self, series: Series[Exposed], target: TargetState) -> Exposed:
        labels = self._label_set(series, target)
        name = metric_name(series.name, series.unit, series.kind)
        same = [
            member
            for one in name.samples
            for family in self._named.get(one, ())
            if (member := family.members.get(labels.pairs)) is not None
        ]
        # A second target_info of a client makes each query fail that joins it, for all clients.
        if _TARGET_INFO.name in name.samples or not all(member.ended for member in same):
            return Exposed(series.kind, None, labels)
        for member in same:
            self._hide(member)
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(name, series.description)
            for one in name.samples:
                self._named.setdefault(one, []).append(family)
        exposed = family.members[labels.pairs] = Exposed(series.kind, family, labels)
        return exposed

    def _label_set(self, series: Series[Exposed], target: TargetState) -> LabelSet:
        labels = target.label_sets.get(series.attributes)
        if labels is None:
            labels = LabelSet(series_labels(target.labels, series.attributes))
            target.label_sets[series.attributes] = labels
        return labels

    def _take_point(
        self,
        series: Series[Exposed],
        exposed: Exposed,
        family: Family,
        target: TargetState,
        point: Any,
        samples: list[Sample],
    ) -> bool:
        """Tell a point of a series; False where it can't be told."""
        value, time_ms = series.number, target.time_ms
        lines, _, start_ms = exposed.last
        layout = ONE_SAMPLE if value is not None else layout_of(exposed.kind, point)
        if layout != exposed.layout:
            if len(set(layout)) < len(layout):
                # Boundaries or quantiles that are there twice would be one series with two values.
                return False
            gone = [line for line, part in zip(lines, exposed.layout, strict=True) if part not in layout]
            self._tell_end(exposed, gone, time_ms)
            lines = lines_of(family.name, family.description, exposed.labels, layout)
            exposed.layout = layout
        if series.start_ns != exposed.start_ns and exposed.kind in _COUNTING:
            start_ms = _start_ms(series, time_ms, exposed.time_ms)
            exposed.start_ns = series.start_ns
            exposed.start_field = start_field(start_ms, self._version) if self._version else b""
        exposed.time_ms = time_ms
        if value is not None:
            told = number(value)
            exposed.last = (lines, (told,), start_ms)
            if self._version:
                samples.append((lines[0], number_sample(told, target.time_field + exposed.start_field)))
            return True
        if exposed.kind is Kind.EXPONENTIAL:
            # Text has no native histograms: it shows none of this.
            exposed.last = (lines, (), start_ms)
            histogram = native_histogram(point)
            if histogram is None:
                return False
            if self._version:
                encoded = native_sample(histogram, self._version, time_ms=time_ms, start_ms=start_ms)
                samples.append((lines[0], encoded))
            return True
        values = values_of(exposed.kind, point, layout)
        exposed.last = (lines, values, start_ms)
        if self._version:
            fields = target.time_field + exposed.start_field
            samples += [(line, number_sample(one, fields)) for line, one in zip(lines, values, strict=True)]
        return True

    def _end(self, ended: Ended[TargetState, Exposed], now_ms: int, linger_ms: int = 0) -> None:
        exposed = [series.state for series in ended.series if series.state is not None]
        exposed += [target.state.info for target in ended.targets if target.state is not None]
        for one in exposed:
            self._end_exposed(one, now_ms, linger_ms)

    def _end_exposed(self, exposed: Exposed, now_ms: int, linger_ms: int = 0) -> None:
        exposed.ended = True
        self._tell_end(exposed, exposed.last[0], now_ms)
        if linger_ms:
            self._lingering.append((now_ms + linger_ms, exposed))
            while len(self._lingering) + self._cumulative.statistics.series > self._max_series:
                self._hide(self._lingering.popleft()[1])
        else:
            self._hide(exposed)

    def _hide_lingering(self, now_ms: int) -> None:
        while self._lingering and self._lingering[0][0] <= now_ms:
            self._hide(self._lingering.popleft()[1])

    def _hide(self, exposed: Exposed) -> None:
        family, pairs = exposed.family, exposed.labels.pairs
        # A client that came back has the same labels.
        if family is None or family.members.get(pairs) is not exposed:
            return
        del family.members[pairs]
        if not family.members and family is not self._targets:
            del self._families[family.name]
            for name in family.name.samples:
                self._named[name].remove(family)
                if not self._named[name]:
                    del self._named[name]

    def _tell_end(self, exposed: Exposed, lines: Iterable[Line], now_ms: int) -> None:
        if self._version and exposed.family is not None:
            time_ms = max(now_ms, exposed.time_ms + 1)
            sample = stale_sample(self._version, time_ms=time_ms, native=exposed.kind is Kind.EXPONENTIAL)
            self._ends += [(line, sample) for line in lines]


def _start_ms(series: Series[Exposed], time_ms: int, last_ms: int) -> int:
    """Since when a series counts, on the receiver's clock: as long before its point as the client says.

    Args:
        series: The series; 0 nanoseconds, or none between start and point, say that the start isn't known.
        time_ms: The time of its sample.
        last_ms: The time of its last sample, 0 where this is the first: what begins anew begins after it.
    """
    lasted_ns = series.time_ns - series.start_ns
    if not series.start_ns or lasted_ns <= 0:
        return 0
    return max(min(time_ms - lasted_ns // 1_000_000, time_ms - 1), last_ms)
