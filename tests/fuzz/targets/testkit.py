"""What a client under test sends to the test kit, and the verdicts on it.

An input is one connection's requests, each after a length of two bytes. The kit answers or ends the
connection, and every client that it saw can be judged.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from receiver.testkit.judge import judge
from receiver.testkit.kit import Kit, Reply
from receiver.testkit.recording import Connection
from receiver.testkit.report import as_json, as_junit, as_text
from receiver.testkit.script import load_script
from tests.fuzz.target import Target, require
from tests.unit.testkit.scripted_client import NODES, ScriptedClient, kit_with
from tests.unit.testkit.test_kit import body, frame

_LENGTH = struct.Struct(">H")
_SCRIPT = load_script("default")
_KEYS = (0, 1, 2, 3, 10, 11, 14)


def _requests(data: bytes) -> list[bytes]:
    found = []
    at = 0
    while at + _LENGTH.size <= len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        found.append(data[at : at + size])
        at += size
    return found


def _run(data: bytes) -> None:
    kit = kit_with(_SCRIPT)
    connection = kit.open(0.0, 1)
    now = 0.0
    for request in _requests(data):
        now += 1.0
        reply = kit.take(now, connection, request, NODES)
        require(reply.close or reply.request is not None, "a request was neither recorded nor refused")
        require(not reply.close or reply.data is None or reply.request is not None, "an answer to nothing")
        if reply.request is not None:
            reply.request.answered = now if reply.data is not None else None
        if reply.close:
            break
    kit.close(now, connection)
    judged = judge(kit.connections, ended=now + 60, brokers=2)
    for write in (as_json, as_junit, as_text):
        require(bool(write(judged)), "an empty report")


class _Listening(Kit):
    """A kit that keeps the requests of a scripted client."""

    requests: list[bytes]

    def take(self, now: float, connection: Connection, frame: bytes, nodes: Sequence[object]) -> Reply:
        self.requests.append(frame)
        return super().take(now, connection, frame, NODES)


def _joined(requests: Sequence[bytes]) -> bytes:
    return b"".join(_LENGTH.pack(len(request)) + request for request in requests)


def _seeds() -> list[bytes]:
    kit = _Listening(_SCRIPT, cluster_id="c", random_bytes=lambda size: bytes([1]) * size)
    kit.requests = []
    ScriptedClient(kit).run(20)
    others = [frame(key, 3 if key != 1 else 4, bytes(body(key, 3 if key != 1 else 4))) for key in _KEYS]
    return [_joined(kit.requests[:6]), _joined(kit.requests[6:12]), _joined(others)]


TARGET = Target(name="testkit", run=_run, seeds=_seeds, max_bytes=8192, brief=2_000)
