"""The driver is killed repeatedly, mostly between both commits."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.integration.rollup.conftest import Query
from tests.integration.rollup.pushes import CONNECTIONS, MINUTE_NS, Client, Spooled, Values, push, spool
from tests.integration.rollup.test_cli import KAFKA_TELEMETRY, SPARK_S
from tests.testbed.process import ChildProcess, in_group, wait_until

PUSHES = 5
NOW = (time.time_ns() // MINUTE_NS - 60) * MINUTE_NS


@pytest.mark.parametrize(("kills", "files"), [(1, 4), pytest.param(3, 24, marks=pytest.mark.full)])
@pytest.mark.timeout(3600)
@pytest.mark.full
def test_a_killed_driver_loses_and_doubles_nothing(
    tmp_path: Path, database: str, query: Query, kills: int, files: int
) -> None:
    chosen = random.Random(20260131)
    clients = [Client(instance=letter * 22, client_id=letter) for letter in "ABC"]
    truth = dict.fromkeys("ABC", 0)
    for number in range(files):
        pushes: list[Spooled] = []
        for _ in range(PUSHES):
            client, value = chosen.choice(clients), chosen.randrange(1000)
            at = NOW + number * MINUTE_NS + chosen.randrange(MINUTE_NS)
            pushes.append(push(client, at, Values(sums={CONNECTIONS: value})))
            truth[client.client_id] += value
        spool(tmp_path / "telemetry", f"{number:03}", [*pushes, pushes[0]])
    (tmp_path / "rollup.yaml").write_text("trigger_seconds: 0.1\nspool_files: {max_files: 1}\n")

    def started(*more: str) -> ChildProcess:
        arguments = ("--path", "telemetry", "--config", "rollup.yaml", "--checkpoint", "checkpoint", *more)
        return ChildProcess(
            "rollup",
            [KAFKA_TELEMETRY, "rollup", "run", *arguments],
            log=tmp_path / "rollup.log",
            cwd=tmp_path,
            env={"KAFKA_TELEMETRY_ROLLUP_POSTGRES": database},
        )

    for number in range(kills):
        running = started()
        before = committed(query)
        target = before + chosen.randint(1, 4)
        wait_until(lambda: committed(query) >= target, timeout_s=SPARK_S, what="a batch", every_s=0.01)  # noqa: B023
        # At once, or anywhere in the next batch.
        time.sleep(0.0 if number == 0 else chosen.uniform(0, 0.5))
        os.kill(running.pid, signal.SIGKILL)
        assert running.wait(10) == -signal.SIGKILL
        wait_until(lambda: not in_group(running.pid), timeout_s=15, what="the JVM's end")  # noqa: B023
    running = started("--once")
    assert running.wait(SPARK_S) == 0, running.log_tail()
    assert (
        dict(
            query(
                "SELECT client_id, sum(sum)::bigint FROM metric_1m WHERE metric = %s GROUP BY 1", CONNECTIONS
            )
        )
        == truth
    )
    assert query(
        "SELECT sum(points), (SELECT sum(pushes) FROM client_1m) FROM metric_1m WHERE metric = %s",
        CONNECTIONS,
    ) == [(files * PUSHES, files * PUSHES)]
    assert query("SELECT sum(pushes), sum(repeats) FROM ledger") == [(files * PUSHES, files)]


def committed(query: Query) -> int:
    ((there,),) = query("SELECT to_regclass('telemetry.ledger') IS NOT NULL")
    return int(query("SELECT count(*) FROM ledger")[0][0]) if there else 0
