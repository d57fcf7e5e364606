"""Hands the listening sockets of a running receiver over to a new version on the same host.

The new supervisor connects to the control socket of the running one. Source of the idea: the hot
restarts of HAProxy and Envoy.

======================  ============  ==========================================================
message                 from          meaning
======================  ============  ==========================================================
``take_over``           new           it wants to take over
``sockets``             old           names, addresses and descriptors of the listening sockets; the
                                      addresses of the nodes behind rewriting listeners
``refused``             old           why it cannot be taken over now
``release_core``        new           its configuration is good: the old core should end
``released``            old           the old core has ended; the ids and slots of the old relays
``links``               new           a link to the new core for each of these old relays
``accepting``           new           its relays accept clients: the old relays should leave
``need_link``           old           an old relay has lost its link to the new core
======================  ============  ==========================================================

Until ``accepting`` nothing is lost if the new version fails: the old supervisor then starts a core
again. In between the old relays carry the traffic, and telemetry is throttled. So each step has a
deadline, after which the old version goes on and tells the new one ``refused``:

==============  ===================================  =====================================
stage           the new version has to               the old version
==============  ===================================  =====================================
``CONNECTED``   send ``take_over``                   reloads; takes another one in its place
``ASKED``       send ``release_core``                serves
``ENDING``                                           ends its core, which it kills if it is late
``RELEASED``    send ``accepting``                   has no core
``DONE``                                             drains its relays
==============  ===================================  =====================================
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import stat
import time
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from struct import Struct
from typing import Any, Final

from receiver.settings.hostport import HostPort
from receiver.supervisor.channel import ChannelError, ControlChannel, Message

__all__ = [
    "PROTOCOL_VERSION",
    "ControlSocket",
    "Predecessor",
    "Stage",
    "Successor",
    "TakeOverError",
    "check_unused",
]

#: The version of these messages. A new version of the receiver may be taken over by an old one too.
PROTOCOL_VERSION: Final = 1

#: Seconds for an answer of the other supervisor, beyond the time that its core may take to drain.
_ANSWER_WITHIN_S: Final = 60.0

#: Seconds until it accepts the connection.
_CONNECT_WITHIN_S: Final = 10.0

#: SO_SNDTIMEO: seconds and microseconds.
_TIMEVAL: Final = Struct("ll")


class TakeOverError(Exception):
    """The running receiver can't be taken over; the message names the socket and the reason."""


def check_unused(path: Path) -> None:
    """Check that no running receiver has its control socket at ``path``.

    Raises:
        TakeOverError: One has.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connecting:
        connecting.setblocking(False)  # noqa: FBT003 - the socket's own signature
        try:
            connecting.connect(str(path))
        except BlockingIOError:  # it runs and has too much to do
            pass
        except OSError:
            return
    raise TakeOverError(
        f"gateway.control: {path}: another receiver runs with this path; give each its own, or start with "
        "--take-over to replace it"
    )


class ControlSocket:
    """The Unix socket at which a new version asks for the listening sockets.

    Only processes of the same user, or of root, may connect. The file has mode 0600. It appears
    when the socket listens, and replaces a leftover in one step, so nobody who sees it is refused.

    Raises:
        TakeOverError: The socket can't be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)  # noqa: FBT003 - the socket's own signature
        # The process id keeps two receivers that start at once apart.
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            self._check_replaceable(path)
            unfinished.unlink(missing_ok=True)
            before = os.umask(0o177)
            try:
                self._socket.bind(str(unfinished))
            finally:
                os.umask(before)
            self._socket.listen(1)
            self._inode = unfinished.stat().st_ino
            unfinished.replace(path)
        except OSError as error:
            self._socket.close()
            with contextlib.suppress(OSError):
                unfinished.unlink()
            reason = error.strerror or str(error)
            raise TakeOverError(f"gateway.control: {path}: the socket can't be created: {reason}") from None

    @staticmethod
    def _check_replaceable(path: Path) -> None:
        """Accept the socket of a receiver that is gone or leaves, but no other file."""
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(mode):
            raise FileExistsError(errno.EEXIST, "another file is there")

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._socket.fileno()

    def accept(self) -> ControlChannel | None:
        """Return a channel to a new version, or None if somebody else connected."""
        try:
            channel = ControlChannel(self._socket.accept()[0])
        except OSError:
            return None
        if channel.peer_uid not in {0, os.geteuid()}:
            channel.close()
            return None
        return channel

    def close(self) -> None:
        """Close the socket, and remove its file if another receiver has not replaced it."""
        self._socket.close()
        try:
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()
        except OSError:
            return


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
        channel: The channel to its supervisor.
        stage: How far it has come.
    """

    def __init__(self, channel: ControlChannel) -> None:
        self.channel = channel
        self.stage = Stage.CONNECTED
        self._pidfd: int | None = None
        with contextlib.suppress(OSError):  # it has ended, or is in another namespace
            self._pidfd = os.pidfd_open(channel.peer_pid)

    @property
    def has_asked(self) -> bool:
        """Whether it takes over, and does not only look whether this version runs."""
        return self.stage is not Stage.CONNECTED

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


class Predecessor:
    """The running receiver, for the one that takes over. Its methods wait for answers.

    Attributes:
        channel: The channel to its supervisor.
        sockets: Its listening sockets by name, with their addresses.
        nodes: What its relays know of the nodes behind rewriting listeners.
        relays: The slots of its relays by id, once its core is released.
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
            raise self._error(f"no receiver to take over answers there: {reason}") from None
        self.channel = ControlChannel(connecting)
        if (uid := self.channel.peer_uid) not in {0, os.geteuid()}:
            self.channel.close()
            raise self._error(f"the process that answers there runs as user {uid}")
        try:
            self.channel.send("take_over", version=PROTOCOL_VERSION)
            answer = self._await("sockets", _ANSWER_WITHIN_S)
        except TakeOverError:
            self.channel.close()
            raise
        self.sockets: Mapping[str, tuple[HostPort, socket.socket]] = {
            name: (HostPort.parse(bind), socket.socket(fileno=fd))
            for (name, bind), fd in zip(answer.fields["names"], answer.fds, strict=True)
        }
        self.nodes: list[dict[str, Any]] = answer.fields.get("nodes", [])
        self._drain_s = float(answer.fields["drain_s"])
        self.relays: dict[str, int] = {}

    def release_core(self) -> None:
        """Have its core end.

        Raises:
            TakeOverError: It did not, or the receiver is gone.
        """
        self.channel.send("release_core")
        answer = self._await("released", self._drain_s + _ANSWER_WITHIN_S)
        self.relays = {str(relay_id): int(slot) for relay_id, slot in answer.fields["relays"]}

    def problem(self, message: Message) -> str:
        """Return why the running receiver refuses to be taken over any longer."""
        return str(self._error(f"the running receiver goes on: {message.fields.get('problem')}"))

    def close(self) -> None:
        """Leave the running receiver alone."""
        self.channel.close()
        for _, listening in self.sockets.values():
            listening.close()

    def _await(self, type_: str, within_s: float) -> Message:
        deadline = time.monotonic() + within_s
        while (left_s := deadline - time.monotonic()) > 0:
            select.select([self.channel], [], [], left_s)
            try:
                message = self.channel.receive()
            except EOFError:
                raise self._error("the running receiver closed the connection; its log has why") from None
            except ChannelError as error:
                raise self._error(f"the running receiver sent {error}") from None
            if message is None:
                continue
            if message.type == type_:
                return message
            message.close()
            if message.type == "refused":
                raise self._error(f"the running receiver refused: {message.fields.get('problem')}")
            raise self._error(f"the running receiver sent {message.type!r} in place of {type_!r}")
        raise self._error(f"no answer from the running receiver within {within_s:.0f} s")

    def _error(self, problem: str) -> TakeOverError:
        return TakeOverError(f"gateway.control: {self._path}: {problem}")
