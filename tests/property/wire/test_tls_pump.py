"""The compiled pump reads and sends TLS as the Python does, record by record."""

from __future__ import annotations

import gc
import socket
import struct
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from receiver.gateway.connection import direction, tls_direction
from receiver.gateway.connection.tls_socket import MAX_RECORDS_IN_A_READ, TlsSocket, wrap
from receiver.wire import walk
from tests.exploration import examples
from tests.property.wire.test_walk import World, actions, in_python, long_frame, streams
from tests.testbed.tls13 import RecordWriter, Tls13Client
from tests.unit.gateway.tls import Certificates, issue


class Plain:
    """Writes what a record would hold, and nothing for others."""

    def application_data(self, data: bytes, *, padding: int = 0) -> bytes:
        return data

    def __getattr__(self, name: str) -> Callable[..., bytes]:
        return lambda *_, **__: b""


PLAIN = cast("RecordWriter", Plain())
#: Records as a function of who writes them.
Records = Callable[[RecordWriter], bytes]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return issue(tmp_path_factory.mktemp("certificates"))


def python_directions() -> tuple[Any, Any]:
    """The class for a plain source, and the one for a source with TLS, without the extension."""
    name, plain = direction.__name__, in_python()
    sys.modules[name] = plain
    try:
        return plain.Direction, in_python(tls_direction).TlsDirection
    finally:
        sys.modules[name] = direction


class TlsWorld(World):
    """A direction whose source, sink or both have TLS."""

    def __init__(
        self,
        certificates: Certificates,
        kinds: tuple[Any, Any],
        *,
        requests: bool = True,
        source_tls: bool = True,
        sink_tls: bool = False,
    ) -> None:
        self.certificates, self.source_tls, self.sink_tls = certificates, source_tls, sink_tls
        self.writer: RecordWriter | None = None
        self.reader: Tls13Client | None = None
        self.cut = b""  # written, but not sent yet
        super().__init__(kinds[source_tls], requests=requests)
        self.direction.update()

    def wrapped(self, source: socket.socket, sink: socket.socket) -> tuple[socket.socket, socket.socket]:
        if self.source_tls:
            client, source = self.shake_hands(self.source, source)
            self.writer = client.records
        if self.sink_tls:
            self.reader, sink = self.shake_hands(self.sink, sink)
        return source, sink

    def shake_hands(self, outer: socket.socket, inner: socket.socket) -> tuple[Tls13Client, TlsSocket]:
        """The client at one end, and the gateway's side at the other."""
        client = Tls13Client(self.certificates.server.ca)
        tls = wrap(self.certificates.listener_context(), inner, server_side=True)
        outer.send(client.shake_hands(b""))
        while not client.is_ready:
            tls.do_handshake()
            outer.send(client.shake_hands(outer.recv(1 << 16)))
        while tls.do_handshake() is not None:
            client.read(outer.recv(1 << 16))
        return client, tls

    def step(self, action: tuple[str, Any]) -> tuple[object, ...]:
        name, value = action
        if name == "records" and self.writer is not None:
            action = "send", value(self.writer)
        elif name == "send" and self.writer is not None:
            action = "send", self.writer.application_data(value[:16_384])
        elif name == "begin" and self.writer is not None:
            records = value(self.writer)
            action, self.cut = ("send", records[: len(records) // 2]), records[len(records) // 2 :]
        elif name == "go on":
            action, self.cut = ("send", self.cut), b""
        elif name == "take" and self.reader is not None:
            try:
                self.out += self.reader.read(self.sink.recv(value))
            except OSError as error:
                self.recorder.calls.append(f"take: {type(error).__name__}")
            action = "nothing", None
        elif name in {"records", "begin"}:
            action = "send", value(PLAIN)
        moved = self.direction
        tls = cast("list[TlsSocket]", [side for side in self.inner if isinstance(side, TlsSocket)])
        return (
            *super().step(action),
            moved.held_bytes,
            [(side.has_unread, side.held_bytes, side.state.encrypted, side.state.rest) for side in tls],
            [str(side.state.error) for side in tls],
        )


def data_records(data: bytes, size: int, padding: int) -> Records:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return lambda writer: b"".join(writer.application_data(piece, padding=padding) for piece in pieces)


def empty_records(count: int) -> Records:
    return lambda writer: b"".join(writer.application_data(b"") for _ in range(count))


def corrupted(writer: RecordWriter) -> bytes:
    record = bytearray(writer.application_data(b"\0\0"))
    record[-1] ^= 1
    return bytes(record)


#: Frames in records of a few bytes or many.
data: st.SearchStrategy[Records] = st.one_of(
    st.builds(
        data_records, streams.filter(bool), st.sampled_from([1, 7, 1_000]), st.sampled_from([0, 0, 300])
    ),
    st.builds(data_records, st.integers(1, 9).map(long_frame), st.sampled_from([40, 16_384]), st.just(0)),
)
#: Records that an orderly peer may send too.
orderly: st.SearchStrategy[Records] = st.sampled_from(
    [
        lambda writer: writer.key_update(),
        lambda writer: writer.key_update(requested=True),
        *map(empty_records, (1, 3, 33)),
    ]
)
fatal: st.SearchStrategy[Records] = st.sampled_from(
    [
        lambda writer: writer.close_notify(),
        lambda writer: writer.alert(90, fatal=False),
        lambda writer: writer.alert(40),
        corrupted,
        lambda _: b"\x16\x03\x03\x7f\xffplain",
    ]
)


@st.composite
def tls_actions(draw: st.DrawFn) -> tuple[str, Any]:
    """What peers do: mostly what goes on, because after an end nothing happens any more."""
    kind = draw(st.integers(0, 19))
    if kind < 9:
        return draw(st.sampled_from(["records", "records", "begin"])), draw(data)
    if kind < 11:
        return "records", draw(orderly)
    if kind == 11:
        return "records", draw(fatal)
    if kind < 15:
        return "go on", None
    if kind < 17:
        return "room", draw(st.sampled_from([5, 64, 16_384, 262_144]))
    if kind < 19:
        return draw(
            st.sampled_from([("writable", None), ("nothing", None), ("take", 5_000), ("take", 1 << 16)])
        )
    action: tuple[str, Any] = draw(actions)
    return action


#: Brings out what is left, as far as the sink takes it.
END: list[tuple[str, Any]] = [("writable", None), ("take", 1 << 16)]


@contextmanager
def closing(*worlds: TlsWorld) -> Iterator[None]:
    try:
        yield
    finally:
        for world in worlds:
            world.close()


@pytest.mark.skipif(walk.compiled is None, reason="the extension is not built")
@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(tls_actions(), min_size=6, max_size=20),
    st.booleans(),
    st.sampled_from([(True, False), (False, True), (True, True)]),
)
def test_both_pumps_make_the_same_calls(
    certificates: Certificates, steps: list[tuple[str, Any]], requests: bool, sides: tuple[bool, bool]
) -> None:
    source_tls, sink_tls = sides
    compiled, python = (
        TlsWorld(certificates, kinds, requests=requests, source_tls=source_tls, sink_tls=sink_tls)
        for kinds in ((direction.Direction, tls_direction.TlsDirection), python_directions())
    )
    with closing(compiled, python):
        for action in [*steps, *(END * 5)]:
            assert compiled.step(action) == python.step(action), action
            assert compiled.out == python.out


@pytest.mark.parametrize("path", ["used", "python"])
def test_records_that_are_held_come_before_what_the_kernel_has(certificates: Certificates, path: str) -> None:
    """One receive takes them all, and the kernel then says that there is nothing."""
    kinds = (direction.Direction, tls_direction.TlsDirection) if path == "used" else python_directions()
    world = TlsWorld(certificates, kinds)
    with closing(world):
        assert world.writer is not None
        data = struct.pack(">ihh", 256, 1, 1) + bytes(252)
        world.source.send(data_records(data, 1, 0)(world.writer))
        moved = world.direction
        for number in range(1, len(data) // MAX_RECORDS_IN_A_READ + 1):
            assert moved.readable(), number
            assert moved.bytes_read == number * MAX_RECORDS_IN_A_READ
        assert not moved.readable()
        assert moved.bytes_read == len(data)
        assert world.sink.recv(1_000) == data


LIVES = 20
#: pathlib keeps the names of the clients' temporary files. What leaks does so with each record.
NAMES_BYTES = 200


def a_whole_life(certificates: Certificates, *, source_tls: bool, sink_tls: bool) -> None:
    """Data, records without data, a slow reader, and an error that ends it."""
    kinds = (direction.Direction, tls_direction.TlsDirection)
    world = TlsWorld(certificates, kinds, source_tls=source_tls, sink_tls=sink_tls)
    with closing(world):
        for action in (
            ("records", data_records(long_frame(3), 100, 0)),
            ("records", empty_records(2)),
            ("records", data_records(long_frame(9), 16_384, 0)),
            *END * 3,
            ("begin", data_records(long_frame(1), 16_384, 0)),
            ("go on", None),
            ("records", corrupted),
            ("close sink", None),
            ("records", data_records(long_frame(1), 16_384, 0)),
            ("close source", None),
            ("nothing", None),
        ):
            world.step(action)


@pytest.mark.parametrize(
    ("source_tls", "sink_tls"),
    [
        (True, True),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in ((False, False), (True, False), (False, True))
        ),
    ],
)
def test_a_connection_leaves_no_object_behind(
    certificates: Certificates, source_tls: bool, sink_tls: bool
) -> None:
    def growth(lives: int) -> int:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(lives):
            a_whole_life(certificates, source_tls=source_tls, sink_tls=sink_tls)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        growth(2)  # what is kept for later
        assert growth(LIVES) < LIVES * NAMES_BYTES
    finally:
        tracemalloc.stop()
