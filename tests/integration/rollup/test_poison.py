"""Hostile pushes become dead letters or saturate, and no good push is lost."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA, MetricsData
from structlog.testing import capture_logs

from spark_streaming import batch
from spark_streaming.postgres import StoreDataError
from spark_streaming.rows import MAX_TOTAL
from tests.integration.rollup.conftest import Query, Roll
from tests.integration.rollup.pushes import CONNECTIONS, MINUTE_NS, Client, Spooled, Values, push, spool

NOW = (time.time_ns() // MINUTE_NS - 30) * MINUTE_NS
HOSTILE = Client(instance="HHHHHHHHHHHHHHHHHHHHHH", client_id="hostile")
Change = Callable[[MetricsData], object]


def good(number: int) -> Spooled:
    client = Client(instance=f"{number:022d}", client_id="good")
    return push(client, NOW, Values(sums={CONNECTIONS: 1.0}, gauges={"load": float(number)}))


def hostile(number: int, change: Change) -> Spooled:
    pushed = push(replace(HOSTILE, instance=f"h{number:021d}"), NOW)
    data = MetricsData.FromString(pushed.otlp)
    change(data)
    return replace(pushed, otlp=data.SerializeToString())


def metric(data: MetricsData, name: str = "absurd") -> Any:
    return data.resource_metrics[0].scope_metrics[0].metrics.add(name=name)


def gauge(value: float) -> Change:
    return lambda data: metric(data).gauge.data_points.add(time_unix_nano=NOW, as_double=value)


def histogram(points: int = 1, **fields: Any) -> Change:
    def change(data: MetricsData) -> None:
        made = metric(data).histogram
        made.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
        for _ in range(points):
            made.data_points.add(time_unix_nano=NOW, **fields)

    return change


def exponential(**fields: Any) -> Change:
    def change(data: MetricsData) -> None:
        made = metric(data).exponential_histogram
        made.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
        made.data_points.add(time_unix_nano=NOW, count=1, **fields)

    return change


def label(**labels: str) -> Change:
    def change(data: MetricsData) -> None:
        for key, value in labels.items():
            data.resource_metrics[0].resource.attributes.add(key=key).value.string_value = value

    return change


def times(time_ns: int) -> Change:
    return lambda data: metric(data).gauge.data_points.add(
        time_unix_nano=time_ns, start_time_unix_nano=(1 << 64) - 1, as_double=1
    )


#: Refused as a whole.
ABSURD: list[Change] = [
    gauge(1e300),
    gauge(-1.9e19),
    histogram(count=(1 << 64) - 1),
    histogram(count=1 << 63),
    histogram(count=(1 << 40) + 1),
    histogram(points=1025, count=1 << 30),
    histogram(count=1, sum=1e200),
    histogram(count=1, min=-1e200),
    histogram(count=1, max=1e200),
    histogram(count=1, explicit_bounds=[1e200], bucket_counts=[0, 1]),
    histogram(count=1, explicit_bounds=[0.0], bucket_counts=[(1 << 64) - 1, 1]),
    histogram(points=3, count=1, explicit_bounds=[0.0], bucket_counts=[1 << 39, 0]),
    exponential(zero_count=1 << 63),
    exponential(zero_threshold=1e300),
]
#: Odd pushes that are accepted.
ODD: list[Change] = [
    *map(gauge, (math.nan, math.inf, -math.inf, sys.float_info.max, 5e-324, -0.0, 2.0**64)),
    *map(times, (0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)),
    histogram(count=1 << 39, explicit_bounds=[-0.0], bucket_counts=[1, 1]),
    histogram(count=1 << 39, explicit_bounds=[0.0], bucket_counts=[1, 1]),
    exponential(scale=-(1 << 31), zero_count=1),
    label(client_id="\0", principal="\0" * 3000, group_id="ü" * 100_000),
    label(client_software_name="", cluster_id="x" * 5000, client_rack="\u2028\ufeff"),
    lambda data: metric(data, "\0" * 9000).gauge.data_points.add(as_double=1),
    lambda data: metric(data, "").gauge.data_points.add(as_int=-(1 << 63)),
]


def test_absurd_pushes_become_dead_letters_and_no_good_push_is_lost(
    roll: Roll, query: Query, folder: Path
) -> None:
    pushes = []
    for number, change in enumerate([*ABSURD, *ODD]):
        pushes += [good(number), hostile(number, change)]
    file = spool(folder, "one", pushes)
    with capture_logs() as log:
        roll()
    assert not [line for line in log if line["event"].startswith(("batch failed", "push isolated"))]
    letters: dict[str, str] = dict(query("SELECT position, reason FROM dead_letter"))
    assert letters.keys() == {f"file:{file}#{2 * number + 1}" for number in range(len(ABSURD))}
    assert all("metric absurd" in reason for reason in letters.values())
    assert query("SELECT pushes, dead_letters FROM ledger") == [(len(pushes), len(ABSURD))]
    assert query(
        "SELECT points, sum FROM metric_1m WHERE metric = %s AND client_id = 'good'", CONNECTIONS
    ) == [(len(pushes) // 2, len(pushes) / 2)]
    # Hours and days too, and every view can be read.
    for view in ("metric_1m", "metric_1h", "metric_1d", "fleet_1h", "spread_1h", "histogram_1d", "client_1h"):
        assert query(f"SELECT * FROM {view}")


@pytest.mark.full
def test_counts_saturate_within_a_batch_over_batches_and_over_minutes(
    roll: Roll, query: Query, folder: Path
) -> None:
    most = 1 << 53
    huge = histogram(count=most, explicit_bounds=[0.0], bucket_counts=[most, 0])

    def pushes(first: int) -> list[Spooled]:
        return [hostile(number, huge) for number in range(first, first + 1030)]

    spool(folder, "one", [good(1), *pushes(0)])
    roll(max_count=most)
    spool(folder, "two", [good(2), *pushes(2000)])
    roll(max_count=most)
    assert query("SELECT sum(pushes), sum(dead_letters) FROM ledger") == [(2062, 0)]
    for grain in ("1m", "1h", "1d"):
        assert query(f"SELECT points FROM metric_{grain} WHERE metric = 'absurd'") == [(MAX_TOTAL,)]
        assert query(f"SELECT points FROM fleet_{grain} WHERE metric = 'absurd'") == [(MAX_TOTAL,)]
        assert query(f"SELECT count FROM histogram_{grain}") == [(MAX_TOTAL,)]
        assert query(
            f"SELECT sum FROM metric_{grain} WHERE client_id = 'good' AND metric = %s", CONNECTIONS
        ) == [(2.0,)]


@contextmanager
def refused(query: Query, roll: Roll) -> Iterator[None]:
    """Let the database reject a value, in place of an unknown defect."""
    roll()
    query("ALTER TABLE series ADD CONSTRAINT defect CHECK (metric <> 'absurd')")
    yield


@pytest.mark.full
def test_a_push_that_the_database_refuses_is_isolated(roll: Roll, query: Query, folder: Path) -> None:
    with refused(query, roll):
        pushes = [good(number) for number in range(12)]
        for at in (3, 4, 9):
            pushes.insert(at, hostile(at, gauge(1.0)))
        file = spool(folder, "one", pushes)
        roll()
    letters: dict[str, str] = dict(query("SELECT position, reason FROM dead_letter"))
    assert letters.keys() == {f"file:{file}#{at}" for at in (3, 4, 9)}
    assert all("StoreDataError" in reason and "defect" in reason for reason in letters.values())
    assert query("SELECT pushes, dead_letters FROM ledger") == [(12, 3)]
    assert query("SELECT sum FROM metric_1m WHERE client_id = 'good' AND metric = %s", CONNECTIONS) == [
        (12.0,)
    ]
    assert query("SELECT count(*) FROM metric_1m WHERE client_id = 'hostile'") == [(0,)]


@pytest.mark.full
def test_the_isolated_pushes_of_a_batch_are_bounded(
    roll: Roll, query: Query, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "MAX_ISOLATED", 1)
    with refused(query, roll):
        spool(folder, "one", [good(0), hostile(1, gauge(1.0)), hostile(2, gauge(1.0))])
        with pytest.raises(StoreDataError, match="defect"):
            roll()
    assert query("SELECT count(*) FROM dead_letter") == [(0,)]
    query("ALTER TABLE series DROP CONSTRAINT defect")
    roll()
    assert query("SELECT pushes, dead_letters FROM ledger") == [(3, 0)]
