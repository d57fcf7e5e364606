"""The Unix socket at which a new version asks for the listening sockets."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from receiver.supervisor.channel import ControlChannel
from receiver.supervisor.socket_file import holds_socket
from receiver.supervisor.takeover import at_control


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
    problem = (
        "another receiver runs with this path; give each its own, or start with --take-over to replace it"
    )
    raise at_control(path, problem)


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
            holds_socket(path)  # of a receiver that is gone or leaves; another file is an error
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
            raise at_control(path, f"the socket can't be created: {reason}") from None

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
