"""Where addresses are replaced, C passes as Python does: each byte, id, sum and size of a read."""

from __future__ import annotations

import itertools
import socket
import struct
from contextlib import closing
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from receiver.brokers.delegation_tokens import DelegationTokens
from receiver.gateway.connection import direction
from receiver.peers.pending_work import PendingWork
from receiver.session.session import Session
from receiver.traffic.table import BYTES_IN, BYTES_OUT, LAST_KEY, REQUESTS, RESPONSES, private_slot
from receiver.turns import Share
from receiver.wire import api_keys, walk
from tests.exploration import examples
from tests.property.wire.test_walk import Recorder, in_python
from tests.testbed.scripted_broker import Answers, framed, request_frame, split
from tests.unit.session.support import Wire, api_versions, connection

pytestmark = pytest.mark.skipif(walk.compiled is None, reason="the extension is not built")

COUNTED = (BYTES_IN, BYTES_OUT, REQUESTS, RESPONSES, LAST_KEY)
MIB = 1 << 20


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def rarely(drawn: st.SearchStrategy[Any], usual: Any) -> st.SearchStrategy[Any]:
    return st.integers(0, 7).flatmap(lambda number: st.just(usual) if number else drawn)


correlation_ids = st.integers(0, 9) | st.integers(-(1 << 31), (1 << 31) - 1)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A Fetch or Produce request, or another, also one that is cut or damaged."""
    key, versions = draw(
        st.sampled_from(
            [
                (api_keys.FETCH, (15, 16, 18)),
                (api_keys.PRODUCE, (9, 10, 12, 13)),
                (api_keys.METADATA, (12,)),
                (api_keys.FIND_COORDINATOR, (3, 6)),
                (api_keys.SHARE_FETCH, (1,)),
                (12, (4,)),  # Heartbeat
                (999, (1,)),
            ]
        )
    )
    body = b"\0" + draw(st.binary(max_size=30))
    if key == api_keys.PRODUCE:
        transactional_id = draw(st.sampled_from([b"\0", b"\x01", b"\x03ab", varint(201) + bytes(200)]))
        body = draw(rarely(st.just(b"\x01\x05\x00"), b"\0")) + transactional_id
        body += struct.pack(">h", draw(st.sampled_from([-1, 0, 1]))) + bytes(
            draw(st.sampled_from([0, 50, 4000]))
        )
    request = request_frame(key, draw(st.sampled_from(versions)), draw(correlation_ids), body)
    return draw(rarely(st.integers(0, len(request)).map(lambda size: request[:size]), request))  # type: ignore[no-any-return]


@st.composite
def fetched(draw: st.DrawFn) -> bytes:
    """The body of a Fetch response; most name no broker."""
    out = bytes(10) + varint(1 + (topics := draw(rarely(st.sampled_from([0, 2, 130]), 1))))
    for _ in range(topics):
        out += bytes(16) + varint(1 + (partitions := draw(rarely(st.sampled_from([0, 2, 127]), 1))))
        for _ in range(partitions):
            aborted = draw(rarely(st.sampled_from([b"\x01", b"\x02" + bytes(17)]), b"\0"))
            records = draw(st.sampled_from([0, 1, 126, 127, 128, 1000, 16_383, 20_000]))
            out += bytes(30) + aborted + bytes(4) + varint(records + 1) + bytes(records)
            out += draw(rarely(st.just(b"\x01\x07\0"), b"\0"))
        out += b"\0"
    return out + draw(rarely(st.just(b"\x01\x00\x01\x01"), b"\0"))  # type: ignore[no-any-return]


@st.composite
def produced(draw: st.DrawFn) -> bytes:
    """The body of a Produce response; most name no broker."""
    out = varint(1 + (topics := draw(rarely(st.sampled_from([0, 2, 127]), 1))))
    for _ in range(topics):
        out += draw(st.sampled_from([b"\x03ab", bytes(16), b"\0", b"\x01"]))
        out += varint(1 + (partitions := draw(rarely(st.sampled_from([0, 2]), 1))))
        for _ in range(partitions):
            out += bytes(30) + draw(
                rarely(st.sampled_from([b"\x01\x01\0", b"\0\x02a\0", b"\0\0\x01"]), bytes(3))
            )
        out += b"\0"
    return out + bytes(4) + draw(rarely(st.just(b"\x01\x00\x01\x01"), b"\0"))  # type: ignore[no-any-return]


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """What follows the correlation id of a response, also cut or damaged."""
    answer = draw(rarely(st.just(b"\x01\x09\0"), b"\0")) + draw(
        st.one_of(fetched(), produced(), st.binary(max_size=20))
    )
    place = draw(st.integers(0, max(len(answer) - 1, 0)))
    return draw(  # type: ignore[no-any-return]
        rarely(
            st.sampled_from([answer[:place], answer[:place] + b"\x81" + answer[place + 1 :], answer + b"\0"]),
            answer,
        )
    )


class World:
    """A session that replaces addresses, and its two directions."""

    def __init__(self, kind: Any, *, in_c: bool) -> None:
        self.client, client = socket.socketpair()
        self.broker, broker = socket.socketpair()
        self.sides = (self.client, client, self.broker, broker)
        for side in self.sides:
            side.setblocking(False)
            side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MIB)
        wire = Wire(replace_address=lambda broker: ("gateway.example", broker.node_id))
        self.work = PendingWork()
        self.session = Session(
            identity=connection(),
            broker=wire.broker,
            upstream=wire.upstream,
            random_number=map((1 << 31).__rmod__, itertools.count(7, 65_539)).__next__,
            max_frame_bytes=100_000,
            max_push_bytes=4096,
            principal_claim="sub",
            delegation_tokens=DelegationTokens(),
            pending_work=self.work,
            replace_address=lambda broker: ("gateway.example", broker.node_id),
        )
        if not in_c:
            self.session.requests.share(None)
            self.session.responses.share(None)
        self.recorder = Looking(self.session)
        self.slot = private_slot()
        self.session.requests.note_versions(self.slot.seen)
        self.up, self.down = (
            kind(
                self.recorder,
                self.recorder,
                source,
                sink,
                rewriter,
                Share(),
                self.slot.words,
                from_client=rewriter is self.session.requests,
                meters=True,
            )
            for source, sink, rewriter in (
                (client, broker, self.session.requests),
                (broker, client, self.session.responses),
            )
        )
        self.to_broker = self.to_client = b""
        self._heard = 0  # bytes of the requests that the broker has
        self.unanswered: list[int] = []
        self._decide()

    def _decide(self) -> None:
        """Have the first request decide about KIP-1313, after which requests pass."""
        self.step("request", api_versions(3))
        (request,) = split(self.to_broker)
        answer = Answers().to(request)
        assert answer is not None
        self.broker.send(framed(answer))
        self.step("nothing", None)
        self.unanswered.clear()
        assert not self.session.requests.reads_all_headers

    def step(self, name: str, value: Any) -> tuple[object, ...]:
        """Do something, have both directions read once, and return what can be seen."""
        match name:
            case "request":
                self.client.send(value)
            case "response":
                number, body, pieces = value
                known = self.unanswered[:1] if number else [12345]
                del self.unanswered[:1]
                answer = b"".join(framed(struct.pack(">i", item) + body) for item in known)
                for begin, end in itertools.pairwise([0, *sorted(pieces), len(answer)]):
                    self.broker.send(answer[begin:end])
                    self.down.readable()
            case "supervised":
                self.up.supervised = self.down.supervised = value
            case "costly":
                self.up._costly_bytes = self.down._costly_bytes = value
            case "gone":
                self.session.client_is_gone()
        more = self.up.readable(), self.down.readable()
        self._receive()
        session, pending = self.session, self.session._pending
        return (
            more,
            self.to_broker,
            self.to_client,
            [
                (moved.bytes_read, moved._room, moved._costly_bytes, moved.ended)
                for moved in (self.up, self.down)
            ],
            [self.slot.words[index] for index in COUNTED],
            bytes(self.slot.seen),
            [(of.frames, of.last_key, of.due, of.held) for of in (session.requests, session.responses)],
            session.responses.awaited,
            session.responses.max_replaced_bytes if session.responses.awaited is not None else None,
            (
                pending.count,
                pending.work,
                pending.held_bytes,
                pending.costly,
                pending.undecided,
                pending.counted,
            ),
            self.work.units[0],
            list(self.recorder.calls),
        )

    def _receive(self) -> None:
        for side, name in ((self.broker, "to_broker"), (self.client, "to_client")):
            try:
                setattr(self, name, getattr(self, name) + side.recv(MIB))
            except BlockingIOError:
                continue
        while (end := self._heard + 4 + int.from_bytes(self.to_broker[self._heard :][:4], "big")) <= len(
            self.to_broker
        ):
            self.unanswered.append(struct.unpack_from(">i", self.to_broker, self._heard + 8)[0])
            self._heard = end

    def close(self) -> None:
        for side in self.sides:
            side.close()
        self.session.close()


class Looking(Recorder):
    """A connection that looks at its session when it has to; it does nothing else."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def passed(self) -> None:
        """Note that there is something to look at."""
        if self._session.take_tracked():
            self.calls.append("passed")

    def moved(self) -> None:
        """C has Python rewrite where Python itself passes, so this may be called more often."""

    def charge(self, _: float) -> None:
        """The same."""


steps = st.one_of(
    st.tuples(st.just("request"), st.lists(requests(), min_size=1, max_size=12).map(b"".join)),
    st.tuples(
        st.just("response"),
        st.tuples(st.integers(0, 9), answers(), st.lists(st.integers(0, 3000), max_size=2)),
    ),
    st.tuples(st.just("costly"), st.sampled_from([512, 700, 2048])),
    st.tuples(st.just("supervised"), rarely(st.just(True), False)),
    st.tuples(rarely(st.just("gone"), "nothing"), st.none()),
)


@settings(max_examples=examples(200))
@given(st.lists(steps, max_size=20))
@example([("request", request_frame(-0x8000, 1, 7))])  # a key is an int16 everywhere
def test_both_pass_the_same_where_addresses_are_replaced(todo: list[tuple[str, Any]]) -> None:
    with (
        closing(World(direction.Direction, in_c=True)) as compiled,
        closing(World(in_python().Direction, in_c=False)) as python,
    ):
        for name, value in todo:
            assert compiled.step(name, value) == python.step(name, value), (name, value)
