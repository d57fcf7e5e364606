"""Pushes without metrics, from the real core through files to the roll-up."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plugins.spool_files.columns import record_batch
from tests.integration.rollup.conftest import Query, Roll
from tests.integration.rollup.pushes import MINUTE_NS, SECOND_NS
from tests.integration.rollup.test_rollup import NOW
from tests.unit.telemetry.parts import JAVA_PRODUCER, Client, payload, subscription


@pytest.mark.full
def test_empty_pushes_say_that_a_client_lives_and_that_it_ends(
    roll: Roll, folder: Path, query: Query
) -> None:
    client = Client(subscription(interval_ms=60_000))
    client.get(0)
    contents = [payload(JAVA_PRODUCER), b"", b"", b""]
    outcomes = [
        client.push(
            60 * minute,
            content,
            terminating=minute == 3,
            received_at_ns=NOW + minute * MINUTE_NS,
        )
        for minute, content in enumerate(contents)
    ]
    pushes = [outcome.push for outcome in outcomes if outcome.push is not None]
    folder.mkdir()
    shown = "SELECT state, extract(epoch FROM last_seen)::bigint FROM client"
    for minute, expected in ((2, "live"), (3, "left")):
        rows = record_batch(pushes[: minute + 1] if minute == 2 else pushes[3:])
        pq.write_table(pa.Table.from_batches([rows]), folder / f"{minute}.parquet")
        roll()
        assert query(shown) == [(expected, (NOW + minute * MINUTE_NS) // SECOND_NS)]
    assert query("SELECT sum(pushes), sum(repeats), sum(dead_letters) FROM ledger") == [(4, 0, 0)]
    assert query("SELECT client_id, sum(pushes) FROM client_1m GROUP BY 1") == [("java-producer", 4)]
