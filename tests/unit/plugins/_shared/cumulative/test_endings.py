"""When series end: silence, a last push, another Resource, no room."""

from __future__ import annotations

from typing import Any

from plugins._shared.cumulative import Cumulative
from plugins._shared.cumulative.instances import INSTANCE_BYTES
from tests.unit.plugins._shared.cumulative.support import BEGIN, SECOND, counter, gauge, number, push
from tests.unit.plugins._shared.cumulative.test_state import cumulative, sums


def beat(at: float, instance: str = "a", **settings: Any) -> Any:
    return push(counter("c", number(1, since=at - 10, at=at)), at=at, instance=instance, **settings)


def test_a_series_ends_after_three_intervals_of_silence() -> None:
    state = cumulative()
    result = state.accumulate(beat(10))
    (series,) = result.points
    assert state.expire(BEGIN + 40 * SECOND).series == []
    ended = state.expire(BEGIN + 41 * SECOND + 1)
    assert ended.series == [series]
    assert len(ended.targets) == 1
    assert state.statistics.series == 0
    assert sums(state.accumulate(beat(50))) == [(1, 40, 50)]


def test_pushes_of_any_client_end_silent_series() -> None:
    state = cumulative()
    (series,) = state.accumulate(beat(10)).points
    assert state.accumulate(beat(60, instance="b")).ended.series == [series]
    state.accumulate(beat(61.2))
    late = state.accumulate(beat(92, interval_ms=1000))
    assert [value for value, _, _ in sums(late)] == [1]


def test_silence_is_counted_in_the_instances_own_intervals() -> None:
    state = cumulative()
    (slow,) = state.accumulate(beat(10, instance="slow", interval_ms=60_000)).points
    (fast,) = state.accumulate(beat(10, instance="fast", interval_ms=1_000)).points
    assert state.expire(BEGIN + 20 * SECOND).series == [fast]
    assert state.expire(BEGIN + 200 * SECOND).series == [slow]


def test_a_last_push_counts_and_ends_its_series() -> None:
    state = cumulative()
    state.accumulate(beat(10))
    last = state.accumulate(beat(12, terminating=True))
    assert [value for value, _, _ in sums(last)] == [2]
    assert last.ended.series == list(last.points)
    assert state.expire(BEGIN + 200 * SECOND).series == []


def test_an_empty_last_push_ends_all_series() -> None:
    state = cumulative()
    (series,) = state.accumulate(beat(10)).points
    assert state.accumulate(push(at=12, instance="a", terminating=True)).ended.series == [series]


def test_an_empty_push_keeps_everything_alive() -> None:
    state = cumulative()
    state.accumulate(beat(10))
    state.accumulate(push(at=35, instance="a"))
    assert sums(state.accumulate(beat(60))) == [(2, 0, 60)]


def test_only_a_series_that_is_no_longer_pushed_ends() -> None:
    state = cumulative()
    (lost,) = state.accumulate(
        push(gauge("lag", number(1, at=10, labels={"partition": 1})), at=10, instance="a")
    ).points
    ended = []
    for at in range(20, 81, 10):
        ended += state.accumulate(beat(at)).ended.series
    assert ended == [lost]
    assert state.statistics.series == 1


def test_series_reset_under_another_resource() -> None:
    state = cumulative()
    (old,) = state.accumulate(beat(10, resource={"group_id": "g", "member": "1"})).points
    result = state.accumulate(beat(20, resource={"group_id": "g", "member": "2"}))
    assert sums(result) == [(1, 10, 20)]
    assert result.ended.series == [old]
    assert [target.key for target in result.ended.targets] != [
        target.key for target, *_ in result.points.values()
    ]


def test_other_resource_attributes_may_change() -> None:
    state: Cumulative = Cumulative(max_series=10, identify=lambda resource: b"same")
    state.accumulate(beat(10, resource={"client_source_port": 1}))
    result = state.accumulate(beat(20, resource={"client_source_port": 2}))
    assert sums(result) == [(2, 0, 20)]
    ((target, *_),) = result.points.values()
    assert b"client_source_port" in target.resource


def test_without_room_an_instance_that_missed_two_intervals_ends() -> None:
    state = cumulative(max_series=2)
    state.accumulate(beat(10, instance="a"))
    (series,) = state.accumulate(beat(11, instance="b")).points
    state.accumulate(beat(30, instance="a"))
    refused = state.accumulate(beat(30, instance="c"))
    assert (refused.refused, refused.ended.series) == (1, [])
    result = state.accumulate(beat(32, instance="c"))
    assert result.ended.series == [series]
    assert (state.statistics.series, state.statistics.evicted_instances) == (2, 1)
    assert sums(state.accumulate(beat(40, instance="a"))) == [(3, 0, 40)]


def test_series_of_one_instance_beyond_the_bound_are_refused() -> None:
    state = cumulative(max_series=2)
    metrics = [gauge("g", number(1, at=10, labels={"n": n})) for n in range(5)]
    result = state.accumulate(push(*metrics, at=10))
    assert (len(result.points), result.refused, len(sums(result))) == (2, 3, 2)
    assert state.statistics.series == 2


def test_instances_without_series_are_bounded_too() -> None:
    state: Cumulative = Cumulative(max_series=3, max_bytes=4 * INSTANCE_BYTES)
    for n in range(50):
        state.accumulate(push(at=10, instance=str(n), terminating=True))
    assert len(state._instances) == 4
    assert state.statistics.size == 4 * INSTANCE_BYTES


def test_a_clock_that_is_set_back_ends_no_series() -> None:
    state = cumulative()
    state.accumulate(beat(1000))
    assert (
        state.accumulate(push(counter("c", number(1, since=1000, at=1010)), at=10, instance="a")).ended.series
        == []
    )
    assert (
        state.accumulate(push(counter("c", number(1, since=1010, at=1020)), at=20, instance="a")).ended.series
        == []
    )


def test_series_of_a_metric_share_its_texts_and_long_descriptions_are_cut() -> None:
    metric = gauge("g", *(number(1, at=10, labels={"n": n}) for n in range(3)))
    metric.description = "d" * 100_000
    one, *others = cumulative().accumulate(push(metric, at=10)).points
    assert len(one.description) == 1_024
    assert all(other.name is one.name and other.description is one.description for other in others)


def test_a_series_with_too_long_a_text_is_refused() -> None:
    long = {"n": "x" * 5_000}
    state = cumulative()
    result = state.accumulate(
        push(
            gauge("g", number(1, at=10), number(1, at=10, labels=long)),
            gauge("g" * 5_000, number(1, at=10)),
            at=10,
        )
    )
    assert (len(result.points), result.refused, len(sums(result))) == (1, 2, 1)
    assert state.statistics.series == 1


def test_too_long_a_resource_is_refused_with_its_points() -> None:
    metrics = [counter("c", number(1, at=10)), gauge("g", number(1, at=10))]
    state = cumulative()
    result = state.accumulate(push(*metrics, at=10, resource={"service.name": "x" * 70_000}))
    assert (result.refused, sums(result)) == (2, [])
    assert state.accumulate(push(*metrics, at=11, resource={"service.name": "x" * 1_000})).refused == 0
