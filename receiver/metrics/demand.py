"""How many series clients have, and what they are asked less than their subscriptions want.

Owns these series' names. It asks the telemetry core at scrape and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from receiver.telemetry.telemetry import ClientTelemetry

__all__ = ["demand_metrics"]

_PREFIX = "kafka_telemetry_"


def demand_metrics(telemetry: ClientTelemetry) -> Iterator[Metric]:
    """Take one look at the telemetry core's budgets, control loop and offenders."""
    series, pressure, offenders = telemetry.series, telemetry.backpressure, telemetry.offenders
    yield GaugeMetricFamily(
        f"{_PREFIX}series", "Data points of all client instances' last pushes.", value=series.series
    )
    yield CounterMetricFamily(
        f"{_PREFIX}overflowed_points", "Data points over a series budget.", value=series.overflowed_points
    )
    yield GaugeMetricFamily(
        f"{_PREFIX}interval_factor",
        "How many times as long as asked push intervals are, for back-pressure.",
        value=pressure.factor,
    )
    steps = CounterMetricFamily(f"{_PREFIX}interval_steps", "Changes of that factor.", labels=["direction"])
    steps.add_metric(["longer"], pressure.lengthened)
    steps.add_metric(["shorter"], pressure.shortened)
    yield steps
    narrowed = GaugeMetricFamily(
        f"{_PREFIX}narrowed_instances", "Client instances asked for less for their offences.", labels=["to"]
    )
    for demand, count in offenders.narrowed.items():
        narrowed.add_metric([demand.name.lower()], count)
    yield narrowed
    offences = CounterMetricFamily(
        f"{_PREFIX}offences", "Times that a client instance was narrowed, by what for.", labels=["offence"]
    )
    for offence, count in offenders.narrowings.items():
        offences.add_metric([offence], count)
    yield offences
    yield CounterMetricFamily(
        f"{_PREFIX}relaxations",
        "Times that a client instance was asked for more again, one step each.",
        value=offenders.relaxations,
    )
