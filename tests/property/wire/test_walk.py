"""The compiled data path decides as the one in Python: each walk, and each call of the pump."""

from __future__ import annotations

import functools
import importlib.util
import socket
import struct
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from receiver.gateway.connection import direction
from receiver.traffic.table import BYTES_IN, BYTES_OUT, LAST_KEY, REQUESTS, RESPONSES, private_slot
from receiver.turns import Share
from receiver.wire import walk
from receiver.wire.frame_rewriter import FrameRewriter
from receiver.wire.framing import RequestRewriter, ResponseRewriter
from receiver.wire.seen_versions import SEEN_BYTES
from tests.exploration import examples

pytestmark = pytest.mark.skipif(walk.compiled is None, reason="the extension is not built")

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
#: Lengths at the edges: too short, just long enough, as long as may be, too long, negative.
LENGTHS = st.one_of(st.integers(-2, 40), st.sampled_from([95, 96, 97, 1 << 30, (1 << 31) - 1, -(1 << 31)]))
VERSIONS = st.sampled_from([0, 1, 17, 253, 254, 255, 32_767, -1, -32_768])
LONGEST = 96
PIECE_BYTES = 32_768
COUNTED = (BYTES_IN, BYTES_OUT, REQUESTS, RESPONSES, LAST_KEY)
WATCHED = frozenset({0, 18, 71, 127})


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A frame whose length is right, or a head with any length."""
    head = struct.pack(
        ">hhi",
        draw(st.sampled_from([1, 3, 18, 71, 95, 96, 127, 128, -1, 32_767])),
        draw(VERSIONS),
        draw(INT32),
    )
    if draw(st.integers(0, 9)):
        body = head + draw(st.binary(max_size=60))
        return struct.pack(">i", len(body)) + body
    return struct.pack(">i", draw(LENGTHS)) + head


streams = st.lists(frames(), max_size=8).map(b"".join)


def walks(kind: type[Any], *, requests: bool, every_key: bool, awaited: int | None, skip: int) -> Any:
    found = kind()
    found._walks_requests, found._every_key, found.awaited = requests, every_key, awaited
    found._skip, found._max_frame_bytes, found.frames, found.last_key = skip, LONGEST, 0, -1
    found._watch(WATCHED)
    found._seen = memoryview(bytearray(SEEN_BYTES))
    return found


@settings(max_examples=examples(500))
@given(
    streams,
    st.lists(st.integers(1, 50), max_size=20),
    st.booleans(),
    st.integers(0, 4).map(lambda drawn: drawn == 0),
    st.none() | INT32 | st.just(1 << 40),
    st.sampled_from([0, 0, 0, 7, -1, 1 << 62]),
)
def test_both_walks_pass_the_same_bytes(
    stream: bytes, sizes: list[int], requests: bool, every_key: bool, awaited: int | None, skip: int
) -> None:
    compiled, python = (
        walks(kind, requests=requests, every_key=every_key, awaited=awaited, skip=skip)
        for kind in (walk.compiled.Walk, walk.PythonWalk)
    )
    assert compiled.awaited == (awaited if awaited is None or awaited < 1 << 31 else None)
    position = 0
    for size in [*sizes, len(stream)]:
        chunk = memoryview(stream)[position : position + size]
        passed = compiled.passing(chunk)
        assert passed == python.passing(chunk)
        for name in ("_skip", "frames", "last_key"):
            assert getattr(compiled, name) == getattr(python, name), name
        assert bytes(compiled._seen) == bytes(python._seen)
        position += passed
        if passed < len(chunk):  # what a rewriter does then
            position += 1
            compiled._skip = python._skip = 0


@pytest.mark.parametrize("key", [-1, 128, 1 << 40])
def test_a_key_that_no_request_can_have_is_refused(key: int) -> None:
    for kind in (walk.compiled.Walk, walk.PythonWalk):
        with pytest.raises((ValueError, OverflowError)):
            kind()._watch({key})


# -- the pump ----------------------------------------------------------------------------------


@functools.cache
def in_python(original: ModuleType = direction) -> ModuleType:
    """A module of directions, as where the extension is not built."""
    spec = importlib.util.spec_from_file_location(f"{original.__name__}_in_python", str(original.__file__))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    compiled, walk.compiled = walk.compiled, None  # type: ignore[misc]
    try:
        spec.loader.exec_module(module)
    finally:
        walk.compiled = compiled  # type: ignore[misc]
    return module


@dataclass
class Recorder:
    """The connection and the loop of a direction: writes down each call."""

    calls: list[str] = field(default_factory=list)

    def cpu(self) -> float:
        return 0.0

    def most_buffered(self) -> int:
        return 1 << 20

    def __getattr__(self, name: str) -> Callable[..., None]:
        def record(*arguments: object, **_: object) -> None:
            told = [
                f"{type(told).__name__} {getattr(told, 'errno', '')}"
                for told in arguments
                if isinstance(told, Exception)
            ]
            if name in {"set_direct_reader", "set_direct_writer"}:
                told = ["on" if arguments[1] else "off"]
            self.calls.append(f"{name} {told}")

        return record


class World:
    """A direction between two socket pairs, with the other ends."""

    def __init__(self, kind: Any, *, requests: bool) -> None:
        self.source, source = socket.socketpair()
        sink, self.sink = socket.socketpair()
        sink.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_608)
        for side in (self.source, source, sink, self.sink):
            side.setblocking(False)
        source, sink = self.inner = self.wrapped(source, sink)
        rewriter: FrameRewriter = (
            RequestRewriter(
                lambda held, _: b"[" + held + b"]",
                watched=WATCHED,
                max_frame_bytes=1 << 20,
                max_watched_bytes=1 << 16,
            )
            if requests
            else ResponseRewriter(
                lambda held, _: b"[" + held + b"]", max_frame_bytes=1 << 20, max_watched_bytes=1 << 16
            )
        )
        rewriter.awaited = 7
        self.recorder = Recorder()
        self.slot = private_slot()
        if isinstance(rewriter, RequestRewriter):
            rewriter.note_versions(self.slot.seen)
        self.direction = kind(
            self.recorder,
            self.recorder,
            source,
            sink,
            rewriter,
            Share(),
            self.slot.words,
            from_client=requests,
        )
        self.out = b""

    def wrapped(self, source: socket.socket, sink: socket.socket) -> tuple[socket.socket, socket.socket]:
        """The direction's own two sockets."""
        return source, sink

    def step(self, action: tuple[str, Any]) -> tuple[object, ...]:
        """Do something, have the direction read once, and return what can be seen."""
        name, value = action
        moved = self.direction
        try:
            match name:
                case "send":
                    self.source.send(value)
                case "end":
                    self.source.shutdown(socket.SHUT_WR)
                case "close source":
                    self.source.close()
                case "close sink":
                    self.sink.close()
                case "take":
                    self.out += self.sink.recv(value)
                case "limit":
                    moved.limit = None if value is None else lambda: value
                case "supervised":
                    moved.supervised = value
                case "room":
                    moved._room = value
                case "detach":
                    moved.detach()
                case "writable":
                    if moved._backlog:
                        moved._writable()
        except OSError as error:
            self.recorder.calls.append(f"{name}: {type(error).__name__}")
        more = moved.readable()
        return (
            more,
            moved.bytes_read,
            len(moved._backlog),
            moved._room,
            moved.ended,
            moved.flushed,
            [self.slot.words[index] for index in COUNTED],
            bytes(self.slot.seen),
            list(self.recorder.calls),
        )

    def close(self) -> None:
        for side in (self.source, self.sink, *self.inner):
            side.close()


def long_frame(thousands: int) -> bytes:
    """A frame that does not fit into the sink's buffer at once."""
    return struct.pack(">ihhi", thousands * 1_000 + 8, 1, 1, 9) + bytes(thousands * 1_000)


actions = st.one_of(
    st.tuples(st.just("send"), st.one_of(streams, st.integers(1, 9).map(long_frame))),
    st.tuples(st.just("take"), st.sampled_from([100, 5_000, 1 << 16])),
    st.tuples(st.just("limit"), st.sampled_from([None, 10, 4_000])),
    st.tuples(st.just("supervised"), st.sampled_from([True, False, 0, 2, None])),
    st.tuples(st.just("room"), st.sampled_from([64, 16_384, 262_144])),
    st.tuples(
        st.sampled_from(["end", "close source", "close sink", "detach", "writable", "nothing"]), st.none()
    ),
)


@settings(max_examples=examples(400))
@given(st.lists(actions, max_size=25), st.booleans())
def test_both_pumps_make_the_same_calls(steps: list[tuple[str, Any]], requests: bool) -> None:
    compiled = World(direction.Direction, requests=requests)
    python = World(in_python().Direction, requests=requests)
    try:
        for action in steps:
            assert compiled.step(action) == python.step(action), action
            assert compiled.out == python.out
    finally:
        compiled.close()
        python.close()


def test_a_large_frame_is_moved_by_one_call_while_the_sink_takes_it() -> None:
    """C moves it in pieces, which a processor's cache holds from the read to the send."""
    for kind in (direction.Direction, in_python().Direction):
        with closing(World(kind, requests=False)) as world:
            world.inner[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            sent = world.source.send(long_frame(150))
            assert sent > 100_000
            world.direction._reading = True
            while world.direction.bytes_read < sent:
                before = world.direction.bytes_read
                world.direction.readable()
                world.out += world.sink.recv(1 << 20)
                assert world.direction.bytes_read > before
            assert world.out == long_frame(150)[:sent]
            assert world.slot.words[BYTES_OUT] == sent


@pytest.mark.parametrize("change", ["paused", "supervised", "limit"])
def test_pieces_end_when_something_else_is_read(change: str) -> None:
    with closing(World(direction.Direction, requests=False)) as world:
        moved = world.direction
        world.source.send(long_frame(100))
        moved._reading = change != "paused"
        moved.supervised = change == "supervised"
        if change == "limit":
            moved.limit = lambda: 10
        moved.readable()
        assert moved.bytes_read == (10 if change == "limit" else PIECE_BYTES)
