"""The event loop serves direct callbacks beside asyncio's own work."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from itertools import pairwise

import pytest

from receiver.event_loop import MAX_DUE, run, running_loop
from receiver.turns import Share
from tests.unit.gateway.support import eventually, on_loop, pair, reset


async def readable_bytes(end: socket.socket) -> None:
    """Wait until the system has bytes, an end or a reset for this socket."""
    await eventually(lambda: bool(select.select([end], [], [], 0)[0]), "bytes to read")


def test_a_direct_callback_is_called_as_often_as_bytes_arrive() -> None:
    async def main() -> None:
        one, other = pair()
        seen: list[bytes] = []
        loop = running_loop()

        def readable() -> bool:
            seen.append(one.recv(2))
            return True

        def drained() -> bool:
            try:
                return readable()
            except BlockingIOError:
                return False

        loop.set_direct_reader(one.fileno(), drained)
        for data, sent in ((b"abcde", b"abcde"), (b"f", b"abcdef")):
            other.sendall(data)
            await eventually(lambda sent=sent: b"".join(seen) == sent, "the bytes")  # type: ignore[misc]
        loop.set_direct_reader(one.fileno(), None)
        other.sendall(b"unseen")
        await readable_bytes(one)
        await asyncio.sleep(0)
        assert b"".join(seen) == b"abcdef"
        one.close()
        other.close()

    on_loop(main())


def test_a_reset_that_comes_with_data_is_seen_after_the_data() -> None:
    async def main() -> None:
        one, other = pair()
        seen: list[bytes | None] = []
        loop = running_loop()

        def readable() -> bool:
            try:
                seen.append(one.recv(100))
            except ConnectionResetError:
                seen.append(None)
                loop.set_direct_reader(one.fileno(), None)
            return False

        # Both are there before the loop looks for the first time: one event for the two.
        other.sendall(b"answer")
        reset(other)
        await readable_bytes(one)
        loop.set_direct_reader(one.fileno(), readable)
        # The system may throw the data away with the reset; what must not be missed is the reset.
        await eventually(lambda: seen[-1:] == [None], "the reset")
        one.close()

    on_loop(main())


def test_the_end_that_comes_with_data_is_seen_after_the_data() -> None:
    async def main() -> None:
        one, other = pair()
        seen: list[bytes] = []
        loop = running_loop()

        def readable() -> bool:
            seen.append(one.recv(100))
            if not seen[-1]:
                loop.set_direct_reader(one.fileno(), None)
            return False

        other.sendall(b"answer")
        other.shutdown(socket.SHUT_WR)
        await readable_bytes(one)
        loop.set_direct_reader(one.fileno(), readable)
        await eventually(lambda: seen == [b"answer", b""], "the end")
        one.close()
        other.close()

    on_loop(main())


def test_one_socket_can_have_a_reader_and_a_writer() -> None:
    async def main() -> None:
        one, other = pair()
        loop = running_loop()
        read: list[bytes] = []
        written = asyncio.Event()

        def readable() -> bool:
            try:
                read.append(one.recv(100))
            except BlockingIOError:
                return False
            return True

        def writable() -> bool:
            one.send(b"out")
            loop.set_direct_writer(one.fileno(), None)
            written.set()
            return False

        loop.set_direct_reader(one.fileno(), readable)
        loop.set_direct_writer(one.fileno(), writable)
        await asyncio.wait_for(written.wait(), 120)
        other.sendall(b"in")
        await eventually(lambda: read == [b"in"], "the bytes")
        assert other.recv(100) == b"out"
        loop.set_direct_reader(one.fileno(), None)
        one.close()
        other.close()

    on_loop(main())


def test_timers_tasks_and_threads_are_served_while_direct_callbacks_are_busy() -> None:
    async def main() -> None:
        one, other = pair()
        loop = running_loop()
        rounds = 0

        def bounce() -> bool:
            nonlocal rounds
            rounds += 1
            one.recv(1)
            other.send(b"x")  # so the socket is always readable again
            return False

        loop.set_direct_reader(one.fileno(), bounce)
        other.send(b"x")
        await eventually(lambda: rounds > 10, "ten rounds")
        called = asyncio.Event()
        thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(called.set))
        thread.start()
        await asyncio.wait_for(called.wait(), 120)
        thread.join()
        assert await asyncio.create_task(asyncio.sleep(0.01, "done")) == "done"
        loop.set_direct_reader(one.fileno(), None)
        one.close()
        other.close()

    on_loop(main())


def test_what_a_direct_callback_asks_of_asyncio_happens() -> None:
    async def main() -> None:
        one, other = pair()
        loop = running_loop()
        soon, later = asyncio.Event(), asyncio.Event()

        def readable() -> bool:
            one.recv(100)
            loop.call_soon(soon.set)
            loop.call_later(0.01, later.set)
            return False

        loop.set_direct_reader(one.fileno(), readable)
        threading.Timer(0.05, other.send, (b"x",)).start()
        await soon.wait()
        await later.wait()
        loop.set_direct_reader(one.fileno(), None)
        one.close()
        other.close()

    on_loop(main())


def test_a_failing_direct_callback_is_reported_and_ends_nothing() -> None:
    reports: list[str] = []

    async def main() -> None:
        one, other = pair()
        loop = running_loop()
        loop.set_exception_handler(lambda _, context: reports.append(repr(context["exception"])))

        def readable() -> bool:
            one.recv(100)
            raise ValueError("a mistake")

        loop.set_direct_reader(one.fileno(), readable)
        for number in (1, 2):
            other.send(b"x")
            await eventually(lambda number=number: len(reports) == number, "a report")  # type: ignore[misc]
        loop.set_direct_reader(one.fileno(), None)
        one.close()
        other.close()

    run(main())
    assert reports == ["ValueError('a mistake')"] * 2


def test_the_gateway_says_which_loop_it_needs() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="needs a DirectEventLoop"):
            running_loop()

    asyncio.run(main())


@pytest.mark.parametrize("room", [1, 2, 3, 4, 9, 10, 11])
def test_the_end_behind_more_than_one_buffer_is_seen(room: int) -> None:
    """The kernel tells of the end once, with the first of the bytes."""

    async def main() -> None:
        one, other = pair()
        loop = running_loop()
        seen: list[bytes] = []

        def readable() -> bool:
            try:
                seen.append(one.recv(room))
            except BlockingIOError:
                return False
            if not seen[-1]:
                loop.set_direct_reader(one.fileno(), None)
            return len(seen[-1]) == room

        other.sendall(b"0123456789")
        other.shutdown(socket.SHUT_WR)
        await readable_bytes(one)
        loop.set_direct_reader(one.fileno(), readable)
        await eventually(lambda: seen[-1:] == [b""], "the end")
        assert b"".join(seen) == b"0123456789"
        one.close()
        other.close()

    on_loop(main())


def test_asyncio_gets_a_few_ready_sockets_in_each_turn_and_all_in_order() -> None:
    """So a thousand clients that end at once delay nobody for long."""
    calls: list[int] = []
    turns: list[int] = []

    async def main() -> None:
        loop = running_loop()
        pairs = [socket.socketpair() for _ in range(5 * MAX_DUE)]
        direct, other = socket.socketpair()
        for _, end in (*pairs, (direct, other)):
            end.send(b"x")

        def turn() -> bool:
            turns.append(len(calls))
            return True

        for number, (end, _) in enumerate(pairs):
            loop.add_reader(end, calls.append, number)
        loop.set_direct_reader(direct.fileno(), turn, Share())
        await eventually(lambda: len(calls) >= 3 * len(pairs), "three rounds")
        for end, _ in pairs:
            loop.remove_reader(end)
        # Sockets that wait and are watched no longer are forgotten.
        before = len(calls)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(calls) == before
        loop.set_direct_reader(direct.fileno(), None)
        for end in (direct, other, *(end for ends in pairs for end in ends)):
            end.close()

    run(main())
    assert max(later - before for before, later in pairwise(turns)) <= MAX_DUE
    rounds = [calls[at : at + 5 * MAX_DUE] for at in range(0, 3 * 5 * MAX_DUE, 5 * MAX_DUE)]
    assert all(len(set(served)) == 5 * MAX_DUE for served in rounds)


def test_a_socket_that_waits_is_forgotten_when_it_is_watched_anew() -> None:
    """Another socket may have its number by then, which would be taken for connected."""
    calls: list[str] = []

    async def main() -> None:
        loop = running_loop()
        pairs = [socket.socketpair() for _ in range(MAX_DUE + 1)]
        for _, end in pairs:
            end.send(b"x")
        last = pairs[-1][0]

        def watch_anew() -> None:
            calls.append("first")
            loop.remove_reader(pairs[0][0])
            loop.remove_reader(last)
            assert last.recv(1) == b"x"
            loop.add_reader(last, calls.append, "last")

        loop.add_reader(pairs[0][0], watch_anew)
        for end, _ in pairs[1:-1]:
            loop.add_reader(end, calls.append, "other")
        loop.add_reader(last, calls.append, "last")
        await eventually(lambda: calls.count("other") >= 3 * MAX_DUE, "some turns")
        assert "first" in calls
        assert "last" not in calls
        for end, other in pairs:
            loop.remove_reader(end)
            end.close()
            other.close()

    run(main())
