"""The plugin's memory stays within ``max_bytes`` for any pushes and scrapers."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from plugins.prometheus.config import PrometheusConfig
from plugins.prometheus.exposition import exposition
from tests.unit.plugins._shared.cumulative.support import gauge, number
from tests.unit.plugins._shared.cumulative.test_histograms import histogram
from tests.unit.plugins.prometheus.support import RESOURCE, push, table, text_of

BUDGET = 1_200_000


def small(push_: int) -> list[Metric]:
    points = [number(1, at=10, labels={"n": f"{push_}-{n}"}) for n in range(60)]
    return [gauge("org.apache.kafka.x", *points)]


def long_texts(push_: int) -> list[Metric]:
    # 60 labels of 4 kB are refused. These have the maximum length, and four bytes a character in
    # memory.
    values = {f"k{n}": "\U0001f600" + "x" * 110 for n in range(30)}
    return [gauge(f"org.apache.kafka.x{push_}.{n}", number(1, at=10, labels=values)) for n in range(10)]


def histograms(push_: int) -> list[Metric]:
    made = []
    for n in range(2):
        metric = histogram([1] * 150, at=10, bounds=tuple(float(n) for n in range(149)))
        metric.name = f"org.apache.kafka.h{push_}.{n}"
        made.append(metric)
    return made


@pytest.mark.parametrize("version", [pytest.param(None, marks=pytest.mark.full), "1.0"])
@pytest.mark.parametrize("metrics", [small, long_texts, histograms])
def test_a_flood_of_series_stays_within_the_budget(
    metrics: Callable[[int], list[Metric]], version: str | None
) -> None:
    flood = [
        push(
            *metrics(n),
            at=10,
            instance=f"i-{n}",
            resource={
                **RESOURCE,
                "client_instance_id": f"i-{n}",
                "client_id": "c" * 500,
                "host.name": "h" * 500,
            },
        )
        for n in range(15)
    ]
    series = table(version, max_bytes=BUDGET)
    gc.collect()
    tracemalloc.start()
    try:
        for item in flood:
            series.add(item)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        # The estimates are upper bounds, but not so high that they waste the budget.
        assert BUDGET / 5 < held < BUDGET
        assert series._cumulative.statistics.size > 0.7 * BUDGET
        tracemalloc.reset_peak()
        largest = max(map(len, exposition(series, openmetrics=True)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert largest < 400_000
    assert peak - held < 3 * largest + 100_000


def test_lingering_series_count_in_the_budget_and_share_it_fairly() -> None:
    series = table(max_bytes=BUDGET, linger_s=60)
    good = push(gauge("good", number(7, at=10)), at=10, principal="User:good", terminating=True)
    series.add(good)
    for n in range(15):
        series.add(push(*small(n), at=11, instance=f"i-{n}", terminating=True))
        living = series._cumulative.statistics.size
        assert living + series._lingering.size <= BUDGET
    assert series._lingering.size > 0.5 * BUDGET
    assert "good{" in text_of(series)
    series.expire(push(at=1_000).context.received_at_ns)
    assert (series._lingering.size, series._lingering.count) == (0, 0)
    assert [family.name.name for family in series.families()] == ["target_info"]


def test_defaults_fit_the_chart() -> None:
    config = PrometheusConfig(bind="127.0.0.1:9464")
    assert config.max_bytes <= 64 * 1024 * 1024
    assert config.max_series * 1_800 >= config.max_bytes


def test_a_scrape_reads_each_series_that_lives_throughout_once() -> None:
    series = table(linger_s=0)
    for n in range(1_000):
        resource = {"client_instance_id": str(n)}
        series.add(push(gauge("g", number(n, at=10)), at=10, instance=str(n), resource=resource))
    chunks = exposition(series, openmetrics=False)
    found = [next(chunks)]
    # Between two chunks, clients before and after the cursor end, and some of them return.
    for n in (*range(0, 1_000, 3), 5_000):
        resource = {"client_instance_id": str(n)}
        series.add(push(gauge("g", number(n, at=20)), at=20, instance=str(n), resource=resource))
        if n < 1_000:
            series.add(push(at=21, instance=str(n), terminating=True))
        if n % 2:
            series.add(push(gauge("g", number(n, at=30)), at=30, instance=str(n), resource=resource))
    text = b"".join([*found, *chunks]).decode()
    lines = [line for line in text.splitlines() if line.startswith("g{")]
    assert len(lines) == len(set(lines))
    instances = {line.split('instance="')[1].split('"')[0] for line in lines}
    assert instances >= {str(n) for n in range(1_000) if n % 3}
    assert len(found[0]) < len(text)
