"""The test kit as a process, with a real client: the report, the exit status, TLS and SASL."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.certificates import CertificateAuthority
from tests.testbed.clients import LibrdkafkaClient, Mode
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import ChildProcess, wait_until
from tests.testbed.security import Login, Security

ROOT = Path(__file__).parents[2]
#: Two pushes are enough here; the default script takes a minute.
SHORT = """\
subscription: {interval_ms: 500}
steps:
  - {name: first, pushes: 1}
  - {name: throttled, error: THROTTLING_QUOTA_EXCEEDED}
  - {name: lost, disconnect: answered}
  - {name: rest}
"""


class Running:
    """A test kit that listens on a port of the system's choice."""

    def __init__(self, folder: Path, *arguments: str | Path) -> None:
        script = folder / "script.yaml"
        script.write_text(SHORT)
        self._output = folder / "report.json"
        self.process = ChildProcess(
            "testkit",
            [
                ROOT / ".venv" / "bin" / "kafka-telemetry",
                *("testkit", "--bind", f"{LOOPBACK}:0", "--bind", f"{LOOPBACK}:0"),
                *("--report", "json", "--script", script, *arguments),
            ],
            log=folder / "testkit.log",
            output=self._output,
            cwd=ROOT,
        )
        wait_until(
            lambda: "listens on" in self.process.log_text(), timeout_s=120, what="the test kit to listen"
        )
        found = re.search(r"listens on (\S+), ", self.process.log_text())
        assert found
        self.bootstrap = found[1]

    def report(self) -> tuple[int, dict[str, Any]]:
        self.process.signal(signal.SIGTERM)
        status = self.process.wait(60)
        report: dict[str, Any] = json.loads(self._output.read_text())
        return status, report


@contextmanager
def running(folder: Path, *arguments: str | Path) -> Iterator[Running]:
    started = Running(folder, *arguments)
    try:
        yield started
    finally:
        started.process.kill()


def checks(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    (client,) = report["clients"]
    return {check["id"]: check for check in client["checks"]}


def test_a_real_client_is_judged_over_tls_with_a_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "KAFKA_TELEMETRY_TESTKIT_PASSWORD", "wonder")
    authority = CertificateAuthority()
    server = authority.issue().write(tmp_path, "server")
    ca = tmp_path / "ca.pem"
    ca.write_text(authority.ca_pem)
    security = Security(login=Login(mechanism="PLAIN", user="alice", password="wonder"), ca=ca)
    tls = ("--tls-certificate", server.chain, "--tls-key", server.key)
    with running(tmp_path, "--sasl-user", "alice", "--clients", "1", *tls) as kit:
        with LibrdkafkaClient(Mode.PRODUCER, bootstrap=kit.bootstrap, topic="t", security=security) as client:
            client.wait_for_records(100)  # five seconds
        status, report = kit.report()
    found = checks(report)
    failed = [f"{c['id']}: {c['seen']}" for c in found.values() if c["passed"] is False]
    assert [line for line in failed if found[line[:6]]["severity"] == "must"] == []
    assert status == 0
    assert report["clients"][0]["software"].startswith("confluent-kafka-python ")
    for number in ("TK-001", "TK-005", "TK-032", "TK-037", "TK-040", "TK-053"):
        assert found[number]["passed"], found[number]


@pytest.mark.full
def test_a_client_without_telemetry_fails_the_run(tmp_path: Path) -> None:
    with running(tmp_path) as kit:
        properties = {"enable.metrics.push": "false"}
        with LibrdkafkaClient(
            Mode.PRODUCER, bootstrap=kit.bootstrap, topic="t", properties=properties
        ) as client:
            client.wait_for_records(220)  # eleven seconds
        status, report = kit.report()
    assert status == 1
    assert checks(report)["TK-001"]["passed"] is False


@pytest.mark.full
@pytest.mark.parametrize(("error", "status"), [("THROTTLING_QUOTA_EXCEEDED", 0), ("INVALID_RECORD", 3)])
def test_the_github_action_runs_a_command(tmp_path: Path, error: str, status: int) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(f"steps: [{{name: first}}, {{name: refused, error: {error}}}]")
    summary, outputs = tmp_path / "summary.md", tmp_path / "outputs"
    ran = subprocess.run(
        ["bash", ROOT / ".github" / "actions" / "testkit" / "run.sh"],
        cwd=ROOT,
        env={
            **os.environ,
            "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
            "COMMAND": f"SECONDS=6 python examples/testkit/client.py; exit {status}",
            "SCRIPT": str(script),
            "CLIENTS": "1",
            "INSTALL": "",
            "PORT": str(free_port()),
            "RUNNER_TEMP": str(tmp_path),
            "GITHUB_STEP_SUMMARY": str(summary),
            "GITHUB_OUTPUT": str(outputs),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == status, ran.stdout + ran.stderr
    assert "0 of " in summary.read_text()
    written = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
    assert json.loads(Path(written["badge"]).read_text())["color"] == "brightgreen"


@pytest.mark.full
def test_no_client_fails_only_if_one_is_demanded(tmp_path: Path) -> None:
    for name, arguments, expected in (("free", (), 0), ("demanded", ("--clients", "1"), 1)):
        folder = tmp_path / name
        folder.mkdir()
        with running(folder, *arguments, "--seconds", "0.1") as kit:
            assert kit.process.wait(60) == expected
