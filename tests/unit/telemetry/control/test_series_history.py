"""Limits on new series: what an instance pushed before, and what it and its peers may add."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.settings.limits import LimitsSettings, PeerLimitsSettings, PrincipalLimitsSettings
from receiver.settings.metric_processing import SeriesSettings
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.control.limits import LimitName
from receiver.telemetry.outcomes import PushOutcome
from receiver.telemetry.rules import Rules
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import Uuid
from tests.unit.telemetry.otlp_parts import gauge, push, resource_metrics
from tests.unit.telemetry.parts import (
    ALL_PAYLOADS,
    INSTANCE,
    RECEIVED_AT_NS,
    Client,
    all_metrics,
    payload,
    subscription,
)

OVERFLOW = "kafka.client.telemetry.overflow"
REQUIRED = "org.apache.kafka.producer.connection.creation.rate"
IDS = [Uuid(number.to_bytes(16, "big")) for number in range(100, 120)]
HOUR = 3600.0


def core(
    per_client: int | None = None,
    *,
    source: int | None = None,
    principal: int | None = None,
    **series: Any,
) -> Client:
    settings = SeriesSettings(new_per_client_per_hour=per_client, **series)
    return Client(
        subscription(),
        settings=TelemetrySettings(series=settings),
        limits=LimitsSettings(
            source_address=PeerLimitsSettings(new_series_per_hour=source),
            principal=PrincipalLimitsSettings(new_series_per_hour=principal),
        ),
    )


def arrive(
    client: Client, now: float, metrics: bytes, instance: Uuid = INSTANCE, **identity: Any
) -> PushOutcome:
    request = PushTelemetryRequest(client_instance_id=instance, metrics=metrics)
    who = replace(client.identity, **identity)
    taken = client.telemetry.accept(who, request, now=now, received_at_ns=RECEIVED_AT_NS)
    assert taken.push is not None
    return taken


def named(names: Iterable[str], **resource: str) -> bytes:
    return push(resource_metrics(*(gauge(name, 1.0) for name in names), **resource))


def names_of(taken: PushOutcome) -> list[str]:
    assert taken.push is not None
    return [metric.name for metric in all_metrics(MetricsData.FromString(taken.push.payload.data))]


def test_series_that_an_instance_pushed_before_are_not_new() -> None:
    client = core(4)
    for now in range(5):
        taken = arrive(client, now, named("abcd"))
        assert (names_of(taken), taken.new_series_over) == (list("abcd"), None)
    assert client.telemetry.series_history.remembered == 4


def test_new_series_beyond_the_limit_are_replaced_by_the_overflow_series() -> None:
    client = core(4)
    arrive(client, 0, named("abc"))
    taken = arrive(client, 0, named("axbyz"))
    assert names_of(taken) == ["a", "x", "b", OVERFLOW]
    assert (taken.metrics.series, taken.metrics.overflowed, taken.metrics.not_admitted) == (3, 2, 2)
    exceeded = taken.new_series_over
    assert exceeded is not None
    assert (exceeded.limit, exceeded.scope, exceeded.allowed) == (LimitName.NEW_SERIES, "client_instance", 4)
    assert str(exceeded) == "7wk08yJMQAOK9PUGl2Zmrg is over telemetry.series.new_per_client_per_hour (4)"
    assert exceeded.retry_after_s == HOUR / 4
    # The overflow series counts the points.
    (overflow,) = (
        metric
        for metric in all_metrics(MetricsData.FromString(taken.push.payload.data if taken.push else b""))
        if metric.name == OVERFLOW
    )
    assert overflow.gauge.data_points[0].as_int == 2
    assert client.telemetry.series.overflowed_points == 2


def test_refused_series_come_in_at_the_rate_of_the_limit() -> None:
    client = core(4)
    arrive(client, 0, named("abcd"))
    assert names_of(arrive(client, HOUR / 4 - 1, named("abcdef"))) == ["a", "b", "c", "d", OVERFLOW]
    assert names_of(arrive(client, HOUR / 4, named("abcdef"))) == ["a", "b", "c", "d", "e", OVERFLOW]
    assert names_of(arrive(client, HOUR / 2, named("abcdef"))) == ["a", "b", "c", "d", "e", "f"]


def test_metrics_that_kip_714_requires_come_first() -> None:
    assert names_of(arrive(core(2), 0, named(["a", "b", REQUIRED]))) == ["a", REQUIRED, OVERFLOW]


def test_data_points_of_one_metric_are_series_of_their_own() -> None:
    client = core(2)
    metric = gauge("a", 1.0, 2.0, 3.0)
    for number, point in enumerate(metric.gauge.data_points):
        point.attributes.add(key="topic").value.string_value = f"t{number}"
    taken = arrive(client, 0, push(resource_metrics(metric)))
    kept, _ = all_metrics(MetricsData.FromString(taken.push.payload.data if taken.push else b""))
    assert [point.as_double for point in kept.gauge.data_points] == [1.0, 2.0]
    # The last one alone is known by no other form either.
    del metric.gauge.data_points[:2]
    assert names_of(arrive(client, 1, push(resource_metrics(metric)))) == [OVERFLOW]


def test_a_series_twice_in_a_push_is_one() -> None:
    assert names_of(arrive(core(1), 0, push(resource_metrics(gauge("a", 1.0, 2.0), gauge("a", 3.0))))) == [
        "a",
        "a",
    ]


def test_another_resource_or_scope_makes_other_series() -> None:
    client = core(3)
    arrive(client, 0, push(resource_metrics(gauge("a", 1.0))))
    both = push(
        resource_metrics(gauge("a", 1.0), group_id="one"), resource_metrics(gauge("a", 1.0), group_id="two")
    )
    assert names_of(arrive(client, 0, both)) == ["a", "a"]
    scoped = push(resource_metrics(gauge("a", 1.0), scope="s"), resource_metrics(gauge("a", 1.0), scope="t"))
    assert names_of(arrive(client, 0, scoped)) == [OVERFLOW]


def test_another_client_id_makes_other_series() -> None:
    client = core(3)
    assert names_of(arrive(client, 0, named("ab"))) == ["a", "b"]
    assert names_of(arrive(client, 0, named("ab"), client_id="another")) == ["a", OVERFLOW]


def test_the_instances_of_a_source_and_of_a_principal_share_a_limit() -> None:
    for limits, scope in (({"source": 5}, "source_address"), ({"principal": 5}, "principal")):
        client = core(**limits)
        alice = {"principal": "User:alice"}
        assert names_of(arrive(client, 0, named("abc"), IDS[0], **alice)) == ["a", "b", "c"]
        taken = arrive(client, 0, named("abc"), IDS[1], **alice)
        assert names_of(taken) == ["a", "b", OVERFLOW]
        assert taken.new_series_over is not None
        assert taken.new_series_over.scope == scope
        # Others have limits of their own.
        other = {"source_address": "10.0.0.8", "principal": "User:bob"}
        assert names_of(arrive(client, 0, named("abc"), IDS[2], **other)) == ["a", "b", "c"]


def test_a_client_that_reconnects_has_no_new_series() -> None:
    client = core(3, source=3)
    arrive(client, 0, named("abc"))
    client.telemetry.instances.disconnected(client.identity.id)
    assert client.telemetry.instances.find(INSTANCE) is None
    assert names_of(arrive(client, 1, named("abc"))) == ["a", "b", "c"]


def test_the_instance_that_pushed_least_recently_is_forgotten_first() -> None:
    client = core(4, max_total=4)  # so that 8 series are remembered
    for instance in IDS[:2]:
        arrive(client, 0, named("abcd"), instance)
    arrive(client, 1, named("abcd"), IDS[0])
    arrive(client, 2, named("a"), IDS[2])
    assert client.telemetry.series_history.remembered == 5
    assert names_of(arrive(client, 3, named("abcd"), IDS[0])) == ["a", "b", "c", "d"]


def test_the_series_of_the_last_push_stay_of_an_instance_with_too_many(monkeypatch: Any) -> None:
    monkeypatch.setattr("receiver.telemetry.control.series_history._MAX_OF_INSTANCE", 4)
    client = core(6)
    arrive(client, 0, named("abcd"))
    arrive(client, 0, named("de"))
    assert client.telemetry.series_history.remembered == 2
    assert names_of(arrive(client, 0, named("abcde"))) == ["a", "d", "e", OVERFLOW]


def test_a_push_without_room_keeps_what_was_known() -> None:
    client = core(2)
    assert names_of(arrive(client, 0, named("ab"))) == ["a", "b"]
    assert names_of(arrive(client, 0, named("cd"))) == [OVERFLOW]
    assert names_of(arrive(client, 0, named("ba"))) == ["b", "a"]


def test_real_clients_push_the_same_series_again() -> None:
    for name in ALL_PAYLOADS:
        client = core()
        arrive(client, 0, payload(name))
        remembered = client.telemetry.series_history.remembered
        taken = arrive(client, 1, payload(name))
        assert client.telemetry.series_history.remembered == remembered <= taken.metrics.series


def test_a_reload_changes_the_limit() -> None:
    client = core(2)
    assert names_of(arrive(client, 0, named("abc"))) == ["a", "b", OVERFLOW]
    settings = TelemetrySettings(series=SeriesSettings(new_per_client_per_hour=None))
    client.telemetry.replace_rules(Rules(settings))
    assert names_of(arrive(client, 0, named("abc"))) == ["a", "b", "c"]
