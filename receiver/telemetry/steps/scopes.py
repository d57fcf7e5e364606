"""The steps where Resources or scopes tell a push's metrics apart.

Owns which Resource and scope a metric that is left is in. It must not do a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from receiver.telemetry.scrub import MAX_SCRUBBED, keep
from receiver.telemetry.steps.attributes import AttributeCounts
from receiver.telemetry.steps.metrics import Applied, MetricSteps

__all__ = ["apply_to_scopes"]


def apply_to_scopes(
    outline: Any, metrics: Sequence[bytes], together: bytes, steps: MetricSteps, max_series: int | None
) -> Applied:
    """Do the steps to a push in place; what is emptied by that is removed.

    Args:
        outline: The push as an ``Outline``.
        metrics: All its metrics, in order.
        together: The same as an encoded ScopeMetrics.
        steps: The steps.
        max_series: How many data points may stay; None for any number.

    Returns:
        What was done.

    Raises:
        TooLargeError: There is too much to look at, and something in it may have to be left out.
    """
    resources = outline.resource_metrics
    scopes: list[Any] = []
    for resource_metrics in resources:
        scopes.extend(resource_metrics.scope_metrics)
        if len(resources) + len(scopes) > MAX_SCRUBBED:
            return steps.skip(metrics, together, max_series)
    attributes = AttributeCounts()
    for resource_metrics in resources:
        if resource_metrics.HasField("resource"):
            resource_metrics.resource = steps.resource(resource_metrics.resource, attributes)
    for scope in scopes if steps.for_scopes else ():
        if scope.HasField("scope"):
            scope.scope = steps.scope(scope.scope, attributes)
    applied = steps.apply(metrics, together, max_series, attributes)
    if applied.metrics is metrics:
        return applied
    left = [list(applied.metrics)] if len(scopes) == 1 else _by_scope(scopes, applied)
    had_some = [len(scope.metrics) > 0 for scope in scopes]
    for scope, of_scope in zip(scopes, left, strict=True):
        del scope.metrics[:]
        scope.metrics.extend(of_scope)
    if not all(left):
        stays = iter([bool(of_scope) or not had for of_scope, had in zip(left, had_some, strict=True)])
        kept = [
            keep(resource_metrics.scope_metrics, [next(stays) for _ in resource_metrics.scope_metrics])
            for resource_metrics in resources
        ]
        keep(resources, kept)
    return applied


def _by_scope(scopes: list[Any], applied: Applied) -> list[list[bytes]]:
    """Say which of the metrics that are left each scope has."""
    left: list[list[bytes]] = [[] for _ in scopes]
    owners = [whose for whose, scope in zip(left, scopes, strict=True) for _ in range(len(scope.metrics))]
    for place, metric in zip(applied.places, applied.metrics, strict=True):
        owners[place].append(metric)
    return left
