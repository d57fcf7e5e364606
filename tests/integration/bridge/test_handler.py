"""What a request handler of a broker meets in the bridge, called in a JVM of its own."""

from __future__ import annotations

import json
import subprocess
import threading
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.bridge_programs import Programs
from tests.integration.bridge.peer import Peer
from tests.testbed import jvm
from tests.testbed.ports import LOOPBACK

pytestmark = pytest.mark.full

_HERE: Final = Path(__file__).parent
#: What the bridge takes from Kafka beside its public interfaces.
_INTERNALS: Final = (
    "org/apache/kafka/common/requests/RequestContext.class",
    "org/apache/kafka/common/network/ClientInformation.class",
)
_WRONG: Final = (
    ("receivers", "10.0.0.1:1", "10.0.0.1:1 is not on this machine: set kafka.telemetry.bridge.tls=true"),
    ("receivers", "127.0.0.1", "expected HOST:PORT,HOST:PORT or unix:/PATH, for example 127.0.0.1:9714"),
    ("receivers", "localhost:1,localhost:1", "localhost:1 is given twice"),
    ("tls", "yes", "expected true or false"),
    ("tls.ca.file", "/ca.pem", "has no effect without kafka.telemetry.bridge.tls=true"),
    ("queue.items", "many", "expected a whole number from 1 to 10000000"),
    ("queue.bytes", "1", "expected a whole number from 1048576 to 1099511627776"),
    ("token.file", "", "is required: the file of the secret that the receiver has as bridge.token.file"),
)
_MOST_SECONDS: Final = 300.0


def _run(command: list[str], peer: Peer) -> list[dict[str, Any]]:
    """Run the program Handler, and return its lines; it closes the bridge when the peer hangs."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        hung = threading.Timer(_MOST_SECONDS, process.kill)
        hung.start()
        try:
            lines = [json.loads(process.stdout.readline()) for _ in range(2)]
            peer.answers = False
            process.stdin.write("\n")
            process.stdin.flush()
            return [*lines, json.loads(process.stdout.readline())]
        finally:
            hung.cancel()
            process.kill()


def test_the_handler_never_fails_and_close_returns_while_the_receiver_hangs(tmp_path: Path) -> None:
    programs = Programs(tmp_path, _HERE / "Handler.java")
    with Peer() as peer:
        command = programs.command("Handler", f"{LOOPBACK}:{peer.port}", programs.token)
        mistakes, buffers, closed = _run(command, peer)
        arrived = peer.wait_for("client", 5)
    assert mistakes == {"thrown": [], "never_null": True, "dropped": 6, "queued": 0}
    assert buffers == {"thrown": [], "untouched": True, "acknowledged": 4, "unreadable": 0}
    assert [bytes(push.metrics) for push in arrived] == [bytes([10, 1, n]) for n in (1, 2, 3, 4, 9)]
    assert closed == {"thrown": [], "still_ending": True, "never_null": True}


def test_a_broker_whose_internals_have_moved_loses_details_and_no_push(tmp_path: Path) -> None:
    programs = Programs(tmp_path, _HERE / "Handler.java")
    (clients,) = (found for found in jvm.class_path() if found.name.startswith("kafka-clients-"))
    changed = tmp_path / clients.name
    with zipfile.ZipFile(clients) as before, zipfile.ZipFile(changed, "w") as after:
        assert set(_INTERNALS) <= set(before.namelist())
        for entry in before.infolist():
            if entry.filename not in _INTERNALS:
                after.writestr(entry, before.read(entry))
    with Peer() as peer:
        command = programs.command("Handler", f"{LOOPBACK}:{peer.port}", programs.token)
        command = [word.replace(str(clients), str(changed)) for word in command]
        _, buffers, _ = _run(command, peer)
    assert buffers == {"thrown": [], "untouched": True, "acknowledged": 4, "unreadable": 1}
    assert {(push.principal, push.connection_id) for push in peer.pushes} == {("User:ANONYMOUS", "")}


def test_the_error_of_a_wrong_value_names_key_value_and_fix(tmp_path: Path) -> None:
    programs = Programs(tmp_path, _HERE / "WrongValues.java")
    given = [f"{key}={value}" for key, value, _ in _WRONG]
    lines = programs.lines("WrongValues", *given, seconds=_MOST_SECONDS)
    assert [line["error"] for line in lines] == [
        f"Invalid value {value or 'null'} for configuration kafka.telemetry.bridge.{key}: {problem}"
        for key, value, problem in _WRONG
    ]
