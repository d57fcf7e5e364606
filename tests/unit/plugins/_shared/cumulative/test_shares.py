"""A peer can exhaust only its own share of the series and bytes."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from plugins._shared.cumulative import Cumulative, peer_of
from tests.unit.plugins._shared.cumulative.support import counter, gauge, metrics_data, number, push
from tests.unit.plugins._shared.cumulative.test_histograms import exponential, histogram

MALLORY: dict[str, Any] = {"principal": "User:ANONYMOUS", "address": "203.0.113.66"}


def state(*, max_series: int = 1_000, max_bytes: int = 1 << 30) -> Cumulative:
    return Cumulative(max_series=max_series, max_bytes=max_bytes)


def gauges(count: int, *, at: float, name: str = "g", text: str = "") -> list[Metric]:
    return [gauge(name, number(1, at=at, labels={"n": f"{n}{text}"})) for n in range(count)]


@pytest.mark.parametrize(
    ("series", "text", "bounds"),
    [(20, "", {"max_series": 200}), (20, "x" * 4_000, {"max_bytes": 500_000})],
    ids=["series", "bytes"],
)
def test_hostile_pushes_neither_end_nor_refuse_series_of_other_peers(
    series: int, text: str, bounds: dict[str, int]
) -> None:
    one = state(**bounds)
    ended: list[Any] = []
    # 59 instances of one address fill the budget before and while five others push.
    for n in range(59):
        hostile = gauges(series, at=10, name=f"evil.{n}", text=text)
        one.accumulate(push(*hostile, at=10, instance=f"m-{n}", **MALLORY))
    for at in (11, 21, 31):
        for n in range(5):
            result = one.accumulate(
                push(
                    *(counter(f"c{m}", number(1, since=at - 10, at=at)) for m in range(15)),
                    at=at,
                    instance=f"good-{n}",
                    principal=f"User:{n}",
                )
            )
            assert (len(result.points), result.refused) == (15, 0)
            ended += result.ended.series
        for n in range(59):
            hostile = gauges(series, at=at, name=f"evil.{at}.{n}", text=text)
            ended += one.accumulate(push(*hostile, at=at, instance=f"m-{n}", **MALLORY)).ended.series
    assert ended
    assert {series.name.split(".")[0] for series in ended} == {"evil"}
    assert one.statistics.series <= one._budget.max_series
    assert one.statistics.size <= one._budget.max_bytes


def test_an_instance_exhausts_its_own_share_of_its_peer_only() -> None:
    one = state(max_series=100)
    one.accumulate(push(*gauges(100, at=10), at=10, instance="large"))
    small = one.accumulate(push(*gauges(30, at=11, name="s"), at=11, instance="small"))
    assert (len(small.points), small.refused, len(small.ended.series)) == (30, 0, 30)
    # Both have the same bound, so no push takes from the other, and no series end and restart in
    # turns.
    for at in (12, 13, 14):
        for instance in ("large", "small"):
            one.accumulate(push(*gauges(100, at=at, name=instance[0]), at=at, instance=instance))
    evicted = one.statistics.evicted_series
    for at in (15, 16, 17):
        for instance in ("large", "small"):
            one.accumulate(push(*gauges(100, at=at, name=instance[0]), at=at, instance=instance))
    assert one.statistics.evicted_series == evicted
    assert sorted(held.series for held in one._instances.values()) == [50, 50]


def test_the_newest_series_of_the_largest_instance_end_first() -> None:
    one = state(max_series=10)
    one.accumulate(push(*gauges(10, at=10), at=10, instance="large"))
    result = one.accumulate(push(gauge("s", number(1, at=11)), at=11, instance="small", principal="User:b"))
    (ended,) = result.ended.series
    assert ended.attributes == (KeyValue(key="n", value={"string_value": "9"}).SerializeToString(),)  # type: ignore[arg-type]


def test_instances_that_ended_yield_to_new_ones_of_their_peer() -> None:
    one = state(max_series=10_000, max_bytes=100_000)
    for n in range(200):
        one.accumulate(push(*gauges(1, at=10), at=10, instance=f"dead-{n}", terminating=True, **MALLORY))
    result = one.accumulate(push(*gauges(5, at=10), at=10, instance="new", **MALLORY))
    assert (len(result.points), result.refused) == (5, 0)


def test_an_instance_without_room_is_refused_whole() -> None:
    one = state(max_bytes=2_000)
    result = one.accumulate(push(*gauges(3, at=10), at=10))
    assert (result.refused, result.points, one._instances, one._peers) == (3, {}, {}, {})
    assert one.statistics.size == 0


def test_ended_series_free_their_memory() -> None:
    one = state(max_series=50)
    for n in range(30):
        metrics = [*gauges(n, at=n), histogram([1] * 3, at=n), exponential(0, 0, [1, 2], at=n)]
        one.accumulate(push(*metrics, at=n, instance=f"i-{n % 7}", principal=f"User:{n % 3}"))
        assert one.statistics.size == sum(held.size for held in one._instances.values())
        assert one.statistics.series == sum(peer.series for peer in one._peers.values())
    one.expire(push(at=1_000).context.received_at_ns)
    assert (one.statistics.size, one.statistics.series, one._instances, one._peers) == (0, 0, {}, {})


def test_a_histogram_counts_by_its_buckets_and_has_a_bound() -> None:
    def wide(buckets: int, at: float) -> Metric:
        return histogram([1] * buckets, at=at, bounds=tuple(float(n) for n in range(buckets - 1)))

    one = state()
    one.accumulate(push(wide(2, 10), at=10))
    before = one.statistics.size
    one.accumulate(push(wide(150, 20), at=20))
    assert one.statistics.size - before > 140 * 64
    assert one.accumulate(push(wide(5_000, 30), at=30)).refused == 1


def test_repeated_metrics_of_a_push_leave_no_shapes_behind() -> None:
    one = state()
    metrics = [gauge("g", number(1, at=10)), *[Metric(name="empty")] * 5_000]
    one.accumulate(push(*metrics, *[gauge("g", number(1, at=10))] * 5_000, at=10))
    (instance,) = one._instances.values()
    (target,) = instance.targets.values()
    assert len(target.shapes) < 32
    assert len({id(shape) for shape in target.shapes}) < 4


@pytest.mark.parametrize(
    "broken",
    [
        b"\x0a\xff\x01",
        # A truncated metric, and an attribute whose text is not UTF-8.
        metrics_data(gauge("g", number(1, at=10, labels={"k": "\u00e9"}))).replace(b"\xc3\xa9", b"\xc3\x28"),
    ],
)
def test_only_malformed_metrics_are_refused(broken: bytes) -> None:
    def series_bytes(_target: Any, attributes: tuple[bytes, ...], _samples: int) -> int:
        return sum(len(KeyValue.FromString(attribute).key) for attribute in attributes)

    one: Cumulative = Cumulative(max_series=10, series_bytes=series_bytes)
    if broken.startswith(b"\x0a\xff"):
        # Wrap the bytes as a metric of a MetricsData.
        scope = b"\x12" + bytes([len(broken)]) + broken
        scopes = b"\x12" + bytes([len(scope)]) + scope
        broken = b"\x0a" + bytes([len(scopes)]) + scopes
    data = broken + metrics_data(gauge("good", number(1, at=10)))
    result = one.accumulate(push(at=10, data=data))
    assert (result.refused, [series.name for series in result.points]) == (1, ["good"])


@pytest.mark.parametrize(
    ("principal", "address", "peer"),
    [
        ("User:bob", "192.0.2.1", "principal User:bob"),
        ("User:ANONYMOUS", "192.0.2.1", "address 192.0.2.1"),
        ("User:ANONYMOUS", "::ffff:192.0.2.1", "address 192.0.2.1"),
        ("User:unknown", "2001:db8:1:2::3", "address 2001:db8:1::/48"),
        ("", "hidden", "address hidden"),
    ],
)
def test_a_peer_is_a_principal_or_else_an_address(principal: str, address: str, peer: str) -> None:
    assert peer_of(push(at=1, principal=principal, address=address).context) == peer
