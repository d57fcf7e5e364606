"""Applies the steps to encoded metrics, in order, within a bound of work."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from receiver.catalogue import Catalogue
from receiver.patterns import compile_pattern
from receiver.settings.metric_processing import NormalizationSettings
from receiver.telemetry.errors import TooLargeError
from receiver.telemetry.otlp_views import Counted, MetricList, points_in, points_of
from receiver.telemetry.steps.counts import StepCounts
from receiver.telemetry.steps.names import ByName, Names, Units
from receiver.telemetry.steps.overflow import leave_out, overflow_metric, without_series
from receiver.telemetry.steps.privacy import Privacy
from receiver.telemetry.steps.rewriting import AttributeRewriter
from receiver.telemetry.steps.series_keys import AdmitSeries, Owner, PushedSeries

# The decision on a metric by its name.
_Decision = Literal["keep", "bad", "private"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesBound:
    """The bounds on the series of a push; None for no bound."""

    max_series: int | None = None  # data points
    admit: AdmitSeries | None = None  # decides on series that the client did not have before


#: Lets all series through.
NO_BOUND: Final = SeriesBound()


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The result of the steps on a list of metrics.

    ``places`` has the index of each remaining metric in the input; an overflow series has that of
    the first metric that lost points.
    """

    metrics: Sequence[bytes] = ()  # that remain; the same object as the input if nothing changed
    places: Sequence[int] = ()
    series: int = 0  # data points that remain, without an overflow series
    overflowed: int = 0  # data points that the overflow series replaced
    not_admitted: int = 0  # those of them whose series are new beyond the limit


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """The metrics that the steps get: those of admitted series.

    ``dropped`` is the first metric that lost data points, ``dropped_place`` its index.
    """

    metrics: Sequence[bytes]
    places: Sequence[int]
    counted: Any
    series: int
    not_admitted: int = 0
    dropped: bytes = b""
    dropped_place: int = 0


class MetricSteps:
    """The steps for clients with the same known-bad metrics (RE2, whole names)."""

    def __init__(
        self,
        normalization: NormalizationSettings,
        privacy: Privacy,
        catalogue: Catalogue,
        bad_metrics: Sequence[str],
    ) -> None:
        self._privacy = privacy
        self._may_not_skip = privacy.on
        self._mark = normalization.known_bad_values == "mark"
        keeps_bad = normalization.known_bad_values == "keep"
        self._bad = () if keeps_bad else tuple(map(compile_pattern, bad_metrics))
        self._names = Names()
        self._decisions = ByName(self._decide) if self._bad or privacy.metrics else None
        self._required = ByName(
            lambda name: (metric := catalogue.metric(name)) is not None and metric.required
        )
        self._units = (
            Units(catalogue, units=normalization.units, descriptions=normalization.descriptions)
            if normalization.units or normalization.descriptions
            else None
        )
        self._attributes = normalization.attributes or privacy.attributes
        self._on = bool(self._attributes or self._units or self._decisions is not None)
        self.rewriter = AttributeRewriter(privacy, normalize=normalization.attributes)

    def apply(
        self,
        metrics: Sequence[bytes],
        together: bytes,
        owners: Sequence[Owner],
        bound: SeriesBound,
        counts: StepCounts,
    ) -> Applied:
        """Apply the steps to scrubbed metrics, and add to the counts.

        Args:
            together: The same metrics as an encoded ScopeMetrics.
            counts: The counts of the push so far.

        Raises:
            TooLargeError: Privacy or a bound applies, and the metrics are over a bound of work.
        """
        given = self._admitted(metrics, together, owners, bound.admit)
        over = bound.max_series is not None and given.series > bound.max_series
        if not (self._on or over or given.not_admitted):
            return Applied(metrics=metrics, series=given.series)
        try:
            return self._apply(given, bound.max_series, counts)
        except TooLargeError:
            if self._may_not_skip or over or given.not_admitted:
                raise
            counts.unnormalized = True
            return Applied(metrics=metrics, series=given.series)

    def skip(
        self, metrics: Sequence[bytes], together: bytes, bound: SeriesBound, counts: StepCounts
    ) -> Applied:
        """Return metrics unchanged, because they are over a bound of work.

        Raises:
            TooLargeError: Privacy or a bound on series applies.
        """
        series = points_in(Counted.FromString(together))
        over = bound.max_series is not None and series > bound.max_series
        if self._may_not_skip or over or bound.admit is not None:
            raise TooLargeError("has too many messages for privacy rules or a bound on series")
        counts.unnormalized = True
        return Applied(metrics=metrics, series=series)

    def _admitted(
        self,
        metrics: Sequence[bytes],
        together: bytes,
        owners: Sequence[Owner],
        admit: AdmitSeries | None,
    ) -> _Given:
        """Drop the data points of series that may not be added."""
        counted = Counted.FromString(together)
        series = points_in(counted)
        given = _Given(metrics=metrics, places=range(len(metrics)), counted=counted, series=series)
        if admit is None:
            return given
        pushed = PushedSeries(together, owners, self._required.__getitem__)
        refused = admit(pushed)
        if not refused:
            return given
        first = next(place for place, keys in enumerate(pushed.by_metric) if not refused.isdisjoint(keys))
        remaining, places = without_series(metrics, pushed.by_metric, refused)
        counted = Counted.FromString(MetricList(metrics=remaining).SerializeToString())
        left = points_in(counted)
        return _Given(
            metrics=remaining,
            places=places,
            counted=counted,
            series=left,
            not_admitted=series - left,
            dropped=metrics[first],
            dropped_place=first,
        )

    def _decide(self, name: str) -> _Decision:
        if self._privacy.metrics and self._privacy.metric(name):
            return "private"
        text = name.encode()
        return "bad" if any(pattern.fullmatch(text) is not None for pattern in self._bad) else "keep"

    def _apply(self, given: _Given, max_series: int | None, counts: StepCounts) -> Applied:
        counted, series, overflowed = given.counted, given.series, given.not_admitted
        work = _Work(list(given.metrics), self._names.read(given.metrics, counted), given.places)
        bad_points = marked_points = private_points = 0
        marked: frozenset[int] = frozenset()
        if self._decisions is not None:
            decisions = [self._decisions[name] for name in work.names]
            private_points = work.drop(decisions, "private")
            if not self._mark:
                bad_points = work.drop(decisions, "bad")
            series -= private_points + bad_points
        dropped, place = given.dropped, given.dropped_place
        if max_series is not None and series > max_series:
            required = [self._required[name] for name in work.names]
            dropped, place = work.leave_out(required, series, max_series)
            overflowed, series = overflowed + series - max_series, max_series
        if self._decisions is not None and self._mark:
            marked = frozenset(
                index for index, name in enumerate(work.names) if self._decisions[name] == "bad"
            )
        if self._attributes or marked:
            unchanged = list(work.metrics)
            try:
                self.rewriter.rewrite(work.metrics, work.names, marked, counts)
            except TooLargeError:
                if self._may_not_skip:
                    raise
                work.metrics = unchanged
                marked = frozenset()
                counts.unnormalized = True
        if marked:
            marked_points = points_of([work.metrics[index] for index in sorted(marked)])
        if self._units is not None:
            work.metrics = self._units.added(work.metrics, work.names, counted)
        if overflowed:
            work.append(overflow_metric(dropped, overflowed), place)
        # Only now, because a push that turns out to be too large is forwarded unchanged.
        counts.bad_points += bad_points
        counts.marked_points += marked_points
        counts.private_points += private_points
        return Applied(
            metrics=work.metrics,
            places=work.places,
            series=series,
            overflowed=overflowed,
            not_admitted=given.not_admitted,
        )


class _Work:
    """Metrics during the steps, with the name and first index of each."""

    def __init__(self, metrics: list[bytes], names: Sequence[bytes], places: Sequence[int]) -> None:
        self.metrics = metrics
        self.names = names
        self.places = places

    def drop(self, decisions: list[_Decision], decision: _Decision) -> int:
        """Drop the metrics with this decision; return the number of their data points."""
        if decision not in decisions:
            return 0
        kept = [each != decision for each in decisions]
        points = points_of([metric for metric, stays in zip(self.metrics, kept, strict=True) if not stays])
        self._keep(kept)
        decisions[:] = itertools.compress(decisions, kept)
        return points

    def leave_out(self, required: Sequence[bool], series: int, max_series: int) -> tuple[bytes, int]:
        """Drop the data points over the budget.

        Return the first metric of them, and its place.
        """
        overflow = leave_out(self.metrics, required, series, max_series)
        first = self.metrics[overflow.first], self.places[overflow.first]
        if overflow.cut is not None:
            index, cut = overflow.cut
            self.metrics[index] = cut
        self._keep(overflow.kept)
        return first

    def append(self, metric: bytes, place: int) -> None:
        self.metrics.append(metric)
        self.places = [*self.places, place]

    def _keep(self, kept: list[bool]) -> None:
        self.metrics = list(itertools.compress(self.metrics, kept))
        self.names = list(itertools.compress(self.names, kept))
        self.places = list(itertools.compress(self.places, kept))
