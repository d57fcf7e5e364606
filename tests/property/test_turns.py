"""The compiled turns decide as those in Python: which socket is called when, and who waits."""

from __future__ import annotations

import select
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from receiver import turns
from receiver.wire import walk
from tests.exploration import examples
from tests.property.wire.test_walk import in_python

pytestmark = pytest.mark.skipif(walk.compiled is None, reason="the extension is not built")

SOCKETS, SHARES = 6, 3
READABLE = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET

#: What a callback does: nothing, has more, fails, removes itself or its neighbour, or has asyncio
#: called; and the hundredths of a share that it takes.
effects = st.tuples(
    st.sampled_from(["", "", "more", "more", "fail", "remove", "remove next", "interrupt"]),
    st.sampled_from([0, 30, 60, 100, 250]),
)
numbers = st.integers(0, SOCKETS - 1)
steps = st.one_of(
    st.tuples(st.sampled_from(["send", "end", "remove", "set", "wait"]), numbers),
    st.tuples(st.just("serve"), st.lists(effects, max_size=12)),
)


class World:
    """Turns of one kind, over socket pairs, with a clock that only callbacks move."""

    def __init__(self, module: ModuleType) -> None:
        self.epoll = select.epoll()
        self.turns: turns.Turns = module.Turns(self.epoll, self._failed)
        self.turns._clock = self._clock
        self.turns._polled = self.now = 0.0
        self.shares = [module.Share() for _ in range(SHARES)]
        self.pairs = [socket.socketpair() for _ in range(SOCKETS)]
        self.of = {own.fileno(): number for number, (own, _) in enumerate(self.pairs)}
        self.effects: Iterator[tuple[str, int]] = iter(())
        self.log: list[str] = []
        for number in range(SOCKETS):
            self._set(number)
        self.asyncios, self.other = socket.socketpair()  # a socket of asyncio
        self.epoll.register(self.asyncios, select.EPOLLIN | select.EPOLLET)
        self.of[self.asyncios.fileno()] = SOCKETS

    def _clock(self) -> float:
        return self.now

    def _failed(self, error: Exception) -> None:
        self.log.append(repr(error))

    def _set(self, number: int) -> None:
        fd = self.pairs[number][0].fileno()
        if fd not in self.turns.callbacks:
            self.epoll.register(fd, READABLE)
            self.turns.callbacks[fd] = (lambda: self._call(number)), self.shares[number % SHARES]

    def _remove(self, number: int) -> None:
        fd = self.pairs[number][0].fileno()
        if self.turns.callbacks.pop(fd, None) is not None:
            self.epoll.unregister(fd)

    def _call(self, number: int) -> bool:
        effect, hundredths = next(self.effects, ("", 0))
        self.log.append(f"{number} {effect}")
        self.now += hundredths * turns.SHARE_S / 100
        match effect:
            case "fail":
                raise ValueError(number)
            case "remove":
                self._remove(number)
            case "remove next":
                self._remove((number + SHARES) % SOCKETS)
            case "interrupt":
                self.turns.interrupted = True
        return effect == "more"

    def step(self, name: str, value: Any) -> tuple[object, ...]:
        """Do something; return what can be seen."""
        match name:
            case "send" if value % 5:
                with suppress(BrokenPipeError):  # it has ended
                    self.pairs[value][1].send(b"x")
            case "send":
                self.other.send(b"x")
            case "end":
                self.pairs[value][1].shutdown(socket.SHUT_WR)
            case "remove":
                self._remove(value)
            case "set":
                self._set(value)
            case "wait":
                fd = self.pairs[value][0].fileno()
                self.turns.wait(fd, self.shares[value % SHARES], ending=False)
            case "serve":
                self.effects = iter(value)
                self.turns.serve(0)
        now = self.turns
        return (
            list(self.log),
            [(self.of[fd], events) for fd, events in now.due.items()],
            (now.deferred, now.interrupted, now.longest_turn_s, now._polled, now._turn),
            [self.shares.index(share) for share in now._waiting],
            [self._share(share) for share in self.shares],
        )

    def _share(self, share: turns.Share) -> tuple[object, ...]:
        return share.turn, share.left_s, [(self.of[fd], ending) for fd, ending in share.waiting.items()]

    def close(self) -> None:
        self.turns.close()
        for side in (self.asyncios, self.other, *(side for pair in self.pairs for side in pair)):
            side.close()


@contextmanager
def worlds() -> Iterator[list[World]]:
    with closing(World(turns)) as compiled, closing(World(in_python(turns))) as python:
        yield [compiled, python]


@settings(max_examples=examples(300))
@given(st.lists(steps, max_size=30))
def test_both_turns_make_the_same_calls(todo: list[tuple[str, Any]]) -> None:
    with worlds() as (compiled, python), closing(World(turns)) as measured:
        # As the attack suite does, which measures turns.
        measured.turns.serve = measured.turns.serve_in_python  # type: ignore[method-assign]
        for name, value in todo:
            for world in (compiled, python, measured):
                if name == "serve":
                    world.turns.due.clear()
            seen = compiled.step(name, value)
            assert seen == python.step(name, value), (name, value)
            assert seen == measured.step(name, value), (name, value)


@pytest.mark.parametrize("timeout", [0.0, -3.0, 0.0005, 0.02])
def test_turns_end_when_the_timeout_is_over(timeout: float) -> None:
    with worlds() as both:
        for world in both:
            world.turns._clock = None
            world.turns.serve(timeout)
            assert world.turns._turn >= 1
            assert not world.log


def test_turns_without_an_end_go_on_until_asyncio_has_something_due() -> None:
    with worlds() as both:
        for world in both:
            sender = threading.Thread(target=world.other.send, args=(b"x",))
            world.pairs[1][1].send(b"x")
            sender.start()  # another thread runs while this one waits
            while not world.turns.due:
                world.turns.serve(None)
            sender.join()
            assert world.log == ["1 "]


def serve_with_a_signal(world: World) -> None:
    timer = threading.Timer(0.01, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1))
    timer.start()
    world.turns.serve(None)


def test_a_signals_handler_runs_while_no_python_does() -> None:
    class HandledError(Exception):
        pass

    def handle(*_: object) -> None:
        raise HandledError

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with worlds() as both:
            for world in both:
                with pytest.raises(HandledError):
                    serve_with_a_signal(world)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_is_no_exception_of_a_callback_ends_the_turn() -> None:
    with worlds() as both:
        for world in both:

            def interrupted() -> bool:
                raise KeyboardInterrupt

            fd = world.pairs[2][0].fileno()
            world.turns.callbacks[fd] = interrupted, world.shares[0]
            world.pairs[2][1].send(b"x")
            with pytest.raises(KeyboardInterrupt):
                world.turns.serve(0)
            assert not world.log


@pytest.mark.parametrize("entry", [None, (), (int,), (int, 7), ("no callback", None)])
def test_an_entry_of_another_kind_is_an_error(entry: Any) -> None:
    with closing(World(turns)) as world:
        world.turns.callbacks[world.pairs[1][0].fileno()] = entry
        world.pairs[1][1].send(b"x")
        with pytest.raises((TypeError, IndexError, SystemError)):
            world.turns.serve(0)


def test_a_closed_epoll_object_is_an_error() -> None:
    for world in (World(turns), World(in_python(turns))):
        world.close()
        with pytest.raises((OSError, ValueError)):
            world.turns.serve(0)
