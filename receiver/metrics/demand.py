"""Metrics of series budgets, back-pressure and reduced subscriptions.

Owns the names of these metrics. It reads the telemetry core at each scrape.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from receiver.metrics.families import counter, gauge
from receiver.telemetry.telemetry import ClientTelemetry


def demand_metrics(telemetry: ClientTelemetry) -> Iterator[Metric]:
    """Return the metrics of the core's series budgets, back-pressure and offenders."""
    series, pressure, offenders = telemetry.series, telemetry.backpressure, telemetry.offenders
    yield gauge("series", "Data points of all client instances' last pushes.", series.series)
    yield counter(
        "overflowed_points",
        "Data points over a series budget or a limit on new series.",
        series.overflowed_points,
    )
    yield gauge(
        "remembered_series",
        "Series that the limits on new series remember.",
        telemetry.series_history.remembered,
    )
    yield gauge(
        "latest_pushes_bytes",
        "Bytes of the latest pushes that are kept to show their values.",
        telemetry.latest_pushes.total_bytes,
    )
    yield gauge("interval_factor", "Factor by which back-pressure lengthens push intervals.", pressure.factor)
    steps = {"longer": pressure.lengthened, "shorter": pressure.shortened}
    yield counter("interval_steps", "Changes of that factor.", steps, "direction")
    yield gauge(
        "reduced_instances",
        "Client instances with a reduced subscription, because they push too much.",
        {demand.name.lower(): count for demand, count in offenders.reduced.items()},
        "to",
    )
    yield counter("offences", "Reductions of client instances, by reason.", offenders.reductions, "offence")
    yield counter(
        "relaxations",
        "Steps by which reduced client instances were widened again.",
        offenders.relaxations,
    )
