"""Events of a relay that the core counts."""

from __future__ import annotations

import pytest

from receiver.link.messages import Report, decode_relay_message, encode
from receiver.metrics import ReceiverMetrics, RelayMetrics, replay
from receiver.session.effects import LoginOutcome
from receiver.telemetry.control.limits import Exceeded, LimitName


def test_events_reach_the_core_over_the_link_and_are_counted_once() -> None:
    relay, core = RelayMetrics(), ReceiverMetrics(version="0")
    for _ in range(2):
        relay.connection_opened("A")
        relay.connection_closed("A", "client")
    relay.connection_refused("A", "limit")
    relay.protocol_error("A", "malformed")
    relay.api_versions_answered(35)
    relay.authentication("A", "PLAIN", LoginOutcome.SUCCEEDED)
    relay.authentication("A", "any text of a client", LoginOutcome.FAILED)
    relay.limit_exceeded(
        Exceeded(limit=LimitName.CORE_TIME, scope="principal", peer="User:a", allowed=1, retry_after_s=1.0)
    )
    relay.core_unavailable()
    relay.forwarded("A", "from_clients", 1000)
    relay.deferred(3)
    relay.upstream_connected("A", 0.002)
    relay.upstream_connected("A", 0.004)
    report = decode_relay_message(encode(Report((), tuple(relay.take()))))
    assert isinstance(report, Report)
    replay(core, report.events)
    assert relay.take() == []
    counted = {
        (sample.name.removeprefix("kafka_telemetry_"), *sample.labels.values()): sample.value
        for family in core.registry.collect()
        for sample in family.samples
        if sample.value and not sample.name.endswith("_bucket")
    }
    assert {
        ("connections_opened_total", "A"): 2,
        ("connections_closed_total", "A", "client"): 2,
        ("connections_refused_total", "A", "limit"): 1,
        ("protocol_errors_total", "A", "malformed"): 1,
        ("api_versions_total", "UNSUPPORTED_VERSION"): 1,
        ("authenticated_total", "A", "PLAIN", "succeeded"): 1,
        ("authenticated_total", "A", "other", "failed"): 1,
        ("limit_exceeded_total", "core_time", "principal"): 1,
        ("core_unavailable_calls_total",): 1,
        ("listener_bytes_total", "A", "from_clients"): 1000,
        ("deferred_calls_total",): 3,
        ("upstream_connect_seconds_count", "A"): 2,
        ("upstream_connect_seconds_sum", "A"): 0.006,
    }.items() <= counted.items()


def test_events_are_added_up_while_the_core_is_away() -> None:
    relay = RelayMetrics()
    for _ in range(100_000):
        relay.connection_opened("A")
        relay.upstream_connected("A", 0.001)
    events = relay.take()
    assert events[0] == ("connection_opened", ("A",), 100_000.0)
    assert len(events) == 3
    core = ReceiverMetrics(version="0")
    replay(core, events)
    (family,) = core.connect_times.collect()
    values = {sample.labels.get("le", sample.name): sample.value for sample in family.samples}
    assert values["0.0005"] == 0
    assert values["0.001"] == values["0.0025"] == values["+Inf"] == 100_000
    assert values["kafka_telemetry_upstream_connect_seconds_sum"] == pytest.approx(100.0)


def test_each_event_is_told() -> None:
    relay, told = RelayMetrics(), []
    relay.on_event = lambda: told.append(1)
    relay.connection_opened("A")
    relay.upstream_connected("A", 0.001)
    assert len(told) == 2


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("no_event", ()),
        ("connection_opened", ()),
        ("connection_opened", ("A", "B")),
        ("core_unavailable", ("A",)),
        ("upstream_connected", ()),
        ("upstream_connected", ("A", "0.3")),
        ("connect_seconds", ()),
    ],
)
def test_events_that_do_not_exist_are_refused(name: str, labels: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"."):
        replay(ReceiverMetrics(version="0"), [(name, labels, 1.0)])
