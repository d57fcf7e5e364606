"""Whether a client is silent depends on how far pushes were read, not on the time of day."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_streaming.job import Job
from spark_streaming.postgres import Store
from spark_streaming.settings import RollupSettings
from tests.integration.rollup.conftest import Query, Roll
from tests.integration.rollup.pushes import MINUTE_NS, SECOND_NS, Client, Spooled, push, spool

FAST = Client(instance="AAAAAAAAAAAAAAAAAAAAAA", client_id="fast")
SLOW = Client(instance="BBBBBBBBBBBBBBBBBBBBBB", client_id="slow")
NOW = (time.time_ns() // MINUTE_NS - 30) * MINUTE_NS
STATES = "SELECT client_id, state FROM client ORDER BY client_id"
INTERVAL_NS = 5 * SECOND_NS


def fast(first: int, last: int, client: Client = FAST) -> list[Spooled]:
    return [push(client, NOW + n * INTERVAL_NS, push_interval_ms=5_000) for n in range(first, last)]


@pytest.mark.full
def test_stopping_the_job_makes_no_client_silent(
    roll: Roll, query: Query, folder: Path, store: Store
) -> None:
    """The pushes are half an hour old, and nothing was read since."""
    spool(folder, "one", fast(0, 4))
    roll()
    assert query(STATES) == [("fast", "live")]
    assert store.status().clients == {"live": 1, "silent": 0, "disconnected": 0, "left": 0}
    # Pushes of another client were read for more than three intervals.
    spool(folder, "two", fast(4, 9, SLOW))
    roll()
    assert query(STATES) == [("fast", "silent"), ("slow", "live")]
    # It comes back.
    spool(folder, "three", fast(9, 10))
    roll()
    assert query(STATES) == [("fast", "live"), ("slow", "live")]


def gone(at_ns: int, client: Client = FAST) -> Spooled:
    """Return the end of a client's connection, as the receiver's files have it."""
    return Spooled(
        client=client,
        received_at_ns=at_ns,
        otlp=b"",
        push_id=f"gone {at_ns}",
        sequence=0,
        push_interval_ms=5_000,
    )


@pytest.mark.full
def test_a_client_whose_connection_ended_is_disconnected_and_not_silent(
    roll: Roll, query: Query, folder: Path
) -> None:
    spool(folder, "one", fast(0, 4))
    # An end before the last push says nothing. That of an unknown client is left out.
    spool(folder, "two", [gone(NOW + SECOND_NS), gone(NOW, SLOW)])
    spool(folder, "three", [*fast(4, 9, SLOW)])
    roll()
    assert query(STATES) == [("fast", "silent"), ("slow", "live")]
    ended = NOW + 4 * INTERVAL_NS
    # A file with nothing else, and an older end later.
    spool(folder, "four", [gone(ended)])
    roll()
    spool(folder, "five", [gone(NOW + 2 * SECOND_NS)])
    roll()
    assert query(STATES) == [("fast", "disconnected"), ("slow", "live")]
    assert query(
        "SELECT extract(epoch FROM disconnected_at)::bigint FROM client WHERE client_id = 'fast'"
    ) == [(ended // SECOND_NS,)]
    # It is no push.
    assert query("SELECT sum(pushes), sum(repeats), sum(dead_letters) FROM ledger") == [(9, 0, 0)]
    assert query("SELECT sum(pushes) FROM client_1m WHERE client_id = 'fast'") == [(4,)]
    spool(folder, "six", fast(9, 10))
    roll()
    assert query(STATES) == [("fast", "live"), ("slow", "live")]


@pytest.mark.parametrize("caught_up", [False, True])
def test_time_is_as_far_as_pushes_were_read(
    spark: SparkSession, store: Store, settings: Callable[..., RollupSettings], *, caught_up: bool
) -> None:
    """Receivers write late by up to the grace period, so the newest push is no measure alone."""
    job = Job(spark, store, settings(grace_seconds=60), threading.Event())
    assert job._progress(NOW) == (0, None)
    later = NOW + 3600 * SECOND_NS
    job._newest_ns = NOW
    assert job._progress(later) == (NOW // MINUTE_NS - 2, NOW - 60 * SECOND_NS)
    # A wrong clock at a sidecar makes no client silent.
    job._newest_ns = later + 999 * SECOND_NS
    assert job._progress(later).read_until_ns == later - 60 * SECOND_NS
    job._newest_ns, job._caught_up = NOW, caught_up
    expected = later if caught_up else NOW
    assert job._progress(later).read_until_ns == expected - 60 * SECOND_NS


def test_the_time_read_until_does_not_decrease(store: Store, query: Query) -> None:
    store.migrate()
    for time_ns, expected in (
        (NOW, NOW),
        (NOW - SECOND_NS, NOW),
        (None, NOW),
        (NOW + SECOND_NS, NOW + SECOND_NS),
    ):
        with store.maintenance(time.time_ns()) as maintenance:
            maintenance.read_until(time_ns, ended=False)
        assert query("SELECT extract(epoch FROM read_until)::bigint FROM progress") == [
            (expected // SECOND_NS,)
        ]
        found = store.status().read_until
        assert found is not None
        assert found.timestamp() == expected // SECOND_NS
