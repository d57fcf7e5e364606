"""Helpers: a real sidecar on a scripted broker, and raw clients."""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.plain_texts import python_objects
from tests.testbed.cpu import memory_bytes, with_descendants
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import ChildProcess, WaitTimeoutError, wait_until
from tests.testbed.scripted_broker import API_VERSIONS, ScriptedBroker, produce_frame, request_frame
from tests.testbed.sidecar import Sidecar

TIMEOUT_S = 300.0

GET, PUSH = 71, 72
ZERO_ID = bytes(16)

#: Fields of log lines that show the program, and not what happens.
_OF_PROGRAMMERS = {"exception", "stack"}


class GatewaySidecar(Sidecar):
    """A sidecar whose start need not wait for its broker.

    Args:
        config: Its configuration.
        wait_for_broker: Whether it counts as started when it is ready, or when it lives.
        env: Environment variables for it.
    """

    def __init__(
        self, config: Mapping[str, Any], *, wait_for_broker: bool = True, env: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(config, env=env)
        self._wait_for_broker = wait_for_broker

    def __exit__(self, *raised: object) -> None:
        try:
            lines = [] if raised[0] is not None else self.logged_objects()
        finally:
            super().__exit__(*raised)
        shown = [_texts({key: line[key] for key in line.keys() - _OF_PROGRAMMERS}) for line in lines]
        found = [text for texts in shown for text in texts if python_objects(text)]
        assert found == [], found

    def is_ready(self) -> bool:
        """Whether it is as far as its start waits for."""
        return self.status("/readyz" if self._wait_for_broker else "/livez") == httpx.codes.OK

    def status(self, path: str) -> int:
        """The HTTP status of a path; 0 where nobody answers."""
        try:
            return self.http.get(path).status_code
        except httpx.TransportError:
            return 0

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._started().signal(number)

    def wait(self, timeout_s: float = TIMEOUT_S) -> int:
        """Wait for its end; return its exit status."""
        return self._started().wait(timeout_s)

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The lines of its log (JSON) that say this happened."""
        return [line for line in self.logged_objects() if line.get("event") == event]

    def awaited(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        """As :meth:`logged`, once there are so many; a thread writes the log, and may be late."""
        what = f"{event!r} in the log"
        wait_until(lambda: len(self.logged(event)) >= count, timeout_s=TIMEOUT_S, what=what)
        return self.logged(event)

    def readiness(self) -> tuple[int, str]:
        """What ``/readyz`` says: its status, and why it isn't ready."""
        response = self.http.get("/readyz")
        return response.status_code, response.json().get("detail", "")

    def warnings(self) -> list[str]:
        """What ``/readyz`` warns of, beside that there is no subscription."""
        found: list[str] = self.http.get("/readyz").json().get("warnings", [])
        return [warning for warning in found if not warning.startswith("there is no subscription")]

    def connections(self, listener: str = "CLIENT") -> list[dict[str, Any]]:
        """The registry of connections as REST shows it, those of one listener."""
        found: list[dict[str, Any]] = []
        page: dict[str, Any] = {"next": ""}
        while page["next"] is not None:
            after = {"after": page["next"]} if page["next"] else {}
            response = self.http.get("/v1/connections", params={"limit": 1000, **after})
            response.raise_for_status()
            page = response.json()
            found += page["items"]
        return [connection for connection in found if connection["listener"] == listener]

    def clients(self) -> list[dict[str, Any]]:
        """The client instances as REST shows them."""
        response = self.http.get("/v1/clients", params={"limit": 1000})
        response.raise_for_status()
        items: list[dict[str, Any]] = response.json()["items"]
        return items

    def series(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """The series of a metric of its own, by their labels in order."""
        text = self.http.get("/metrics").text
        return {
            tuple(sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == f"kafka_telemetry_{name}"
        }

    def value(self, name: str, **labels: str) -> float:
        """The value of one series; 0 where there is none."""
        return self.series(name).get(tuple(sorted(labels.items())), 0.0)

    def wait_for_log(self, text: str) -> None:
        """Wait until it has logged it."""
        try:
            wait_until(
                lambda: text in self.log_text(), timeout_s=TIMEOUT_S, what=f"{text!r} in the sidecar's log"
            )
        except WaitTimeoutError as error:
            error.add_note(f"the sidecar's log:\n{self.log_tail()}")
            raise

    def wait_for_no_connections(self) -> None:
        """Wait until the registry has no connection of CLIENT."""
        wait_until(lambda: not self.connections(), timeout_s=TIMEOUT_S, what="an empty registry")

    def open_files(self) -> int:
        """How many files its processes have open."""
        return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in with_descendants(self.pid))

    def resident_bytes(self) -> int:
        """Memory that its processes hold, shared pages counted by their share."""
        return sum(memory_bytes(pid) for pid in with_descendants(self.pid))

    def processes(self) -> dict[str, int]:
        """The ids of its child processes by name: ``kct-core``, ``kct-relay-1`` and so on."""
        found = {}
        for pid in with_descendants(self.pid)[1:]:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                found[Path(f"/proc/{pid}/comm").read_text().strip()] = pid
        return found


def _texts(value: object) -> Iterator[str]:
    """Yield the texts of a log line."""
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)


def config(upstream_port: int, **more: Any) -> dict[str, Any]:
    """A configuration with one listener; ``more`` are further sections."""
    return {
        "broker": {"id": 1},
        "listeners": [listener("CLIENT", upstream_port)],
        "rest": {"bind": f"{LOOPBACK}:{free_port()}"},
        "plugins": [{"type": "console"}],
        **more,
    }


def listener(name: str, upstream_port: int, **more: Any) -> dict[str, Any]:
    """A listener's section."""
    return {
        "name": name,
        "bind": f"{LOOPBACK}:{free_port()}",
        "upstream": f"{LOOPBACK}:{upstream_port}",
        **more,
    }


class Raw:
    """A client's socket; closed on leaving the context.

    Raises:
        OSError: It can't connect, or was reset before it had.
    """

    def __init__(self, port: int, *, timeout_s: float = TIMEOUT_S, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout_s)
        try:
            self.socket.connect((LOOPBACK, port))
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    @property
    def port(self) -> int:
        """Its own port."""
        return int(self.socket.getsockname()[1])

    def send(self, data: bytes) -> None:
        """Send it all."""
        self.socket.sendall(data)

    def read(self, count: int) -> bytes:
        """Wait for so many bytes; fewer only at the stream's end."""
        data = bytearray()
        while len(data) < count and (chunk := self.socket.recv(min(count - len(data), 1 << 20))):
            data += chunk
        return bytes(data)

    def frame(self) -> bytes:
        """Wait for a frame; return it without its length.

        Raises:
            EOFError: The stream has ended.
        """
        length = self.read(4)
        if len(length) < 4:
            raise EOFError(f"the stream ended after {len(length)} bytes of a frame's length")
        return self.read(int.from_bytes(length, "big"))

    def exchange(self, request: bytes) -> bytes:
        """Send a request, wait for its answer."""
        self.send(request)
        return self.frame()

    def fate(self) -> str:
        """Read until the end: how does it come, as an ``end`` or as a ``reset``?"""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionResetError:
            return "reset"
        return "end"

    def end(self) -> None:
        """Say that nothing more will be sent (FIN)."""
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close with a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def refusal(port: int) -> tuple[str, float]:
    """Connect and ask something: how the connection ends, and after how many seconds."""
    started = time.monotonic()
    try:
        with Raw(port) as raw:
            raw.send(api_versions(3))
            fate = raw.fate()
    except (ConnectionResetError, BrokenPipeError):
        fate = "reset"
    except ConnectionRefusedError:
        fate = "refused"
    return fate, time.monotonic() - started


def api_versions(
    version: int,
    correlation_id: int = 1,
    *,
    client_id: str = "raw",
    software: tuple[str, str] = ("raw", "1.0"),
) -> bytes:
    """An ApiVersions request of version 0 or 3."""
    if version == 0:
        return request_frame(API_VERSIONS, 0, correlation_id, client_id=client_id)
    strings = b"".join(bytes([len(text) + 1]) + text.encode() for text in software)
    return request_frame(API_VERSIONS, version, correlation_id, b"\0" + strings + b"\0", client_id)


def get_subscriptions(
    instance: bytes = ZERO_ID, correlation_id: int = 71, *, client_id: str = "raw"
) -> bytes:
    """A GetTelemetrySubscriptions v0 request."""
    return request_frame(GET, 0, correlation_id, b"\0" + instance + b"\0", client_id)


def push(
    instance: bytes,
    subscription_id: int,
    metrics: bytes = b"",
    correlation_id: int = 72,
    *,
    terminating: bool = False,
    client_id: str = "raw",
) -> bytes:
    """A PushTelemetry v0 request, uncompressed."""
    length, size = bytearray(), len(metrics) + 1
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    body = instance + struct.pack(">i?b", subscription_id, terminating, 0) + bytes(length) + metrics
    return request_frame(PUSH, 0, correlation_id, b"\0" + body + b"\0", client_id)


def read_get(answer: bytes) -> tuple[int, bytes, int]:
    """Decode GetTelemetrySubscriptions: error code, instance id, subscription id."""
    error_code, instance, subscription_id = struct.unpack_from(">h16si", answer, 9)
    return error_code, instance, subscription_id


def error_of_push(answer: bytes) -> int:
    """Of an answer to PushTelemetry: the error code."""
    return int(struct.unpack_from(">h", answer, 9)[0])


@contextlib.contextmanager
def in_background(work: Callable[[], None]) -> Iterator[threading.Thread]:
    """Run a function in a thread and join it; a closed connection ends it quietly."""

    def run() -> None:
        with contextlib.suppress(OSError):
            work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(TIMEOUT_S)
        if thread.is_alive():
            raise TimeoutError("work in the background does not end")


def void(_: object) -> None:
    """Make a script of something that returns a value."""


def all_that_came_of(broker: ScriptedBroker, first: bytes) -> list[int]:
    """Return the API keys on the last connection whose first request ends so."""
    peer = next(
        peer
        for peer in reversed(broker.peers)
        if peer.answers.seen and peer.answers.seen[0].data.endswith(first)
    )
    assert peer.ended.wait(TIMEOUT_S)
    return [request.api_key for request in peer.answers.seen]


def works(sidecar: GatewaySidecar) -> None:
    """A client is served whole: passed, edited and answered requests."""
    with Raw(sidecar.port()) as raw:
        assert raw.exchange(api_versions(3))[4:6] == b"\0\0"
        assert raw.exchange(produce_frame(2, b"echo")).endswith(b"echo")
        assert read_get(raw.exchange(get_subscriptions()))[0] == 0


@contextlib.contextmanager
def taking_over(sidecar: GatewaySidecar) -> Iterator[ChildProcess]:
    """A new version in the folder of the running one."""
    folder = sidecar._folder()
    new = ChildProcess(
        "new sidecar",
        [
            Path(sys.executable).with_name("kafka-telemetry"),
            "serve",
            "--config",
            folder / "receiver.yaml",
            "--take-over",
        ],
        log=folder / "new.log",
        cwd=folder,
    )
    try:
        yield new
    except Exception as error:
        error.add_note(f"the new sidecar's log:\n{new.log_tail()}")
        raise
    finally:
        new.terminate()
