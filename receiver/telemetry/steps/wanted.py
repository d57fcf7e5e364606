"""Drops the metrics of a push that no subscription asks its client for."""

from __future__ import annotations

import itertools
from typing import Any, Final, TypeAlias

from receiver.telemetry.otlp_views import Counted, MetricList, points_of
from receiver.telemetry.scrub import keep, refuse_too_many
from receiver.telemetry.steps.names import Names, has_prefix

#: Prefixes of the names of the metrics that a client is asked for, in UTF-8.
Wanted: TypeAlias = tuple[bytes, ...]

_NAMES: Final = Names()


def drop_unwanted(outline: Any, wanted: Wanted) -> int:
    """Drop metrics of an ``Outline`` in place; return the number of dropped points.

    What becomes empty by that is dropped too.

    Raises:
        TooLargeError: There are too many Resources and scopes to look into.
    """
    resources = outline.resource_metrics
    refuse_too_many(len(resources) + sum(len(resource.scope_metrics) for resource in resources))
    points = 0
    stays = []
    for resource_metrics in resources:
        scopes = resource_metrics.scope_metrics
        had_scopes = bool(scopes)
        kept = []
        for scope_metrics in scopes:
            had_metrics = bool(scope_metrics.metrics)
            points += drop_unwanted_of_scope(scope_metrics, wanted)
            # A scope that the client sent without metrics stays.
            kept.append(bool(scope_metrics.metrics) or not had_metrics)
        stays.append(keep(scopes, kept) or not had_scopes)
    keep(resources, stays)
    return points


def drop_unwanted_of_scope(scope_metrics: Any, wanted: Wanted) -> int:
    """Drop metrics of a ScopeMetrics, whose metrics are bytes.

    Return their data points.

    Raises:
        TooLargeError: The encoding is unusual and there are too many metrics to parse.
    """
    metrics = list(scope_metrics.metrics)
    if not wanted:
        del scope_metrics.metrics[:]
        return points_of(metrics)
    counted = Counted.FromString(MetricList(metrics=metrics).SerializeToString())
    kept = [has_prefix(name, wanted) for name in _NAMES.read(metrics, counted)]
    if all(kept):
        return 0
    del scope_metrics.metrics[:]
    scope_metrics.metrics.extend(itertools.compress(metrics, kept))
    return points_of([metric for metric, stays in zip(metrics, kept, strict=True) if not stays])
