"""Watches the child processes: their messages, life and end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

import structlog

from receiver.supervisor import times
from receiver.supervisor.backoff import Backoff
from receiver.supervisor.channel import ChannelError, Message
from receiver.supervisor.child import Child
from receiver.supervisor.poll import Poll
from receiver.supervisor.states import ChildState, Lifecycle, State

_log = structlog.get_logger("receiver.supervisor")


class ChildEvents(Protocol):
    """What the supervisor does about its children."""

    def ready(self, child: Child) -> None:
        """Handle that a process has become ready."""

    def received(self, child: Child, message: Message) -> None:
        """Handle another message of a process."""

    def ended(self, child: Child, how: str, ran_s: float) -> None:
        """Handle the end of a process that ran so many seconds."""

    def cannot_start(self, problem: str, status: int) -> None:
        """End the start with an exit status."""


class Children:
    """The running child processes, in the order of their start.

    Args:
        poll: Calls this for their messages and their end.
        lifecycle: Ended if a process can't be started while the receiver starts.
        events: Called for what a process says, and for its end.
    """

    def __init__(self, poll: Poll, lifecycle: Lifecycle, events: ChildEvents) -> None:
        self._poll = poll
        self._lifecycle = lifecycle
        self._events = events
        self._running: list[Child] = []

    def __iter__(self) -> Iterator[Child]:
        return iter(tuple(self._running))

    @property
    def all_started(self) -> bool:
        """Whether each has said that it is ready."""
        return all(child.state > ChildState.STARTING for child in self._running)

    def add(self, child: Child) -> None:
        """Watch a process that has been started."""
        self._running.append(child)
        self._poll.watch(child.channel, lambda: self._read(child))
        self._poll.watch(child.pidfd, lambda: self._ended(child))

    def cannot_fork(self, name: str, error: OSError, backoff: Backoff, again: Callable[[], None]) -> None:
        """End the start for want of a process, or try again later."""
        problem = f"the process {name} cannot be started: {error.strerror or error}"
        if self._lifecycle.state is State.STARTING:
            self._events.cannot_start(problem, 1)
            return
        delay_s = backoff.died(0.0)
        _log.error("a process cannot be started", problem=problem, restart_in_s=delay_s)
        self._poll.call_later(delay_s, again)

    def ping(self) -> None:
        """Ask each process whether it is alive, and kill those that have not answered.

        Repeat. Time without a processor counts twenty times less.
        """
        for child in self._running:
            started = child.state > ChildState.STARTING
            most = times.MAX_UNANSWERED if started else times.MAX_UNREADY
            if child.unanswered >= most or child.starved >= times.MAX_STARVED:
                event = "does not answer" if started else "does not become ready"
                _log.error(f"a process {event}, it is killed", process=child.name, pid=child.pid)
                child.kill()
                continue
            child.asked()
            if started:
                child.channel.send("ping")
        self._poll.call_later(times.PING_EVERY_S, self.ping)

    def kill_later(self, seconds: float, children: Collection[Child]) -> None:
        """Kill those of the processes that have not ended by then."""

        def kill() -> None:
            for child in children:
                if child.runs:
                    _log.warning("a process did not end in time, it is killed", process=child.name)
                    child.kill()

        self._poll.call_later(seconds, kill)

    def close(self) -> None:
        """Kill and reap all."""
        for child in self._running:
            child.kill()
        for child in self._running:
            child.reap()

    def _read(self, child: Child) -> None:
        if not self._poll.watches(child.channel):
            return  # an earlier event of the same turn has closed it
        try:
            while (message := child.channel.receive()) is not None:
                self._handle(child, message)
                message.close()
        except EOFError:
            self._poll.forget(child.channel)
        except ChannelError as error:
            _log.error("a process sent nonsense, it is killed", process=child.name, problem=str(error))
            child.kill()

    def _handle(self, child: Child, message: Message) -> None:
        match message.type:
            case "pong":
                child.answered()
            case "ready":
                child.reach(ChildState.READY)
                child.answered()
                self._events.ready(child)
            case "failed":
                child.problem = str(message.fields["problem"])
                child.status = int(message.fields["status"])
            case "drained":
                child.reach(ChildState.LEAVING)
            case _:
                self._events.received(child, message)

    def _ended(self, child: Child) -> None:
        self._read(child)  # its last messages
        if self._poll.watches(child.channel):
            self._poll.forget(child.channel)
        self._poll.forget(child.pidfd)
        ran_s = time.monotonic() - child.started
        how = child.reap()
        self._running.remove(child)
        self._events.ended(child, how, ran_s)
