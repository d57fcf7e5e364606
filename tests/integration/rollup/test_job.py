"""What a job makes of what it can't read, and of what can't be helped by another try."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from spark_streaming.job import JobError
from tests.integration.rollup.conftest import Query, Roll
from tests.integration.rollup.pushes import ASSIGNED, MINUTE_NS, Client, Spooled, Values, push, spool

ORDERS = Client(instance="AAAAAAAAAAAAAAAAAAAAAA")
PAYMENTS = Client(instance="BBBBBBBBBBBBBBBBBBBBBB", client_id="payments")
NOW = (time.time_ns() // MINUTE_NS - 30) * MINUTE_NS


def at(minute: int, client: Client = ORDERS) -> Spooled:
    return push(client, NOW + minute * MINUTE_NS, Values(gauges={ASSIGNED: 3.0}))


def test_bytes_of_another_version_end_a_batch_and_a_tick(roll: Roll, query: Query, folder: Path) -> None:
    spool(folder, "one", [at(0), at(1, PAYMENTS)])
    roll()
    query("UPDATE contribution SET packed = '\\x09aabbcc'")
    spool(folder, "two", [push(ORDERS, NOW + 1, Values(gauges={ASSIGNED: 4.0}))])
    with pytest.raises(JobError, match=r"contribution\.packed: 4 bytes .* `kafka-telemetry rollup rebuild`"):
        roll()
    query("DELETE FROM contribution")
    spool(folder, "three", [at(3)])
    query("UPDATE client_state SET counts = '\\x09aabbcc' WHERE client_instance_id = %s", PAYMENTS.instance)
    with pytest.raises(JobError, match=r"contribution\.packed: 4 bytes .* `kafka-telemetry rollup rebuild`"):
        roll()
    assert query("SELECT sum(pushes) FROM ledger") == [(4,)]
