"""Whatever clients push, strict parsers of both scrape formats take the scrape."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from tests.unit.plugins._shared.cumulative.support import BEGIN, CUMULATIVE, DELTA, SECOND, attributes
from tests.unit.plugins.prometheus.support import push, scraped, table

numbers = st.one_of(
    st.sampled_from([float("nan"), float("inf"), float("-inf"), -0.0, 0.5, 1.0, 1.5, 1e6, -2.0]), st.floats()
)
counts = st.integers(0, (1 << 64) - 1)
times = st.integers(0, 30).map(lambda at: BEGIN + at * SECOND)
names = st.sampled_from(["a", "a.total", "a.sum", "a.count", "a.bucket", "b", "\u00e4", "0"])
labels = st.sampled_from([{}, {"k": "v"}, {"le": "1"}, {"quantile": "2"}, {"k": '\n"\\'}]).map(attributes)


@st.composite
def metrics(draw: st.DrawFn) -> Metric:
    metric = Metric(
        name=draw(names), unit=draw(st.sampled_from(["", "1", "ms"])), description=draw(st.text(max_size=5))
    )
    kind = draw(st.sampled_from(["gauge", "sum", "histogram", "summary"]))
    data = getattr(metric, kind)
    if kind in {"sum", "histogram"}:
        data.aggregation_temporality = draw(st.sampled_from([DELTA, CUMULATIVE]))
    if kind == "sum":
        data.is_monotonic = draw(st.booleans())
    for _ in range(draw(st.integers(1, 3))):
        point = data.data_points.add(
            attributes=draw(labels), time_unix_nano=draw(times), start_time_unix_nano=draw(times)
        )
        if kind in {"gauge", "sum"}:
            if draw(st.booleans()):
                point.as_double = draw(numbers)
            continue
        point.count = draw(counts)
        if kind == "summary":
            point.sum = draw(numbers)
            for quantile, value in draw(st.lists(st.tuples(numbers, numbers), max_size=3)):
                point.quantile_values.add(quantile=quantile, value=value)
            continue
        if draw(st.booleans()):
            point.sum = draw(numbers)
        point.explicit_bounds.extend(sorted(draw(st.lists(numbers, max_size=3))))
        point.bucket_counts.extend(draw(counts) for _ in range(len(point.explicit_bounds) + 1))
    return metric


def summary(quantile: float, value: float, *, total: float = 4.0) -> Metric:
    metric = Metric(name="s")
    point = metric.summary.data_points.add(time_unix_nano=BEGIN, count=3, sum=total)
    point.quantile_values.add(quantile=quantile, value=value)
    return metric


@given(st.lists(st.lists(metrics(), min_size=1, max_size=4), min_size=1, max_size=3))
@example([[summary(float("nan"), 2.0)], [summary(1.5, 3.0)], [summary(0.99, float("nan"))]])
@example([[summary(0.5, -1.0, total=-1.0)], [summary(0.5, 1.0, total=float("nan"))]])
def test_strict_parsers_take_every_scrape(history: list[list[Metric]]) -> None:
    series = table()
    for at, pushed in enumerate(history, start=1):
        series.add(push(*pushed, at=at))
    scraped(series)
    scraped(series, openmetrics=False)
