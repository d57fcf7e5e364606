"""Metrics of series budgets, back-pressure and reduced subscriptions.

Owns the names of these metrics. It reads the telemetry core at each scrape.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from receiver.telemetry.telemetry import ClientTelemetry

_PREFIX = "kafka_telemetry_"


def demand_metrics(telemetry: ClientTelemetry) -> Iterator[Metric]:
    """Return the metrics of the core's series budgets, back-pressure and offenders."""
    series, pressure, offenders = telemetry.series, telemetry.backpressure, telemetry.offenders
    yield GaugeMetricFamily(
        f"{_PREFIX}series", "Data points of all client instances' last pushes.", value=series.series
    )
    yield CounterMetricFamily(
        f"{_PREFIX}overflowed_points",
        "Data points over a series budget or a limit on new series.",
        value=series.overflowed_points,
    )
    yield GaugeMetricFamily(
        f"{_PREFIX}remembered_series",
        "Series that the limits on new series remember.",
        value=telemetry.series_history.remembered,
    )
    yield GaugeMetricFamily(
        f"{_PREFIX}latest_pushes_bytes",
        "Bytes of the latest pushes that are kept to show their values.",
        value=telemetry.latest_pushes.total_bytes,
    )
    yield GaugeMetricFamily(
        f"{_PREFIX}interval_factor",
        "Factor by which back-pressure lengthens push intervals.",
        value=pressure.factor,
    )
    steps = CounterMetricFamily(f"{_PREFIX}interval_steps", "Changes of that factor.", labels=["direction"])
    steps.add_metric(["longer"], pressure.lengthened)
    steps.add_metric(["shorter"], pressure.shortened)
    yield steps
    reduced = GaugeMetricFamily(
        f"{_PREFIX}reduced_instances",
        "Client instances with a reduced subscription, because they push too much.",
        labels=["to"],
    )
    for demand, count in offenders.reduced.items():
        reduced.add_metric([demand.name.lower()], count)
    yield reduced
    offences = CounterMetricFamily(
        f"{_PREFIX}offences", "Reductions of client instances, by reason.", labels=["offence"]
    )
    for offence, count in offenders.reductions.items():
        offences.add_metric([offence], count)
    yield offences
    yield CounterMetricFamily(
        f"{_PREFIX}relaxations",
        "Steps by which reduced client instances were widened again.",
        value=offenders.relaxations,
    )
