"""The stream of messages over a socket pair."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.link import stream as link_stream
from receiver.link.messages import LinkError
from receiver.link.stream import MAX_MESSAGE_BYTES, LinkStream

Callback = Callable[[], bool]


class End:
    """A stream whose socket the test polls, and the other end of it.

    Attributes:
        other: The other end's socket.
        received: The messages that have come.
        ended: Why the stream ended, as often as it said so.
    """

    def __init__(self) -> None:
        ours, self.other = socket.socketpair()
        self.other.setblocking(False)
        self.readers: dict[int, Callback] = {}
        self.writers: dict[int, Callback] = {}
        self.received: list[bytes] = []
        self.ended: list[str] = []
        self.on_message: Callable[[bytes], None] = self.received.append
        self.fd = ours.fileno()
        self.stream = LinkStream(
            ours,
            lambda fd, callback: self._set(self.readers, fd, callback),
            lambda fd, callback: self._set(self.writers, fd, callback),
            on_message=lambda message: self.on_message(bytes(message)),
            on_end=self.ended.append,
        )

    def _set(self, callbacks: dict[int, Callback], fd: int, callback: Callback | None) -> None:
        assert fd == self.fd
        if callback is None:
            callbacks.pop(fd, None)
        else:
            callbacks[fd] = callback

    def poll(self) -> None:
        """Run the callbacks until the stream waits for its other end."""
        while (reader := self.readers.get(self.fd)) is not None and reader():
            pass
        if (writer := self.writers.get(self.fd)) is not None:
            writer()

    def sent(self) -> bytes:
        """Read what has come out."""
        data = b""
        while True:
            try:
                chunk = self.other.recv(1 << 20)
            except BlockingIOError:
                return data
            if not chunk:
                return data
            data += chunk

    def close(self) -> None:
        self.stream.close()
        self.other.close()


@pytest.fixture
def end() -> Iterator[End]:
    one = End()
    yield one
    one.close()


def packet(message: bytes) -> bytes:
    return struct.pack(">I", len(message)) + message


def feed(end: End, data: bytes) -> None:
    """Send bytes to the stream, as much at a time as the socket takes."""
    view = memoryview(data)
    while view:
        try:
            view = view[end.other.send(view) :]
        except BlockingIOError:
            end.poll()
    end.poll()


@given(
    st.lists(st.integers(0, 40) | st.integers(65_500, 65_600), max_size=8),
    st.lists(st.integers(1, 70_000), max_size=8),
)
def test_messages_arrive_whole_however_the_stream_is_cut(sizes: list[int], cuts: list[int]) -> None:
    end = End()
    messages = [bytes([number]) * size for number, size in enumerate(sizes)]
    data = b"".join(map(packet, messages))
    for cut in [*cuts, len(data)]:
        feed(end, data[:cut])
        data = data[cut:]
    end.close()
    assert end.received == messages
    assert end.ended == []


def test_a_message_comes_byte_by_byte(end: End) -> None:
    for byte in packet(b"one") + packet(b"") + packet(b"two"):
        feed(end, bytes([byte]))
    assert end.received == [b"one", b"", b"two"]


def test_a_long_message_arrives_and_its_memory_is_given_back(end: End) -> None:
    message = bytes(range(256)) * 20_000
    feed(end, packet(b"before") + packet(message) + packet(b"after"))
    assert end.received == [b"before", message, b"after"]
    assert len(end.stream._buffer) == 65_536


def test_a_message_that_is_too_long_ends_the_stream(end: End) -> None:
    feed(end, struct.pack(">I", MAX_MESSAGE_BYTES + 1))
    assert end.ended == [f"a message announces {MAX_MESSAGE_BYTES + 1} bytes, more than {MAX_MESSAGE_BYTES}"]
    assert end.stream.closed
    assert (end.readers, end.writers) == ({}, {})


def test_the_other_end_may_close_in_the_middle_of_a_message(end: End) -> None:
    end.other.sendall(packet(b"whole") + packet(b"cut")[:5])
    end.other.close()
    end.poll()
    end.poll()  # the event loop looks again, because the end came together with the bytes
    assert end.received == [b"whole"]
    assert end.ended == ["the other end closed the link"]


def test_what_the_other_end_sent_before_it_closed_is_read(end: End) -> None:
    end.other.sendall(packet(b"last"))
    end.other.close()
    end.stream.send(b"in vain")
    assert (end.ended, end.stream.backlog_bytes) == ([], 0)
    end.poll()
    end.poll()
    assert end.received == [b"last"]
    assert end.ended == ["the other end closed the link"]


def test_messages_wait_for_room_and_arrive_in_order(end: End) -> None:
    messages = [bytes([number]) * 50_000 for number in range(100)]
    for message in messages:
        end.stream.send(message)
    assert end.stream.backlog_bytes > 0
    data = b""
    while end.stream.backlog_bytes:
        data += end.sent()
        end.poll()
    data += end.sent()
    assert data == b"".join(map(packet, messages))
    assert end.writers == {}


def test_a_stream_whose_other_end_does_not_read_ends(end: End, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_stream, "_MAX_BACKLOG_BYTES", 1_000_000)
    for _ in range(100):
        end.stream.send(bytes(50_000))
        assert end.stream.backlog_bytes <= 1_000_000 + 50_004
    assert len(end.ended) == 1
    assert "bytes wait for the other end" in end.ended[0]
    assert end.stream.closed


def test_answers_to_one_read_leave_together_and_in_order(end: End) -> None:
    end.on_message = lambda message: end.stream.send(b"re: " + message)
    feed(end, packet(b"1") + packet(b"2") + packet(b"3"))
    assert end.sent() == packet(b"re: 1") + packet(b"re: 2") + packet(b"re: 3")
    assert end.stream.backlog_bytes == 0


def test_held_messages_leave_with_the_next_one_and_in_order(end: End) -> None:
    end.stream.hold(b"1")
    end.stream.hold(b"2")
    assert end.sent() == b""
    end.stream.send(b"3")
    assert end.sent() == packet(b"1") + packet(b"2") + packet(b"3")
    end.stream.hold(b"4")
    end.stream.flush()
    assert end.sent() == packet(b"4")
    assert end.stream.backlog_bytes == 0


@pytest.mark.parametrize("error", [LinkError("no message"), KeyError("a bug")])
def test_an_error_of_a_handler_ends_the_stream(end: End, error: Exception) -> None:
    def fail(message: bytes) -> None:
        raise error

    end.on_message = fail
    feed(end, packet(b"1") + packet(b"2"))
    assert end.ended == ["no message" if isinstance(error, LinkError) else "internal error"]
    assert end.stream.closed


def test_a_handler_may_close_the_stream(end: End) -> None:
    def close(message: bytes) -> None:
        end.received.append(message)
        end.stream.close()

    end.on_message = close
    feed(end, packet(b"1") + packet(b"2"))
    assert end.received == [b"1"]
    assert end.ended == []


def test_sending_to_an_end_that_is_gone_ends_the_stream_once(end: End) -> None:
    end.other.close()
    end.stream.send(b"one")
    end.stream.send(b"two")
    end.poll()
    end.stream.send(b"three")
    assert end.ended == ["the other end closed the link"]
    assert end.stream.closed
