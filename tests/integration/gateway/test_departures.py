"""A client that closes without a terminating push, through the sidecar into its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.integration.gateway.support import (
    GatewaySidecar,
    Raw,
    config,
    error_of_push,
    get_subscriptions,
    push,
    read_get,
)
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import ScriptedBroker


def rows(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("date=*/hour=*/*.parquet"))
    return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]


@pytest.mark.full
def test_the_end_of_a_clients_connection_follows_its_push(tmp_path: Path) -> None:
    """It takes a minute, because a client that is back within it was never gone."""
    folder = tmp_path / "spool"
    plugin = {"type": "spool_files", "path": str(folder), "roll_seconds": 1}
    with ScriptedBroker() as broker, GatewaySidecar(config(broker.port, plugins=[plugin])) as sidecar:
        sidecar.put_subscription("all", ["*"], 1000)
        with Raw(sidecar.port()) as raw:
            _, instance, subscription = read_get(raw.exchange(get_subscriptions()))
            assert error_of_push(raw.exchange(push(instance, subscription))) == 0
        sidecar.wait_for_no_connections()

        def ended() -> bool:
            # A scrape looks for clients that are gone.
            sidecar.http.get("/metrics")
            return any(row["sequence"] == 0 for row in rows(folder))

        wait_until(ended, timeout_s=600, what="the end of the client", every_s=1)
        pushed, end = sorted(rows(folder), key=lambda row: -row["sequence"])
    assert (pushed["sequence"], end["sequence"]) == (1, 0)
    assert (end["terminating"], end["otlp"]) == (False, b"")
    assert end["received_at_ns"] >= pushed["received_at_ns"]
    same = ("client_instance_id", "client_id", "client_source_port", "principal", "push_interval_ms")
    assert [end[name] for name in same] == [pushed[name] for name in same]
