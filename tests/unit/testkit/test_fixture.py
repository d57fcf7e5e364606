"""The test kit under its public name: fixture, thread, waits, assertions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka_client_telemetry.testkit import ScriptError, TestKit, parse_script

SCRIPT = parse_script(
    "subscription: {interval_ms: 100}\nsteps: [{name: first}, {name: second}]", "the test's script"
)


def test_a_client_is_judged_in_the_same_process() -> None:
    with TestKit(SCRIPT) as kit:
        with pytest.raises(AssertionError, match="no client was judged"):
            kit.assert_passed()
        producer = Producer({"bootstrap.servers": kit.bootstrap_servers, "client.id": "mine"})
        producer.produce("t", b"value")
        kit.wait_for_step("second")
        producer.flush()
        producer.close()
        kit.assert_passed("mine")
        (client,) = kit.report()["clients"]
        assert client["client_id"] == "mine"
        with pytest.raises(AssertionError, match="TK-076 should"):
            kit.assert_passed(severity="should")
        assert kit.judge("another") == []


def test_a_wait_names_what_was_met() -> None:
    with TestKit(SCRIPT, brokers=1) as kit:
        with pytest.raises(TimeoutError, match="no client met step 'second' in 0 s; met: none"):
            kit.wait_for_step(timeout_s=0)
        with pytest.raises(ValueError, match="its steps are first, second"):
            kit.wait_for_step("third")


def test_a_wrong_script_is_an_error() -> None:
    with pytest.raises(ScriptError):
        TestKit("/nonexistent.yaml")


@pytest.mark.full
def test_the_fixture_comes_with_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["kafka_client_telemetry.testkit"]\n')
    (tmp_path / "test_it.py").write_text(
        "def test_it(kafka_testkit):\n    assert kafka_testkit.bootstrap_servers.count(':') == 2\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", tmp_path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
