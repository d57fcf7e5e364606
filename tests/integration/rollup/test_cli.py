"""The command as users run it: in a process of its own, from an empty folder."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
import structlog
import typer.main
from typer.testing import CliRunner

from spark_streaming.cli import app
from spark_streaming.embedded import EmbeddedPostgres
from spark_streaming.postgres.database import SERIES_LOCK
from tests.integration.rollup.conftest import Query
from tests.integration.rollup.pushes import CONNECTIONS, MINUTE_NS, Client, Values, push, spool
from tests.testbed.process import ChildProcess, in_group, wait_until

KAFKA_TELEMETRY = Path(sys.executable).with_name("kafka-telemetry")
ORDERS = Client(instance="AAAAAAAAAAAAAAAAAAAAAA")
NOW = (time.time_ns() // MINUTE_NS - 10) * MINUTE_NS
SPARK_S = 900.0


class Rollup:
    """``kafka-telemetry rollup`` in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[ChildProcess] = []

    def start(self, *arguments: str | Path, **env: str) -> ChildProcess:
        """Start a command; its output goes to out.txt, its errors to err.txt."""
        process = ChildProcess(
            "rollup",
            [KAFKA_TELEMETRY, "rollup", *arguments],
            log=self._folder / "err.txt",
            output=self._folder / "out.txt",
            cwd=self._folder,
            env=env,
        )
        self._started.append(process)
        return process

    def run(self, *arguments: str | Path, **env: str) -> tuple[int, str, str]:
        """Run a command to its end: exit status, standard output and error."""
        for name in ("err.txt", "out.txt"):
            (self._folder / name).unlink(missing_ok=True)
        status = self.start(*arguments, **env).wait(SPARK_S)
        return status, (self._folder / "out.txt").read_text(), (self._folder / "err.txt").read_text()

    def kill(self) -> None:
        """End what still runs."""
        for process in self._started:
            process.kill()


@pytest.fixture(autouse=True)
def log_of_its_own() -> Iterator[None]:
    """Reset structlog, because the runner closes the command's stderr."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def rollup(tmp_path: Path) -> Iterator[Rollup]:
    """The command in the test's folder."""
    started = Rollup(tmp_path)
    yield started
    started.kill()


# Starts Spark; in the gate, test_crash.py does so with the same command.
@pytest.mark.full
def test_one_command_is_enough(rollup: Rollup, tmp_path: Path) -> None:
    spool(tmp_path / "telemetry", "one", [push(ORDERS, NOW + n * MINUTE_NS) for n in range(3)])
    status, out, err = rollup.run("run", "--source", "spool_files", "--path", "./telemetry", "--once")
    assert status == 0, err
    assert "PostgreSQL runs until this command ends: postgresql://postgres@/postgres?host=" in err
    assert "pushes=3" in err
    assert not out
    assert (tmp_path / "rollup" / "checkpoint").is_dir()
    with EmbeddedPostgres(tmp_path / "rollup" / "postgres"):
        status, out, err = rollup.run("status", "--json", "--postgres", "embedded:rollup")
    assert status == 0, err
    found = json.loads(out)
    assert (found["pushes"], found["repeats"], found["dead_letters"]) == (3, 0, 0)


# Starts Spark twice.
@pytest.mark.full
@pytest.mark.parametrize("checkpoint", [(), ("--checkpoint", "checkpoint")])
def test_a_rebuild_is_run_as_the_docs_say(
    rollup: Rollup, tmp_path: Path, database: str, query: Query, checkpoint: tuple[str, ...]
) -> None:
    spool(tmp_path / "telemetry", "one", [push(ORDERS, NOW + n * MINUTE_NS) for n in range(3)])
    source = ("--source", "spool_files", "--path", "./telemetry", "--postgres", database)
    status, _, err = rollup.run("run", *source, "--once", "--checkpoint", "checkpoint")
    assert status == 0, err
    before = query("SELECT bucket, metric, sum FROM metric_1m ORDER BY 1, 2")
    assert before
    status, out, err = rollup.run("rebuild", "--since", "2026-01-31T00:00Z", *source, *checkpoint)
    assert status == 0, err
    assert out.startswith("rebuilt since ")
    assert query("SELECT bucket, metric, sum FROM metric_1m ORDER BY 1, 2") == before


@pytest.mark.full
def test_a_metrics_port_that_is_taken_ends_the_command_at_once(rollup: Rollup, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        status, out, err = rollup.run("run", "--metrics-bind", bind, "--path", tmp_path / "telemetry")
    assert (status, out) == (1, "")
    assert err.startswith(f"kafka-telemetry: metrics.bind: cannot listen on {bind}: ")
    assert not (tmp_path / "rollup").exists()


# Starts Spark; in the gate, test_crash.py does so with the same command.
@pytest.mark.full
def test_run_ends_on_sigterm_and_leaves_no_process(
    rollup: Rollup, tmp_path: Path, database: str, query: Query
) -> None:
    (tmp_path / "rollup.yaml").write_text("trigger_seconds: 0.2\n")
    running = rollup.start(
        *("run", "--source", "spool_files", "--path", tmp_path / "telemetry", "--config", "rollup.yaml"),
        *("--checkpoint", tmp_path / "checkpoint", "--metrics-bind", "127.0.0.1:0"),
        KAFKA_TELEMETRY_ROLLUP_POSTGRES=database,
    )
    wait_until(lambda: (tmp_path / "telemetry").is_dir(), timeout_s=SPARK_S, what="the folder")
    pushes = "SELECT count(*) FROM client_1m WHERE client_instance_id = %s"

    def counted() -> int:
        return int(query(pushes, ORDERS.instance)[0][0])

    for number in range(2):
        spool(tmp_path / "telemetry", f"file-{number}", [push(ORDERS, NOW + number * MINUTE_NS)])
        wait_until(lambda: counted() > number, timeout_s=SPARK_S, what="the push")  # noqa: B023 -- called at once
    rows = query(
        "SELECT metric, client_id, client_software_name, client_software_version, principal, group_id, "
        "points, sum, min, max FROM metric_1m WHERE metric = %s ORDER BY bucket",
        CONNECTIONS,
    )
    assert (
        rows == [(CONNECTIONS, "orders", ORDERS.name, ORDERS.version, ORDERS.principal, None, 1, 1, 1, 1)] * 2
    )
    assert any("java" in name for name in in_group(running.pid))
    query(
        "INSERT INTO finding (kind, severity, client_id, began_at, first_seen, last_seen, summary, evidence) "
        "VALUES ('throttled', 'warning', 'orders', now(), now(), now(), 'by this test', '{}')"
    )
    served = re.search(r"metrics: (http://127\.0\.0\.1:\d+)/metrics", running.log_text())
    assert served is not None
    answer = httpx.get(f"{served[1]}/v1/findings", params={"client_id": "ord.*"}, trust_env=False, timeout=60)
    assert [finding["summary"] for finding in answer.json()["findings"]] == ["by this test"]
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with psycopg.connect(database) as other:
        # In the middle of a batch: its task waits to add a series.
        other.execute("SELECT pg_advisory_xact_lock(%s)", [SERIES_LOCK])
        new = Values(sums={f"{CONNECTIONS}.new": 1})
        spool(tmp_path / "telemetry", "file-2", [push(ORDERS, NOW + 2 * MINUTE_NS, new)])
        wait_until(lambda: query(waiting) == [(1,)], timeout_s=SPARK_S, what="a task that waits")
        running.signal(signal.SIGTERM)
        assert running.wait(30) == 0, running.log_tail()
    assert in_group(running.pid) == []
    assert "Traceback" not in running.log_text()
    # Spark searches the text of an error with a regular expression that takes a frame of the stack
    # for each character.
    assert "StackOverflowError" not in running.log_text()


# Starts Spark; in the gate, test_crash.py does so with the same command.
@pytest.mark.full
def test_run_ends_when_spark_ends(rollup: Rollup, tmp_path: Path, database: str) -> None:
    (tmp_path / "rollup.yaml").write_text("trigger_seconds: 0.2\n")
    spool(tmp_path / "telemetry", "one", [push(ORDERS, NOW)])
    running = rollup.start(
        *("run", "--path", tmp_path / "telemetry", "--config", "rollup.yaml"),
        *("--checkpoint", tmp_path / "checkpoint"),
        KAFKA_TELEMETRY_ROLLUP_POSTGRES=database,
    )
    wait_until(
        lambda: "batch=0" in (tmp_path / "err.txt").read_text(), timeout_s=SPARK_S, what="the first batch"
    )
    (java,) = (name for name in in_group(running.pid) if "java" in name)
    os.kill(int(java.split()[0]), signal.SIGKILL)
    assert running.wait(30) == 1, running.log_tail()
    expected = "kafka-telemetry: Spark has ended or was stopped: start the job again"
    assert running.log_text().splitlines()[-1] == expected


# Starts Spark; in the gate, test_log_writer.py logs to such a disk as the job does.
@pytest.mark.full
def test_a_full_disk_of_the_log_costs_no_push(
    rollup: Rollup, tmp_path: Path, database: str, query: Query
) -> None:
    (tmp_path / "err.txt").symlink_to("/dev/full")
    spool(tmp_path / "telemetry", "one", [push(ORDERS, NOW)])
    running = rollup.start(
        *("run", "--once", "--path", tmp_path / "telemetry", "--checkpoint", tmp_path / "checkpoint"),
        KAFKA_TELEMETRY_ROLLUP_POSTGRES=database,
    )
    assert running.wait(SPARK_S) == 0
    assert query("SELECT sum(pushes) FROM telemetry.ledger") == [(1,)]


def test_migrate_prints_the_applied_migrations(database: str) -> None:
    first = CliRunner().invoke(app, ["migrate", "--postgres", database])
    assert (first.exit_code, first.stdout[:25]) == (0, "migrations applied: 0001_"), first.stderr
    second = CliRunner().invoke(app, ["migrate", "--postgres", database])
    assert second.stdout == "migrations applied: none, the schema is up to date\n"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["run", "--postgres", "postgresql://u:hunter2@h/d"], 2, "checkpoint: required unless PostgreSQL"),
        (["run", "--source", "kafka"], 2, "kafka.bootstrap_servers: required with source kafka"),
        (["run", "--postgres", "hunter2"], 2, "postgres: expected postgresql://user@host/database, or"),
        (["run", "--config", "none.yaml"], 2, "none.yaml: cannot be read: No such file"),
        (["status", "--postgres-file", "none"], 2, "the secret's file none cannot be read: No such file"),
        (
            ["status", "--postgres", "postgresql://u:hunter2@127.0.0.1:1/d"],
            1,
            "PostgreSQL: connection failed",
        ),
        (
            ["run", "--once", "--path", "./nope", "--checkpoint", "c"],
            2,
            "spool_files.path: nope is not a folder; give the folder that the receiver's plugin spool_files",
        ),
        (["rebuild", "--since", "2026-01-31", "--path", "./nope"], 2, "spool_files.path: nope is not a"),
        (["rebuild", "--since", "yesterday"], 2, "'yesterday': expected a time such as 2026-01-31T00:00Z"),
    ],
)
def test_a_usage_error_is_one_line_with_the_fix(arguments: list[str], status: int, message: str) -> None:
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == status
    assert message in " ".join(found.stderr.split())
    assert "hunter2" not in found.output
    assert not Path("nope").exists()
    assert not Path("rollup").exists()


def test_a_rebuild_takes_every_option_of_a_run_that_goes_on() -> None:
    options = {
        name: {text for parameter in command.params for text in parameter.opts}
        for name, command in typer.main.get_group(app).commands.items()
    }
    assert options["run"] - options["rebuild"] == {"--once"}


def test_the_status_is_readable(database: str) -> None:
    batch = {"query_id": "f6a1", "batch_id": 3, "newest_received_at": "2026-01-31T13:05:42Z"}
    assert CliRunner().invoke(app, ["migrate", "--postgres", database]).exit_code == 0
    with psycopg.connect(database) as connection:
        connection.execute(
            "INSERT INTO telemetry.ledger (query_id, batch_id, pushes, newest_received_at) "
            "VALUES (%(query_id)s, %(batch_id)s, 1, %(newest_received_at)s)",
            batch,
        )
    found = CliRunner().invoke(app, ["status", "--postgres", database])
    assert found.exit_code == 0, found.stderr
    lines = [" ".join(line.split()) for line in found.stdout.splitlines()]
    assert {"pushes 1", "clients 0 live, 0 silent, 0 disconnected, 0 left", "newest bucket -"} <= set(lines)
    at = lines.index("query f6a1")
    assert lines[at + 1] == "batch id 3"
    assert lines[at + 2].startswith("committed at 20")
    assert lines[at + 3] == "newest received at 2026-01-31T13:05:42Z"
    # Values for programs and Python objects are for --json only.
    assert not set("({'") & set(found.stdout)
    as_json = json.loads(CliRunner().invoke(app, ["status", "--json", "--postgres", database]).stdout)
    assert as_json["queries"][0]["batch_id"] == 3


def test_missing_java_is_reported_with_the_package_to_install(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    found = CliRunner().invoke(app, ["run", "--once", "--postgres", database, "--checkpoint", "none"])
    assert found.exit_code == 1
    assert (
        "Spark needs Java, which was not found in JAVA_HOME=/nowhere: install Java 17 or newer"
        in found.stderr
    )
