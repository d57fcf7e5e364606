"""Takes over a running receiver's sockets, clients and links of relays."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from struct import Struct
from typing import Any, Final

import structlog

from receiver.settings.socket_path import Bind, parse_bind
from receiver.supervisor.channel import ChannelError, ControlChannel, Message
from receiver.supervisor.core import Core, Linkable
from receiver.supervisor.current import Current
from receiver.supervisor.poll import Poll
from receiver.supervisor.sockets import ListeningSockets
from receiver.supervisor.states import Lifecycle
from receiver.supervisor.takeover import PROTOCOL_VERSION, TakeOverError, at_control

#: Seconds for an answer of the other supervisor, beyond the time that its core may take to drain.
_ANSWER_WITHIN_S: Final = 60.0

#: Seconds until it accepts the connection.
_CONNECT_WITHIN_S: Final = 10.0

#: SO_SNDTIMEO: seconds and microseconds.
_TIMEVAL: Final = Struct("ll")

_log = structlog.get_logger("receiver.supervisor")


class Predecessor:
    """The running receiver, for the one that takes over. Its methods wait for answers.

    Attributes:
        sockets: Its listening sockets by name, with their addresses.
        nodes: What its relays know of the nodes behind rewriting listeners.
        relays: The slots of its relays by id, once its core is released.
        traffic: The descriptors of their tables of traffic by id, as far as it has passed them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            # A supervisor that is stopped accepts nobody, and its backlog is short.
            seconds, rest = divmod(_CONNECT_WITHIN_S, 1)
            timeout = _TIMEVAL.pack(int(seconds), int(rest * 1e6))
            connecting.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
            connecting.connect(str(path))
        except OSError as error:
            connecting.close()
            reason = error.strerror or str(error)
            raise at_control(self._path, f"no receiver to take over answers there: {reason}") from None
        self.channel = ControlChannel(connecting)
        if (uid := self.channel.peer_uid) not in {0, os.geteuid()}:
            self.channel.close()
            raise at_control(self._path, f"the process that answers there runs as user {uid}")
        try:
            self.channel.send("take_over", version=PROTOCOL_VERSION)
            answer = self._await("sockets", _ANSWER_WITHIN_S)
        except TakeOverError:
            self.channel.close()
            raise
        self.sockets: Mapping[str, tuple[Bind, socket.socket]] = {
            name: (parse_bind(bind), socket.socket(fileno=fd))
            for (name, bind), fd in zip(answer.fields["names"], answer.fds, strict=True)
        }
        self.nodes: list[dict[str, Any]] = answer.fields.get("nodes", [])
        self._drain_s = float(answer.fields["drain_s"])
        self.relays: dict[str, int] = {}
        self.traffic: dict[str, int] = {}

    def release_core(self) -> None:
        """Have its core end; raise TakeOverError if it did not, or the receiver is gone."""
        self.channel.send("release_core")
        answer = self._await("released", self._drain_s + _ANSWER_WITHIN_S)
        self.relays = {str(relay_id): int(slot) for relay_id, slot in answer.fields["relays"]}
        self.traffic = dict(zip(self.relays, answer.fds, strict=False))

    def problem(self, message: Message) -> str:
        """Return why the running receiver refuses to be taken over any longer."""
        return str(at_control(self._path, f"the running receiver goes on: {_why(message)}"))

    def close(self) -> None:
        """Leave the running receiver alone."""
        self.end()
        for _, listening in self.sockets.values():
            listening.close()

    def end(self) -> None:
        """Forget the running receiver, which has ended; its sockets are used on."""
        self.channel.close()
        for fd in self.traffic.values():
            os.close(fd)
        self.traffic.clear()

    def _await(self, type_: str, within_s: float) -> Message:
        deadline = time.monotonic() + within_s
        while (left_s := deadline - time.monotonic()) > 0:
            select.select([self.channel], [], [], left_s)
            try:
                message = self.channel.receive()
            except EOFError:
                raise at_control(
                    self._path, "the running receiver closed the connection; its log has why"
                ) from None
            except ChannelError as error:
                raise at_control(self._path, f"the running receiver sent {error}") from None
            if message is None:
                continue
            if message.type == type_:
                return message
            message.close()
            if message.type == "refused":
                raise at_control(self._path, f"the running receiver refused: {_why(message)}")
            raise at_control(self._path, f"the running receiver sent {message.type!r} in place of {type_!r}")
        raise at_control(self._path, f"no answer from the running receiver within {within_s:.0f} s")


class TakeOver:
    """The receiver that is taken over, until its relays leave ``core``."""

    def __init__(self, *, core: Core, poll: Poll, lifecycle: Lifecycle, current: Current) -> None:
        self._core = core
        self._poll = poll
        self._lifecycle = lifecycle
        self._current = current
        self._predecessor: Predecessor | None = None

    def begin(self) -> None:
        """Get the sockets of the running receiver, and have its core end.

        Raises:
            TakeOverError: There is none, or it can't be taken over.
            SocketError: An address of this one's configuration can't be bound.
        """
        path = self._current.settings.gateway.control
        if path is None:
            raise TakeOverError("gateway.control is not set: it names the socket of the running receiver")
        predecessor = Predecessor(path)
        try:
            sockets = ListeningSockets(self._current.settings, predecessor.sockets)
            # A socket that nobody accepts from would let clients wait for ever.
            sockets.close_others()
            # The ports of nodes are open, and clients at them should not wait for a response.
            self._current.learn(predecessor.nodes)
            predecessor.release_core()
        except BaseException as error:
            predecessor.channel.send("failed", problem=str(error))
            predecessor.close()
            raise
        self._current.sockets = sockets
        self._predecessor = predecessor
        self._poll.watch(predecessor.channel, lambda: self._read(predecessor))

    def links(self) -> dict[str, Linkable]:
        """How to link each of its relays, by relay id."""
        predecessor = self._predecessor
        if predecessor is None:
            return {}
        return {relay_id: _linkable(predecessor, relay_id) for relay_id in predecessor.relays}

    def accepting(self) -> None:
        """Tell it that this receiver accepts clients, so that its relays leave."""
        if self._predecessor is not None:
            self._predecessor.channel.send("accepting")

    def failed(self, problem: str) -> None:
        """Tell it why this receiver does not take over, for its log."""
        if self._predecessor is not None:
            self._predecessor.channel.send("failed", problem=problem)

    def close(self) -> None:
        """Leave it alone."""
        if self._predecessor is not None:
            self._predecessor.close()

    def _read(self, predecessor: Predecessor) -> None:
        try:
            while (message := predecessor.channel.receive()) is not None:
                if message.type == "need_link":
                    self._link(predecessor, message)
                message.close()
                if message.type == "refused":
                    problem = predecessor.problem(message)
                    _log.error("the take-over has failed, this version ends", problem=problem)
                    self._lifecycle.end(1)
                    return
        except (EOFError, ChannelError):
            _log.info("the receiver that was taken over has ended")
            self._poll.forget(predecessor.channel)
            predecessor.end()
            self._predecessor = None

    def _link(self, predecessor: Predecessor, message: Message) -> None:
        relay_id = str(message.fields.get("relay", ""))
        predecessor.relays.setdefault(relay_id, 0)  # it may have started after the others
        if relay_id not in predecessor.traffic and message.fds:
            predecessor.traffic[relay_id] = os.dup(message.fds[0])
        self._core.link(relay_id, _linkable(predecessor, relay_id))


def _linkable(predecessor: Predecessor, relay_id: str) -> Linkable:
    return Linkable(
        lambda end: predecessor.channel.send("links", fds=[end.fileno()], relay=relay_id),
        predecessor.traffic.get(relay_id),
    )


def _why(message: Message) -> str:
    """Return the reason of a message, which another version may leave out."""
    return str(message.fields.get("problem") or "its log has the reason")
