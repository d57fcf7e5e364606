"""Hands this receiver over to a new version.

Until the new version accepts clients, this one can go on without it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable
from enum import Enum
from typing import Final

import structlog

from receiver.supervisor import times
from receiver.supervisor.channel import MAX_FDS, ChannelError, ControlChannel, Message
from receiver.supervisor.core import Core
from receiver.supervisor.current import Current
from receiver.supervisor.poll import Poll
from receiver.supervisor.relays import Relays
from receiver.supervisor.states import ENDING, Lifecycle, State
from receiver.supervisor.takeover import PROTOCOL_VERSION, TakeOverError
from receiver.supervisor.takeover.control_socket import ControlSocket

_log = structlog.get_logger("receiver.supervisor")


class Stage(Enum):
    """How far a take-over has come for the running version; see above."""

    CONNECTED = "say that it takes over"
    ASKED = "have this one's core end"
    ENDING = "wait"
    RELEASED = "accept clients"
    DONE = "drain"


class Successor:
    """The new version, for the one that runs.

    Attributes:
        stage: How far it has come.
    """

    def __init__(self, channel: ControlChannel) -> None:
        self.channel = channel
        self.stage = Stage.CONNECTED
        self._pidfd: int | None = None
        with contextlib.suppress(OSError):  # it has ended, or is in another namespace
            self._pidfd = os.pidfd_open(channel.peer_pid)

    @property
    def has_core(self) -> bool:
        """Whether this version's core ends or has ended for it."""
        return self.stage in {Stage.ENDING, Stage.RELEASED, Stage.DONE}

    def kill(self) -> bool:
        """Kill its supervisor, and so its processes; return whether it still ran."""
        if self._pidfd is None:
            return False
        ended, _, _ = select.select([self._pidfd], [], [], 0)
        if not ended:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        return not ended

    def close(self) -> None:
        """Close the channel, and forget the process."""
        self.channel.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


#: Why no version can take over in a state; in others it can, or this one is ending.
_BUSY: Final = {
    State.STARTING: "it is starting; try again",
    State.PREPARING: "it is reloading its configuration; try again",
    State.APPLYING: "it is reloading its configuration; try again",
    State.OFFERING: "another version is taking over",
    State.RELEASING: "another version is taking over",
}


class HandOver:
    """The control socket, and the new version that is connected to it.

    Args:
        failed: Called when a new version is gone that has not taken over.
        left: Called once the new version accepts clients, and the relays drain.
    """

    def __init__(
        self,
        *,
        core: Core,
        relays: Relays,
        poll: Poll,
        lifecycle: Lifecycle,
        current: Current,
        failed: Callable[[], None],
        left: Callable[[], None],
    ) -> None:
        self._core = core
        self._relays = relays
        self._poll = poll
        self._lifecycle = lifecycle
        self._current = current
        self._failed = failed
        self._left = left
        self._control: ControlSocket | None = None
        self._successor: Successor | None = None

    def listen(self) -> None:
        """Listen at gateway.control, if it is set."""
        path = self._current.settings.gateway.control
        if path is None:
            return
        try:
            self.use_control(ControlSocket(path))
        except TakeOverError as error:
            _log.error("no version can take over from this one", problem=str(error))

    def use_control(self, control: ControlSocket | None) -> None:
        """Listen at another socket, or at none."""
        if self._control is not None:
            self._poll.forget(self._control)
            self._control.close()
        self._control = control
        if control is not None:
            self._poll.watch(control, self._accept)

    def close(self) -> None:
        """Close the control socket and the channel to the new version."""
        if self._control is not None:
            self._control.close()
        if self._successor is not None:
            self._successor.close()

    def links_relay(self, relay_id: str) -> bool:
        """Have the new version link a relay to its core.

        Return False if this one still has one.
        """
        successor = self._successor
        if successor is None or not successor.has_core:
            return False
        # While this core ends, the new version waits for `released`, which names all relays.
        if successor.stage is not Stage.ENDING:
            successor.channel.send("need_link", fds=self._relays.traffic_of(relay_id), relay=relay_id)
        return True

    def core_ended(self) -> None:
        """Tell the new version that this one's core has ended, and which relays are left."""
        if self._successor is not None:
            slots = self._relays.slots
            tables = [fd for relay_id, _ in slots for fd in self._relays.traffic_of(relay_id)]
            self._successor.channel.send("released", fds=tables[:MAX_FDS], relays=slots)
            self._advance(self._successor, Stage.RELEASED)

    def _accept(self) -> None:
        channel = None if self._control is None else self._control.accept()
        if channel is None:
            return
        self._read()  # the one before may have asked by now
        if (problem := self._busy()) is not None:
            channel.send("refused", problem=problem)
            channel.close()
            return
        if self._successor is not None:  # it has said nothing yet
            self._lost(self._successor, "another process has connected")
        self._successor = Successor(channel)
        self._poll.watch(channel, self._read)
        self._advance(self._successor, Stage.CONNECTED)

    def _busy(self) -> str | None:
        state = self._lifecycle.state
        return "it is stopping" if state in ENDING else _BUSY.get(state)

    def _read(self) -> None:
        successor = self._successor
        if successor is None:
            return
        try:
            while self._successor is successor and (message := successor.channel.receive()) is not None:
                self._handle(successor, message)
        except EOFError:
            self._lost(successor, "the new version ended; its log may have the reason")
        except (ChannelError, LookupError, TypeError, ValueError) as error:
            self._lost(successor, str(error))

    def _handle(self, successor: Successor, message: Message) -> None:
        match message.type:
            case "take_over" if successor.stage is Stage.CONNECTED:
                self._offer(successor, message)
            case "release_core" if successor.stage is Stage.ASKED:
                self._release_core(successor)
            case "links" if successor.has_core:
                self._relays.pass_link(str(message.fields["relay"]), message.fds)
            case "accepting" if successor.stage is Stage.RELEASED:
                self._leave(successor)
            case "failed":
                self._lost(successor, f"the new version failed: {message.fields['problem']}")
            case _:
                message.close()
                raise ValueError(f"it sent {message.type!r} out of turn")
        message.close()

    def _offer(self, successor: Successor, message: Message) -> None:
        problem = self._busy()
        if message.fields.get("version") != PROTOCOL_VERSION:
            problem = f"it speaks version {PROTOCOL_VERSION} of the take-over; stop it and start anew"
        if problem is not None:
            self._refuse(successor, problem)
            return
        self._lifecycle.enter(State.OFFERING)
        self._advance(successor, Stage.ASKED)
        sockets = list(self._current.sockets.items())
        successor.channel.send(
            "sockets",
            fds=[listening.fileno() for _, _, listening in sockets],
            names=[(name, str(bind)) for name, bind, _ in sockets],
            drain_s=self._current.drain_s,
            nodes=list(self._current.nodes),
        )

    def _release_core(self, successor: Successor) -> None:
        _log.info("a new version takes over, the core stops")
        self._advance(successor, Stage.ENDING)
        if self._lifecycle.state is State.OFFERING:
            self._lifecycle.enter(State.RELEASING)
        if self._core.child is None:
            self.core_ended()
        else:
            self._core.stop(self._current.drain_s)

    def _leave(self, successor: Successor) -> None:
        """Keep the open connections until they end or the drain time is over."""
        self._advance(successor, Stage.DONE)
        if self._lifecycle.state is not State.RELEASING:
            return
        self._lifecycle.enter(State.LEAVING)
        drain_s = self._current.drain_s
        _log.info("a new version has taken over, open connections are kept", drain_s=drain_s)
        self._current.sockets.close()
        self._relays.drain(after_s=drain_s)
        self._left()

    def _advance(self, successor: Successor, stage: Stage) -> None:
        """Note how far the take-over has come, and wait for the next step."""
        successor.stage = stage
        within_s = {
            Stage.CONNECTED: times.TAKE_OVER_WITHIN_S,
            Stage.ASKED: times.RELEASE_WITHIN_S,
            Stage.RELEASED: times.ACCEPT_WITHIN_S,
        }.get(stage)
        if within_s is not None:
            self._poll.call_later(within_s, lambda: self._late(successor, stage, within_s))

    def _late(self, successor: Successor, stage: Stage, within_s: float) -> None:
        def is_late() -> bool:
            waits = self._successor is successor and successor.stage is stage
            return waits and self._lifecycle.state not in ENDING

        if is_late():
            self._read()  # it may have come while this process had no time
        if is_late():
            self._refuse(successor, f"the new version did not {stage.value} within {within_s:g} s")

    def _refuse(self, successor: Successor, problem: str) -> None:
        """Go on without the new version, and make sure that it ends."""
        successor.channel.send("refused", problem=problem)
        if successor.stage is Stage.CONNECTED:
            _log.warning("a process on gateway.control is turned away", problem=problem)
        self._lost(successor, problem)

    def _lost(self, successor: Successor, problem: str) -> None:
        self._poll.forget(successor.channel)
        self._successor = None
        if successor.stage is Stage.RELEASED:
            # Its processes may run though it does not, and hold sockets and files.
            successor.channel.close()
            self._poll.call_later(times.GRACE_S, lambda: self._kill(successor))
        else:
            successor.close()
        if self._lifecycle.state in {State.OFFERING, State.RELEASING}:
            _log.error("the new version has not taken over, this one goes on", problem=problem)
            self._lifecycle.enter(State.RUNNING)
            self._core.start()
        self._failed()

    def _kill(self, successor: Successor) -> None:
        if successor.kill():
            _log.warning("the new version that has not taken over did not end in time, it is killed")
        successor.close()
