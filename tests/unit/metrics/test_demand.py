"""Metrics of series budgets, back-pressure and offenders."""

from __future__ import annotations

from receiver.wire.uuid import Uuid
from tests.unit.api.conftest import telemetry_core
from tests.unit.metrics.test_sources import Now, lines


def test_what_clients_have_and_are_asked_less() -> None:
    offenders = {"max_too_large": 1, "max_bytes_per_minute": 2000, "relax_after_s": 10}
    telemetry = telemetry_core(
        series={"max_total": 100},
        backpressure={"enabled": True, "step_s": 1, "offenders": offenders},
    )
    ids = [Uuid(number.to_bytes(16, "big")) for number in range(3)]
    metrics = Now(telemetry=telemetry).metrics()
    assert lines(metrics, "series") == {"series 0.0"}
    assert lines(metrics, "interval_factor") == {"interval_factor 1.0"}

    for identifier, overflowed in zip(ids, (0, 5, 7), strict=True):
        telemetry.series.record_push(
            identifier,
            principal="User:a",
            client_id="c",
            block="10.0.0.1",
            series=20,
            overflowed=overflowed,
            now=0.0,
        )
    for now in range(4):
        telemetry.backpressure.observe({"otlp": 1000.0}, now)
    for now in range(10, 12):
        telemetry.backpressure.observe({"otlp": 0.0}, now)
    for identifier in (*ids, *ids[:2]):
        telemetry.offenders.record_push(identifier, 0, 0.0, too_large=True)
    telemetry.offenders.record_push(ids[2], 3000, 1.0, too_large=False)
    telemetry.offenders.demand(ids[0], 20.0)

    assert lines(metrics, "series") == {"series 60.0"}
    assert lines(metrics, "overflowed_points_total") == {"overflowed_points_total 12.0"}
    assert lines(metrics, "interval_factor") == {"interval_factor 4.0"}
    assert lines(metrics, "interval_steps_total") == {
        'interval_steps_total{direction="longer"} 3.0',
        'interval_steps_total{direction="shorter"} 1.0',
    }
    assert lines(metrics, "reduced_instances") == {
        'reduced_instances{to="standard_metrics"} 1.0',
        'reduced_instances{to="nothing"} 2.0',
    }
    assert lines(metrics, "offences_total") == {
        'offences_total{offence="too_large"} 5.0',
        'offences_total{offence="bytes_per_minute"} 1.0',
    }
    assert lines(metrics, "relaxations_total") == {"relaxations_total 1.0"}
