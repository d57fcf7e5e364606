"""The steps on the metrics of a push, as encoded messages: which metrics stay, and what is added to them.

Owns the order of the steps and what happens where there is too much to look at. It must not know in which
Resource or scope a metric is.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from receiver.catalogue import Catalogue
from receiver.patterns import compile_pattern
from receiver.settings.metric_processing import NormalizationSettings
from receiver.telemetry.errors import TooLargeError
from receiver.telemetry.otlp_views import Counted, points_in, points_of
from receiver.telemetry.steps.attributes import AttributeCounts
from receiver.telemetry.steps.names import ByName, Names, Units
from receiver.telemetry.steps.overflow import leave_out
from receiver.telemetry.steps.privacy import Privacy
from receiver.telemetry.steps.rewriting import AttributeRewriter

__all__ = ["NOTHING_APPLIED", "NOTHING_DONE", "Applied", "MetricSteps", "StepCounts"]

#: What becomes of a metric for its name.
_Fate = Literal["keep", "bad", "private"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """What the steps did to a push.

    Attributes:
        bad_points: Data points dropped because the client's version gets them wrong.
        marked_points: Data points marked for that.
        private_points: Data points dropped by a rule.
        dropped_attributes: Attributes dropped by a rule.
        hashed_attributes: Attributes whose value became a hash by a rule.
        unnormalized: Whether it was passed on as it was, because there was too much to look at.
    """

    bad_points: int = 0
    marked_points: int = 0
    private_points: int = 0
    dropped_attributes: int = 0
    hashed_attributes: int = 0
    unnormalized: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What the steps made of a list of metrics.

    Attributes:
        metrics: The encoded metrics that are left; what was given where nothing changed.
        places: The index that each had; that of an overflow series is the first metric's that is not whole.
        series: Data points that are left, an overflow series aside.
        overflowed: Data points over the budget, for which the overflow series stands.
        counts: What was done to the others.
    """

    metrics: Sequence[bytes]
    places: Sequence[int]
    series: int
    overflowed: int
    counts: StepCounts


#: What the steps did where they did nothing.
NOTHING_DONE: Final = StepCounts()
#: What they made of no metrics.
NOTHING_APPLIED: Final = Applied(metrics=[], places=(), series=0, overflowed=0, counts=NOTHING_DONE)


class MetricSteps:
    """The steps for clients of one kind.

    Args:
        normalization: ``telemetry.normalization``.
        privacy: The operator's rules.
        catalogue: The standard metrics.
        bad_metrics: Patterns (RE2) for whole names of metrics whose values the clients get wrong.
    """

    __slots__ = (
        "_attributes",
        "_bad",
        "_fates",
        "_mark",
        "_may_not_skip",
        "_names",
        "_on",
        "_privacy",
        "_required",
        "_rewriter",
        "_units",
    )

    def __init__(
        self,
        normalization: NormalizationSettings,
        privacy: Privacy,
        catalogue: Catalogue,
        bad_metrics: Sequence[str] = (),
    ) -> None:
        self._privacy = privacy
        self._may_not_skip = privacy.on
        self._mark = normalization.known_bad_values == "mark"
        keeps_bad = normalization.known_bad_values == "keep"
        self._bad = () if keeps_bad else tuple(map(compile_pattern, bad_metrics))
        self._names = Names()
        self._fates = ByName(self._fate) if self._bad or privacy.metrics else None
        self._required = ByName(
            lambda name: (metric := catalogue.metric(name)) is not None and metric.required
        )
        self._units = (
            Units(catalogue, units=normalization.units, descriptions=normalization.descriptions)
            if normalization.units or normalization.descriptions
            else None
        )
        self._attributes = normalization.attributes or privacy.attributes
        self._on = bool(self._attributes or self._units or self._fates is not None)
        self._rewriter = AttributeRewriter(privacy, normalize=normalization.attributes)

    @property
    def for_scopes(self) -> bool:
        """Whether there is anything to do to scopes."""
        return self._rewriter.for_scopes

    def apply(
        self, metrics: Sequence[bytes], together: bytes, max_series: int | None, attributes: AttributeCounts
    ) -> Applied:
        """Do the steps to metrics.

        Args:
            metrics: Encoded Metric messages, none of whose values or attributes has to be scrubbed.
            together: The same as an encoded ScopeMetrics.
            max_series: How many data points may stay; None for any number.
            attributes: What was done to attributes of Resources and scopes; grows.

        Returns:
            What is left of them.

        Raises:
            TooLargeError: There is too much to look at, and something in it may have to be left out.
        """
        counted = Counted.FromString(together)
        series = points_in(counted)
        over = max_series is not None and series > max_series
        if not (self._on or over):
            return Applied(metrics=metrics, places=(), series=series, overflowed=0, counts=NOTHING_DONE)
        try:
            return self._apply(list(metrics), counted, series, max_series, attributes)
        except TooLargeError:
            if self._may_not_skip or over:
                raise
            return _passed_over(metrics, series)

    def skip(self, metrics: Sequence[bytes], together: bytes, max_series: int | None) -> Applied:
        """Leave metrics as they are, because there is too much to look at.

        Raises:
            TooLargeError: Something in it may have to be left out.
        """
        series = points_in(Counted.FromString(together))
        if self._may_not_skip or (max_series is not None and series > max_series):
            raise TooLargeError("has too much to look at for privacy or a budget of series")
        return _passed_over(metrics, series)

    def resource(self, resource: bytes, counts: AttributeCounts) -> bytes:
        """Do the steps to an encoded Resource.

        Raises:
            TooLargeError: It has too many attributes, one of which may have to be left out.
        """
        return self._rewriter.resource(resource, counts)

    def scope(self, scope: bytes, counts: AttributeCounts) -> bytes:
        """Do the steps to an encoded InstrumentationScope.

        Raises:
            TooLargeError: It has too many attributes, one of which may have to be left out.
        """
        return self._rewriter.scope(scope, counts)

    def _fate(self, name: str) -> _Fate:
        if self._privacy.metrics and self._privacy.metric(name):
            return "private"
        text = name.encode()
        return "bad" if any(pattern.fullmatch(text) is not None for pattern in self._bad) else "keep"

    def _apply(
        self,
        given: list[bytes],
        counted: Any,
        series: int,
        max_series: int | None,
        attributes: AttributeCounts,
    ) -> Applied:
        work = _Work(given, self._names.of(given, counted))
        bad_points = marked_points = private_points = overflowed = 0
        marked: frozenset[int] = frozenset()
        if self._fates is not None:
            fates = [self._fates[name] for name in work.names]
            private_points = work.drop(fates, "private")
            if not self._mark:
                bad_points = work.drop(fates, "bad")
            series -= private_points + bad_points
        overflow = None
        if max_series is not None and series > max_series:
            required = [self._required[name] for name in work.names]
            overflow = work.leave_out(required, series, max_series)
            overflowed, series = series - max_series, max_series
        if self._fates is not None and self._mark:
            marked = frozenset(index for index, name in enumerate(work.names) if self._fates[name] == "bad")
        if self._attributes or marked:
            whole = list(work.metrics)
            try:
                self._rewriter.rewrite(work.metrics, work.names, marked, attributes)
            except TooLargeError:
                if self._may_not_skip:
                    raise
                work.metrics = whole
                marked = frozenset()
                attributes.passed_over = True
        if marked:
            marked_points = points_of([work.metrics[index] for index in sorted(marked)])
        if self._units is not None:
            work.metrics = self._units.added(work.metrics, work.names, counted)
        if overflow is not None:
            work.append(*overflow)
        counts = NOTHING_DONE
        if self._fates is not None or attributes != AttributeCounts():
            counts = StepCounts(
                bad_points=bad_points,
                marked_points=marked_points,
                private_points=private_points,
                dropped_attributes=attributes.dropped,
                hashed_attributes=attributes.hashed,
                unnormalized=attributes.passed_over,
            )
        return Applied(
            metrics=work.metrics, places=work.places, series=series, overflowed=overflowed, counts=counts
        )


def _passed_over(metrics: Sequence[bytes], series: int) -> Applied:
    counts = StepCounts(unnormalized=True)
    return Applied(metrics=metrics, places=(), series=series, overflowed=0, counts=counts)


class _Work:
    """A list of metrics while the steps are done to it, with the name and the place of each."""

    __slots__ = ("metrics", "names", "places")

    def __init__(self, metrics: list[bytes], names: Sequence[bytes]) -> None:
        self.metrics = metrics
        self.names = names
        self.places: Sequence[int] = range(len(self.metrics))

    def drop(self, fates: list[_Fate], fate: _Fate) -> int:
        """Drop the metrics of that fate, also from the list of fates; return their data points."""
        if fate not in fates:
            return 0
        points = points_of([metric for metric, its in zip(self.metrics, fates, strict=True) if its == fate])
        self._keep([its != fate for its in fates])
        fates[:] = [its for its in fates if its != fate]
        return points

    def leave_out(self, required: Sequence[bool], series: int, max_series: int) -> tuple[bytes, int]:
        """Drop what is over a budget; return the metric that stands for it, and its place."""
        overflow = leave_out(self.metrics, required, series, max_series)
        place = self.places[overflow.first]
        if overflow.cut is not None:
            index, cut = overflow.cut
            self.metrics[index] = cut
        self._keep(overflow.kept)
        return overflow.metric, place

    def append(self, metric: bytes, place: int) -> None:
        """Add a metric behind all others."""
        self.metrics.append(metric)
        self.places = [*self.places, place]

    def _keep(self, kept: list[bool]) -> None:
        self.metrics = list(itertools.compress(self.metrics, kept))
        self.names = list(itertools.compress(self.names, kept))
        self.places = list(itertools.compress(self.places, kept))
