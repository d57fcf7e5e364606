"""status, listeners and events: the screen of an operator, against a real REST server."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from receiver.brokers.listener_broker import KnownBroker
from receiver.brokers.listener_state import ListenerState
from receiver.host.host import PluginHost
from receiver.metrics import ProcessNumbers
from receiver.settings.listeners import ListenerSettings
from receiver.telemetry.identity import Broker
from receiver.wire.uuid import uuid_to_text
from tests.unit.api.conftest import ask, instance_id
from tests.unit.cli.conftest import Run, Sidecar
from tests.unit.host.support import Single, hosted, push, took


def process(name: str) -> ProcessNumbers:
    return ProcessNumbers(
        process=name, cpu_s=1.0, resident_bytes=50_000_000, loop_lag_s=0.0, log_lines_dropped=0
    )


def listener(name: str, *, advertised: str | None = None, proven: bool = True) -> ListenerState:
    settings = ListenerSettings.model_validate(
        {"name": name, "bind": "0.0.0.0:19092", "upstream": "127.0.0.1:29092"}
    )
    known = KnownBroker(broker=Broker(id=3, cluster_id="c"), proven=proven, advertised=advertised)
    return ListenerState(settings=settings, known=known, connections=7)


@pytest.fixture
def busy(sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Run) -> Sidecar:
    """A sidecar with something of everything, and something wrong with each."""
    monkeypatch.setenv("KAFKA_TELEMETRY_URL", sidecar.url)
    monkeypatch.delenv("COLUMNS", raising=False)
    sidecar.processes = [process("core"), process("relay-1")]
    sidecar.certificates = [("SECURE", "client", 2e9), ("rest", "client", 1.9e9)]
    sidecar.listeners = [listener("GOOD"), listener("PASSED", advertised="kafka-3.example:29092")]
    sidecar.warnings = ["the broker is elsewhere: " + "advice " * 30]
    host = PluginHost([hosted(Single(took), name="collector"), hosted(Single(took), name="a-lake")])
    host.offer(push(1))
    good, failing = host.statistics()
    sidecar.plugins = [good, replace(failing, consecutive_failures=2, last_error="UNAVAILABLE: " + "x" * 90)]
    run("subscriptions", "put", "some", "-m", "*", "--match", "client_id=team-x-.*")
    run("subscriptions", "put", "unmatched", "-m", "*", "--match", "client_id=nobody")
    for number in range(2, 6):
        ask(sidecar.telemetry, number, 1000.0, client_id=f"team-x-{number}")
    ask(sidecar.telemetry, 9, 1000.0, client_id="other")
    # Nobody has asked since.
    run("subscriptions", "put", "late", "-m", "*", "--match", "client_id=other")
    return sidecar


def test_the_screen(run: Run, busy: Sidecar) -> None:
    result = run("status")
    lines = result.stdout.splitlines()
    assert result.exit_code == 3, result.stderr
    assert max(map(len, lines)) <= 80
    assert lines[:3] == [
        "receiver       9.9.9, accepts clients",
        "processes      core and 2 of 2 relays, 100 MB of memory, 0 restarts",
        "certificates   2 certificates, the first ends 2030-03-17T17:46:40Z (rest)",
    ]
    text = " ".join(result.stdout.split())
    assert "5 client instances (4 waiting, 1 unsubscribed), 0 connections" in text
    assert "subscriptions 3 active, kept in sqlite; no known client matches unmatched" in text
    listeners = lines[lines.index("listeners:") + 1 :]
    assert [line.split()[0] for line in listeners[1:3]] == ["PASSED", "GOOD"]
    # The warnings say what is wrong with them.
    assert "PASSED:" not in text
    destinations = lines[lines.index("destinations:") + 1 :]
    assert [line.split()[0] for line in destinations[1:4]] == ["a-lake", "collector", "a-lake:"]
    assert lines[lines.index("warnings:") + 1].startswith("- the broker is elsewhere")


def test_the_screen_for_programs(run: Run, busy: Sidecar) -> None:
    result = run("status", "-o", "json")
    found = json.loads(result.stdout)
    assert result.exit_code == 3
    assert (found["problem"], found["relays"]) == (None, {"running": 2, "expected": 2})
    assert (found["clients"]["known"], found["clients"]["disconnected"]) == (5, 0)
    assert found["clients"]["by_state"] == {"waiting": 4, "unsubscribed": 1}
    assert found["subscriptions"]["unmatched"] == ["unmatched"]
    assert [item["listener"] for item in found["certificates"]] == ["rest", "SECURE"]


def test_the_exit_status(run: Run, busy: Sidecar) -> None:
    busy.warnings = []
    assert run("status").exit_code == 0
    busy.not_ready_because = "1 of 2 relays are running"
    result = run("status")
    assert result.exit_code == 1
    assert "not ready: 1 of 2 relays are running" in result.stdout


def test_every_table_fits_80_columns(run: Run, busy: Sidecar) -> None:
    ask(busy.telemetry, 7, 1000.0, client_id="a-very-long-client-id-" * 4, client_software_name="s" * 60)
    long = "m" * 40
    run(
        "subscriptions",
        "put",
        "long" * 8,
        *(f"--metric={long}{n}" for n in range(9)),
        "--match",
        f"client_id={long}",
    )
    for command in (
        ["clients", "list"],
        ["clients", "show", "other"],
        ["clients", "explain", "other"],
        ["connections"],
        ["subscriptions", "list"],
        ["subscriptions", "show", "some"],
        ["listeners"],
        ["plugins"],
        ["series"],
        ["status"],
    ):
        lines = run(*command).stdout.splitlines()
        assert max(map(len, lines), default=0) <= 80, command
        assert not [line for line in lines if "None" in line or "['" in line or "<" in line], command
    wide = run("clients", "list", "-o", "wide").stdout
    assert "a-very-long-client-id-" * 4 in wide
    assert "PRINCIPAL" in wide
    # The id, which other commands take, is never cut.
    assert uuid_to_text(instance_id(7)) in run("clients", "list").stdout


def test_listeners(run: Run, busy: Sidecar) -> None:
    rows = [line.split() for line in run("listeners").stdout.splitlines()]
    assert rows[0] == ["NAME", "BIND", "UPSTREAM", "BROKER", "PROVEN", "CONNECTIONS"]
    assert rows[2] == ["GOOD", "0.0.0.0:19092", "127.0.0.1:29092", "3", "yes", "7"]
    assert rows[3][:6] == ["PASSED:", "the", "broker", "advertises", "kafka-3.example:29092,", "its"]
    assert [item["name"] for item in json.loads(run("listeners", "-o", "json").stdout)] == ["PASSED", "GOOD"]


@pytest.mark.full
def test_events_are_followed(run: Run, busy: Sidecar) -> None:
    kept = run("events", "--kept", "--count", "2")
    lines = [line.split(" ", 1) for line in kept.stdout.splitlines()]
    assert [text for _, text in lines] == ["subscription created some", "subscription created unmatched"]
    assert all(time.endswith("Z") for time, _ in lines)
    found: list[str] = []
    follows = threading.Thread(
        target=lambda: found.append(run("events", "--count", "1", "-o", "json").stdout), daemon=True
    )
    follows.start()
    number = 0
    while follows.is_alive():  # the stream begins with the next event
        number += 1
        body = {"metrics": ["*"], "interval_ms": 1000 + number}
        httpx.put(f"{busy.url}/v1/subscriptions/new", json=body, timeout=60).raise_for_status()
        follows.join(0.2)
    assert json.loads(found[0])["subscription"] == "new"
