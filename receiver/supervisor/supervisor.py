"""Runs the core process and the relay processes, and restarts those that die.

Start: the sockets are bound, the core starts, and once it is ready the relays do, so that
everything that clients need is running. Restart: a relay that dies takes its own connections with
it; the core none. Stop: the relays finish responses in flight, and then the core exports what is
queued and stops the REST API last, so that the drain can be observed.

This module says what each event means in each state (:mod:`~receiver.supervisor.states`). The
modules beside it have one part each: children, core, relays, reload, takeover, stop.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Final

import structlog

from receiver.settings.errors import SettingsError
from receiver.settings.model import ReceiverSettings
from receiver.supervisor import times
from receiver.supervisor.channel import Message
from receiver.supervisor.child import Child
from receiver.supervisor.children import Children
from receiver.supervisor.core import Core, Linkable
from receiver.supervisor.current import Current
from receiver.supervisor.poll import Poll, Signals
from receiver.supervisor.relays import Relays
from receiver.supervisor.reload import Reload
from receiver.supervisor.report import Report
from receiver.supervisor.setup import RunCore, RunRelay
from receiver.supervisor.sockets import ListeningSockets, SocketError
from receiver.supervisor.states import ChildState, Lifecycle, State
from receiver.supervisor.stop import Stop
from receiver.supervisor.takeover import TakeOverError
from receiver.supervisor.takeover.control_socket import check_unused
from receiver.supervisor.takeover.predecessor import TakeOver
from receiver.supervisor.takeover.successor import HandOver

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_log = structlog.get_logger("receiver.supervisor")


class Supervisor:
    """The supervisor of one receiver.

    Args:
        load: Loads the configuration for a reload, or raises SettingsError.
        sourced: Adds the file or the variable of its key to an error.
        take_over: Whether to take over the running receiver at ``gateway.control``.
    """

    def __init__(
        self,
        settings: ReceiverSettings,
        *,
        load: Callable[[], ReceiverSettings],
        sourced: Callable[[SettingsError], SettingsError],
        run_core: RunCore,
        run_relay: RunRelay,
        take_over: bool = False,
    ) -> None:
        self._current = current = Current(settings)
        self._lifecycle = lifecycle = Lifecycle()
        self._poll = poll = Poll(lambda: lifecycle.state is not State.STARTING)
        self._children = children = Children(poll, lifecycle, self)
        self._report = report = Report(lambda: None if core.child is None else core.child.channel)
        self._core = core = Core(
            run_core,
            children=children,
            poll=poll,
            lifecycle=lifecycle,
            current=current,
            report=report,
            relays=self._linked_relays,
        )
        self._relays = relays = Relays(
            run_relay,
            core=core,
            children=children,
            poll=poll,
            lifecycle=lifecycle,
            current=current,
            report=report,
        )
        self._hand_over = hand_over = HandOver(
            core=core,
            relays=relays,
            poll=poll,
            lifecycle=lifecycle,
            current=current,
            failed=lambda: self._reload.ask_again(),
            left=lambda: self._stop.go_on(),
        )
        self._reload = Reload(
            load,
            sourced,
            core=core,
            relays=relays,
            hand_over=hand_over,
            poll=poll,
            lifecycle=lifecycle,
            current=current,
            report=report,
        )
        self._stop = Stop(
            core=core, relays=relays, lifecycle=lifecycle, current=current, began=self._reload.give_up
        )
        self._take_over = (
            TakeOver(core=core, poll=poll, lifecycle=lifecycle, current=current) if take_over else None
        )

    def run(self) -> int:
        """Run until SIGTERM or SIGINT.

        Returns:
            The exit status: 0 after a drain, 1 if the receiver cannot start, 2 if the configuration
            is wrong.
        """
        try:
            self._get_sockets()
        except (SocketError, TakeOverError) as error:
            _log.error("cannot start", problem=str(error))
            return 1
        signals = Signals(self._poll, _SIGNALS, self._signalled)
        try:
            self._core.start()
            self._poll.call_later(times.PING_EVERY_S, self._children.ping)
            while self._lifecycle.state is not State.ENDED:
                self._poll.wait()
            return self._lifecycle.status
        finally:
            self._children.close()
            self._current.sockets.close()
            self._hand_over.close()
            if self._take_over is not None:
                self._take_over.close()
            signals.close()
            self._poll.close()

    def _get_sockets(self) -> None:
        """Bind the listening sockets, or get them from the receiver that is taken over."""
        if self._take_over is not None:
            self._take_over.begin()
            return
        path = self._current.settings.gateway.control
        if path is not None:
            check_unused(path)
        self._current.sockets = ListeningSockets(self._current.settings)

    def _linked_relays(self) -> dict[str, Linkable]:
        adopted = {} if self._take_over is None else self._take_over.links()
        return self._relays.links() | adopted

    def _signalled(self, number: signal.Signals) -> None:
        if number is signal.SIGHUP:
            self._reload.ask()
        else:
            self._stop.signalled(number)

    # -- events of children ------------------------------------------------------------------------

    def ready(self, child: Child) -> None:
        """Go on with the start, or with a reload that waits."""
        if self._lifecycle.state in {State.STOPPING, State.EXPORTING, State.ENDED}:
            return
        if child is self._core.child:
            self._report.tell()
        if child in self._relays:
            self._relays.tell_nodes(child)
        if self._lifecycle.state is State.STARTING and child is self._core.child:
            self._start_relays()
        if self._lifecycle.state is State.STARTING and self._children.all_started:
            self._started()
        self._reload.ask_again()

    def _start_relays(self) -> None:
        try:
            self._current.sockets.listen()
        except SocketError as error:
            self.cannot_start(str(error), 1)
            return
        self._relays.start()

    def _started(self) -> None:
        self._lifecycle.enter(State.RUNNING)
        _log.info("started", rest=str(self._current.settings.rest.bind), relays=len(self._relays))
        if self._take_over is not None:
            self._take_over.accepting()
        self._hand_over.listen()

    def received(self, child: Child, message: Message) -> None:
        """Handle a message of a process."""
        match message.type:
            case "need_link":
                relay_id = self._relays.id_of(child)
                if not self._hand_over.links_relay(relay_id):
                    self._core.link(relay_id, self._relays.links()[relay_id])
            case "node":
                self._relays.share_node(child, message)
            case "prepared" | "refused" | "applied":
                self._reload.answered(child, message)

    def ended(self, child: Child, how: str, ran_s: float) -> None:
        """Start another process in the place of one that has ended, or go on without it."""
        if child is self._core.child:
            self._core.child = None
            self._core_ended(child, how, ran_s)
        else:
            self._relays.ended(child)
            self._relay_ended(child, how, ran_s)
        self._reload.left(child)
        self._reload.ask_again()

    def _core_ended(self, core: Child, how: str, ran_s: float) -> None:
        match self._lifecycle.state:
            case State.EXPORTING:
                self._stop.end()
            case State.LEAVING | State.STOPPING:
                if core.state is not ChildState.LEAVING:  # it died while the relays drain
                    _log.error("the core died", how=how)
                self._stop.go_on()
            case State.RELEASING:
                self._hand_over.core_ended()
            case State.STARTING:
                self._ended_too_early(core, how)
            case _:
                self._core.restart(core, how, ran_s)

    def _relay_ended(self, relay: Child, how: str, ran_s: float) -> None:
        match self._lifecycle.state:
            case State.LEAVING | State.STOPPING | State.EXPORTING:
                self._stop.go_on()
            case State.STARTING:
                self._ended_too_early(relay, how)
            case _:
                self._relays.restart(relay, how, ran_s)

    def _ended_too_early(self, child: Child, how: str) -> None:
        problem = child.problem or f"the process {child.name} ended: {how}"
        self.cannot_start(problem, child.status or 1)

    def cannot_start(self, problem: str, status: int) -> None:
        """End the start with an exit status, and tell the predecessor why."""
        _log.error("cannot start", problem=problem)
        if self._take_over is not None:
            self._take_over.failed(problem)
        self._lifecycle.end(status)
