"""Applies the steps to a push with several Resources or scopes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from receiver.telemetry.scrub import MAX_SCRUBBED, keep
from receiver.telemetry.steps.counts import StepCounts
from receiver.telemetry.steps.metrics import Applied, MetricSteps, SeriesBound


def apply_to_scopes(
    outline: Any,
    metrics: Sequence[bytes],
    together: bytes,
    steps: MetricSteps,
    bound: SeriesBound,
    counts: StepCounts,
) -> Applied:
    """Apply the steps to an ``Outline`` in place.

    Remove scopes and Resources that become empty.

    The other arguments and the errors are those of :meth:`MetricSteps.apply`.
    """
    resources = outline.resource_metrics
    scopes: list[Any] = []
    for resource_metrics in resources:
        scopes.extend(resource_metrics.scope_metrics)
        if len(resources) + len(scopes) > MAX_SCRUBBED:
            return steps.skip(metrics, together, bound, counts)
    for resource_metrics in resources:
        if resource_metrics.HasField("resource"):
            resource_metrics.resource = steps.rewriter.resource(resource_metrics.resource, counts)
    for scope in scopes if steps.rewriter.for_scopes else ():
        if scope.HasField("scope"):
            scope.scope = steps.rewriter.scope(scope.scope, counts)
    owners = [
        (resource_metrics.resource, scope_metrics.scope, len(scope_metrics.metrics))
        for resource_metrics in resources
        for scope_metrics in resource_metrics.scope_metrics
    ]
    applied = steps.apply(metrics, together, owners, bound, counts)
    if applied.metrics is metrics:
        return applied
    remaining = [list(applied.metrics)] if len(scopes) == 1 else _by_scope(scopes, applied)
    # A scope that the client sent without metrics stays.
    stays = [bool(kept) or not scope.metrics for scope, kept in zip(scopes, remaining, strict=True)]
    for scope, kept in zip(scopes, remaining, strict=True):
        del scope.metrics[:]
        scope.metrics.extend(kept)
    if not all(stays):
        next_stays = iter(stays)
        kept_resources = [
            keep(resource_metrics.scope_metrics, [next(next_stays) for _ in resource_metrics.scope_metrics])
            for resource_metrics in resources
        ]
        keep(resources, kept_resources)
    return applied


def _by_scope(scopes: list[Any], applied: Applied) -> list[list[bytes]]:
    """Assign the remaining metrics to their scopes."""
    remaining: list[list[bytes]] = [[] for _ in scopes]
    owners = [kept for kept, scope in zip(remaining, scopes, strict=True) for _ in range(len(scope.metrics))]
    for place, metric in zip(applied.places, applied.metrics, strict=True):
        owners[place].append(metric)
    return remaining
