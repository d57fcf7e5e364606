"""Applies a new configuration: in all processes, or in none."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from receiver.amounts import count_text
from receiver.log import configure as configure_log
from receiver.settings.errors import SettingsError
from receiver.settings.model import ReceiverSettings
from receiver.supervisor import times
from receiver.supervisor.channel import Message, file_of
from receiver.supervisor.child import Child
from receiver.supervisor.core import Core
from receiver.supervisor.current import Current
from receiver.supervisor.poll import Poll
from receiver.supervisor.relay_count import wanted_relays
from receiver.supervisor.relays import Relays
from receiver.supervisor.report import Report
from receiver.supervisor.sockets import REST, ListeningSockets, SocketError
from receiver.supervisor.states import ENDING, ChildState, Lifecycle, State
from receiver.supervisor.takeover import TakeOverError
from receiver.supervisor.takeover.control_socket import ControlSocket, check_unused
from receiver.supervisor.takeover.successor import HandOver
from spark_streaming import dumps

_log = structlog.get_logger("receiver.supervisor")


class _Candidate:
    """A configuration that may come into force.

    Args:
        number: Tells the answers to this configuration from those to an earlier one.
        control: Its control socket, if that is another one.

    Attributes:
        problem: Why it can't be applied; None so far.
    """

    def __init__(
        self,
        number: int,
        settings: ReceiverSettings,
        sockets: ListeningSockets,
        control: ControlSocket | None,
    ) -> None:
        self.number = number
        self.settings = settings
        self.sockets = sockets
        self.control = control
        self.problem: str | None = None
        self._asked: list[Child] = []
        self._waiting: set[Child] = set()

    def ask(self, child: Child, fds: Sequence[int], **fields: Any) -> None:
        """Have a process prepare the configuration."""
        relays = wanted_relays(self.settings)
        if child.channel.send("configure", fds=fds, reload=self.number, relays=relays, **fields):
            self._asked.append(child)
            self._waiting.add(child)
        else:
            self.problem = f"the process {child.name} does not read its messages"

    def answered(self, child: Child, problem: str | None) -> None:
        """Take an answer of a process, which may be why it can't use the configuration."""
        if self.problem is None:
            self.problem = problem
        self._waiting.discard(child)

    def left(self, child: Child) -> None:
        """Go on without a process that has ended.

        It starts with the configuration in force.
        """
        self._waiting.discard(child)
        if child in self._asked:
            self._asked.remove(child)

    @property
    def waits_for(self) -> list[str]:
        """The names of the processes that have not answered."""
        return sorted(child.name for child in self._waiting)

    def commit(self) -> None:
        """Have all processes apply the configuration."""
        self._waiting = set(self._asked)
        for child in self._asked:
            child.channel.send("commit")

    def abort(self) -> None:
        """Have all processes drop the configuration, and close its new sockets."""
        for child in self._asked:
            child.channel.send("abort")
        if self.control is not None:
            self.control.close()
        self.sockets.discard()


class Reload:
    """The reloads of one receiver, one after the other.

    Args:
        load: Loads the configuration, or raises SettingsError.
        sourced: Adds the file or the variable of its key to an error.
        hand_over: Its control socket may move.
    """

    def __init__(
        self,
        load: Callable[[], ReceiverSettings],
        sourced: Callable[[SettingsError], SettingsError],
        *,
        core: Core,
        relays: Relays,
        hand_over: HandOver,
        poll: Poll,
        lifecycle: Lifecycle,
        current: Current,
        report: Report,
    ) -> None:
        self._load = load
        self._sourced = sourced
        self._core = core
        self._relays = relays
        self._hand_over = hand_over
        self._poll = poll
        self._lifecycle = lifecycle
        self._current = current
        self._report = report
        self._numbers = itertools.count(1)
        self._candidate: _Candidate | None = None
        self._waits = False  # whether one was asked for that could not begin

    def ask(self) -> None:
        """Begin a reload, or do it once the receiver is ready for it."""
        if self._lifecycle.state in ENDING:
            return
        # Processes that start have read the old configuration, and could not be asked.
        ready = all(child.state is ChildState.READY for child in self._permanent())
        if self._lifecycle.state is State.RUNNING and ready:
            self._begin()
        else:
            self._waits = True

    def ask_again(self) -> None:
        """Begin a reload that had to wait."""
        if self._waits and self._candidate is None:
            self._waits = False
            self.ask()

    def answered(self, child: Child, message: Message) -> None:
        """Take a process's answer to the configuration."""
        candidate = self._candidate
        if candidate is not None and message.fields.get("reload") == candidate.number:
            candidate.answered(child, self._problem(message) if message.type == "refused" else None)
            self._go_on()

    def _problem(self, message: Message) -> str:
        problem, place = str(message.fields["problem"]), message.fields.get("place")
        if place is None:
            return problem
        loc = tuple(place.pop("loc"))
        error = self._sourced(SettingsError(problem=problem, loc=loc, **place))
        return f"{error}{_more(message.fields.get('further', 0))}"

    def left(self, child: Child) -> None:
        """Go on without a process that has ended."""
        if self._candidate is not None:
            self._candidate.left(child)
            self._go_on()

    def give_up(self) -> None:
        """Leave the configuration as it is, because the receiver stops."""
        if self._candidate is not None and self._lifecycle.state is State.PREPARING:
            self._candidate.abort()
        self._candidate = None

    def _permanent(self) -> list[Child]:
        core = () if self._core.child is None else (self._core.child,)
        return [*core, *self._relays]

    def _begin(self) -> None:
        try:
            candidate = self._new()
        except SettingsError as error:
            self._failed(f"{error}{_more(len(error.further))}")
            return
        except (SocketError, TakeOverError) as error:
            self._failed(str(error))
            return
        self._candidate = candidate
        self._lifecycle.enter(State.PREPARING)
        sockets, listening = candidate.sockets, candidate.sockets.of_listeners
        fd = file_of(candidate.settings.model_dump_json(by_alias=True).encode())
        if self._core.child is not None:
            bridge = sockets.bridge
            of_core = [sockets[REST].fileno(), *([] if bridge is None else [bridge.fileno()])]
            candidate.ask(self._core.child, [fd, *of_core])
        for relay in self._relays:
            candidate.ask(
                relay, [fd, *(bound.fileno() for bound in listening.values())], names=list(listening)
            )
        os.close(fd)
        self._poll.call_later(times.RELOAD_WITHIN_S, lambda: self._late(candidate, State.PREPARING))
        self._go_on()

    def _new(self) -> _Candidate:
        settings = self._load()
        sockets = ListeningSockets(settings, self._current.sockets.by_name)
        control = None
        path = settings.gateway.control
        if path is not None and path != self._current.settings.gateway.control:
            try:
                check_unused(path)
                control = ControlSocket(path)
            except TakeOverError:
                sockets.discard()
                raise
        return _Candidate(next(self._numbers), settings, sockets, control)

    def _late(self, candidate: _Candidate, state: State) -> None:
        """End a reload that a process does not answer."""
        if self._candidate is not candidate or self._lifecycle.state is not state:
            return
        problem = f"no answer within {times.RELOAD_WITHIN_S:.0f} s from {', '.join(candidate.waits_for)}"
        if state is State.PREPARING:
            candidate.problem = problem
            self._go_on()
        else:
            _log.error("configuration reloaded, but not by all processes", problem=problem)
            self._report.refused(problem)
            self._end()

    def _go_on(self) -> None:
        candidate = self._candidate
        if candidate is None:
            return
        if self._lifecycle.state is State.PREPARING and candidate.problem is None and not candidate.waits_for:
            try:
                candidate.sockets.listen()
            except SocketError as error:
                candidate.problem = str(error)
            else:
                self._commit(candidate)
        if self._lifecycle.state is State.PREPARING and candidate.problem is not None:
            candidate.abort()
            self._failed(candidate.problem)
            self._end()
        elif self._lifecycle.state is State.APPLYING and not candidate.waits_for:
            _log.info("configuration reloaded", relays=len(self._relays))
            self._report.applied()
            self._end()

    def _commit(self, candidate: _Candidate) -> None:
        self._lifecycle.enter(State.APPLYING)
        candidate.commit()
        self._poll.call_later(times.RELOAD_WITHIN_S, lambda: self._late(candidate, State.APPLYING))
        settings = candidate.settings
        if settings.gateway.control != self._current.settings.gateway.control:
            self._hand_over.use_control(candidate.control)
        configure_log(settings.log)
        dumps.apply(dumpable=settings.debug.dumpable)
        self._current.replace(settings, candidate.sockets)
        self._relays.resize()

    def _end(self) -> None:
        self._candidate = None
        self._lifecycle.enter(State.RUNNING)
        self.ask_again()

    def _failed(self, problem: str) -> None:
        _log.error("configuration not reloaded", problem=problem)
        self._report.refused(problem)


def _more(mistakes: int) -> str:
    return f" (and {count_text(mistakes, 'more mistake')})" if mistakes else ""
