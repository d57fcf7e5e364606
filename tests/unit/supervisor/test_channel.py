"""Messages and descriptors between two real sockets."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from receiver.supervisor.channel import MAX_FDS, ChannelError, ControlChannel, file_of, read_file


@pytest.fixture
def ends() -> Iterator[tuple[ControlChannel, ControlChannel]]:
    one, other = ControlChannel.pair()
    yield one, other
    one.close()
    other.close()


@pytest.fixture
def raw() -> Iterator[tuple[socket.socket, ControlChannel]]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = ControlChannel(other)
    yield one, channel
    one.close()
    channel.close()


def open_files() -> set[str]:
    return {fd.name for fd in Path("/proc/self/fd").iterdir()}


def test_messages_arrive_whole_and_in_order(ends: tuple[ControlChannel, ControlChannel]) -> None:
    one, other = ends
    assert one.send("configure", names=["CLIENT", "blank name"], after_s=0.5)
    assert one.send("commit")
    first, second = other.receive(), other.receive()
    assert first is not None
    assert (first.type, first.fields) == ("configure", {"names": ["CLIENT", "blank name"], "after_s": 0.5})
    assert second is not None
    assert (second.type, second.fields, list(second.fds)) == ("commit", {}, [])
    assert other.receive() is None
    assert other.send("pong")
    assert one.receive() is not None


def test_descriptors_are_copied_and_not_inherited(ends: tuple[ControlChannel, ControlChannel]) -> None:
    one, other = ends
    left, right = socket.socketpair()
    fd = file_of(b"text")
    with left, right:
        assert one.send("link", fds=[right.fileno(), fd])
    os.close(fd)
    message = other.receive()
    assert message is not None
    for fd in message.fds:
        assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    link, text = message.fds
    assert read_file(text) == b"text"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(text)
    with socket.socket(fileno=link) as received:
        assert received.recv(1) == b""  # the sender has closed the other end


def test_as_many_descriptors_as_the_kernel_passes(ends: tuple[ControlChannel, ControlChannel]) -> None:
    one, other = ends
    before = open_files()
    with Path("/dev/null").open() as null:
        assert one.send("configure", fds=[null.fileno()] * MAX_FDS)
        assert not one.send("configure", fds=[null.fileno()] * (MAX_FDS + 1))
    message = other.receive()
    assert message is not None
    assert len(message.fds) == MAX_FDS
    message.close()
    assert open_files() == before
    assert other.receive() is None


def test_a_large_file_in_memory() -> None:
    content = bytes(range(256)) * 40_000
    assert read_file(file_of(content)) == content


def test_the_end_of_the_other_process(ends: tuple[ControlChannel, ControlChannel]) -> None:
    one, other = ends
    one.send("drained")
    one.close()
    assert one.fileno() == -1
    last = other.receive()
    assert last is not None
    assert last.type == "drained"
    for _ in range(2):
        with pytest.raises(EOFError):
            other.receive()
    assert not other.send("ping")


def test_a_full_socket_refuses_and_never_blocks(ends: tuple[ControlChannel, ControlChannel]) -> None:
    one, other = ends
    sent = 0
    while one.send("ping", number=sent):
        sent += 1
        assert sent < 100_000
    for number in range(sent):
        message = other.receive()
        assert message is not None
        assert message.fields == {"number": number}
    assert other.receive() is None
    assert one.send("ping")


@pytest.mark.parametrize("packet", [b"{", b"\xff", b"[]", b"5", b'"text"', b"null", b"{}", b'{"other": 1}'])
def test_a_packet_that_is_no_message(raw: tuple[socket.socket, ControlChannel], packet: bytes) -> None:
    one, channel = raw
    before = open_files()
    with Path("/dev/null").open() as null:
        socket.send_fds(one, [packet], [null.fileno()])
    with pytest.raises(ChannelError, match="not a message"):
        channel.receive()
    assert open_files() == before
    one.send(b'{"type": "ping"}')
    message = channel.receive()
    assert message is not None
    assert message.type == "ping"


def test_a_packet_that_is_too_long(raw: tuple[socket.socket, ControlChannel]) -> None:
    one, channel = raw
    one.send(b'{"type": "%s"}' % (b"x" * 70_000))
    with pytest.raises(ChannelError, match="cut"):
        channel.receive()


def test_the_user_of_the_other_process(ends: tuple[ControlChannel, ControlChannel]) -> None:
    assert [end.peer_uid for end in ends] == [os.geteuid()] * 2


def test_the_messages_of_a_supervisor_that_died_end(ends: tuple[ControlChannel, ControlChannel]) -> None:
    one, other = ends
    one.send("ping")
    one.send("drain", after_s=0.0)
    one.close()
    assert [message.type for message in other.messages()] == ["ping", "drain"]
    assert list(other.messages()) == []


def test_closing_twice_is_harmless(ends: tuple[ControlChannel, ControlChannel]) -> None:
    one, _ = ends
    with contextlib.closing(one):
        one.close()


def test_processes_that_read_a_file_at_once_all_get_it() -> None:
    content = b"x" * 5_000
    original = file_of(content)

    def read() -> set[bytes]:
        return {read_file(os.dup(original)) for _ in range(2_000)}  # a duplicate shares the offset

    with ThreadPoolExecutor(4) as pool:
        results = [future.result() for future in [pool.submit(read) for _ in range(4)]]
    os.close(original)
    assert results == [{content}] * 4
