"""Averages are those of the pushed values, for every rule."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.integration.rollup.conftest import Query, Roll
from tests.integration.rollup.pushes import ASSIGNED, MINUTE_NS, SECOND_NS, Client, Values, push, spool

ALICE = Client(instance="AAAAAAAAAAAAAAAAAAAAAA")
BOB = Client(instance="BBBBBBBBBBBBBBBBBBBBBB")
RATE = "org.apache.kafka.producer.record.send.rate"
HOUR_NS = 60 * MINUTE_NS
#: The beginning of a whole hour.
NOW = (time.time_ns() // HOUR_NS - 2) * HOUR_NS


@pytest.mark.full
def test_the_average_of_a_count_is_that_of_its_pushes(roll: Roll, query: Query, folder: Path) -> None:
    """Counts continue in minutes without a push, which must not raise the average."""
    steady = Values(gauges={ASSIGNED: 3.0, RATE: 7.0})
    spool(
        folder,
        "one",
        [push(ALICE, NOW + number * 5 * MINUTE_NS, steady, push_interval_ms=300_000) for number in range(12)],
    )
    roll()
    for view in ("metric_1m", "metric_1h", "metric_1d", "fleet_1m", "fleet_1h", "fleet_1d"):
        found = query(f"SELECT DISTINCT metric, avg FROM {view} WHERE metric = ANY (%s)", [ASSIGNED, RATE])
        assert {pair for pair in found if pair[1] is not None} == {(ASSIGNED, 3.0), (RATE, 7.0)}, view


@pytest.mark.full
def test_two_pushes_in_a_minute_have_their_mean(roll: Roll, query: Query, folder: Path) -> None:
    def both(client: Client, value: float, second: int) -> None:
        values = Values(gauges={ASSIGNED: value, RATE: value})
        spool(folder, f"{value}", [push(client, NOW + second * SECOND_NS, values)])
        roll()

    both(ALICE, 3.0, 0)
    both(ALICE, 5.0, 30)
    # Late, and of another instance of the client id.
    both(BOB, 10.0, 20)
    own = "metric = ANY (%s) AND bucket = to_timestamp(%s)"
    found = query(
        f"SELECT metric, sum, points, avg, min, max FROM metric_1m WHERE {own} ORDER BY metric",
        [ASSIGNED, RATE],
        NOW // SECOND_NS,
    )
    assert found == [(ASSIGNED, 15.0, 3, 6.0, 3.0, 10.0), (RATE, 14.0, 3, 6.0, 3.0, 10.0)]


@pytest.mark.full
def test_an_average_is_within_the_extremes(roll: Roll, query: Query, folder: Path) -> None:
    """Also after rounding, and in rows of versions that did not keep the pushed values' sum."""
    tenths = Values(gauges={ASSIGNED: 0.1, RATE: 0.1})
    spool(
        folder,
        "one",
        [push(client, NOW + second * SECOND_NS, tenths) for client in (ALICE, BOB) for second in (0, 20, 40)],
    )
    roll()
    assert query("SELECT count(*) FROM metric_1m WHERE avg IS NOT NULL") != [(0,)]
    assert query("SELECT metric, avg FROM metric_1m WHERE NOT avg BETWEEN min AND max") == []
    query("UPDATE rollup_1m SET pushed_sum = NULL")
    assert query("SELECT DISTINCT avg FROM metric_1m WHERE metric = ANY (%s) AND points > 0", [ASSIGNED]) == [
        (0.1,)
    ]
