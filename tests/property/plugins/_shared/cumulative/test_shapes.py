"""Reading metrics by shape gives the same results as parsing them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from plugins._shared.cumulative import Cumulative
from tests.unit.plugins._shared.cumulative.support import (
    CUMULATIVE,
    DELTA,
    counter,
    gauge,
    number,
    points,
    push,
)

values = st.one_of(st.integers(-5, (1 << 63) - 1), st.floats(width=32))
times = st.integers(1, 30)


@st.composite
def metrics(draw: st.DrawFn) -> Metric:
    name = draw(st.sampled_from("abc"))
    value = draw(values)
    at = draw(times)
    point = number(value, at=at, since=draw(times) - 1, labels=draw(st.sampled_from([{}, {"k": "v"}])))
    kind = draw(st.sampled_from(["gauge", "delta", "cumulative"]))
    if kind == "gauge":
        return gauge(name, point)
    return counter(
        name, point, temporality=DELTA if kind == "delta" else CUMULATIVE, monotonic=draw(st.booleans())
    )


def outcome(result: Any) -> tuple[list[str], int, int]:
    written = sorted(
        f"{metric.name}{metric.WhichOneof('data')}{point}" for metric, point in points(result.data)
    )
    return written, result.late, result.refused


@given(st.lists(st.lists(metrics(), max_size=4), min_size=1, max_size=8))
def test_shapes_change_nothing(history: list[list[Metric]]) -> None:
    by_shape: Cumulative = Cumulative(max_series=100)
    whole: Cumulative = Cumulative(max_series=100)
    for n, pushed in enumerate(history, start=1):
        one = push(*pushed, at=n)
        expected = outcome(whole.accumulate(one))
        for instance in whole._instances.values():
            for target in instance.targets.values():
                target.shapes = []
        assert outcome(by_shape.accumulate(one)) == expected
