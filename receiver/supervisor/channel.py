"""Messages between the supervisor and a child process, or another supervisor.

A message is one packet of a Unix socket: a JSON object, and file descriptors beside it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final

_MAX_PACKET_BYTES: Final = 65_536

#: Process id, user id and group id (unix(7), SO_PEERCRED).
_CREDENTIALS: Final = Struct("iII")

#: Linux passes at most so many descriptors in one packet (SCM_MAX_FD).
MAX_FDS: Final = 253


#: Bytes that are read of a file at a time.
_PART_BYTES: Final = 1 << 20


class ChannelError(Exception):
    """The other end sent something that is no message."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message: type, fields, and descriptors that the receiver now owns."""

    type: str
    fields: dict[str, Any] = field(default_factory=dict)
    fds: Sequence[int] = ()

    def close(self) -> None:
        """Close the descriptors of a message that is not used."""
        for fd in self.fds:
            os.close(fd)


class ControlChannel:
    """One end of a pair of sockets of type SOCK_SEQPACKET; owns the socket."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)  # noqa: FBT003 - the socket's own signature
        self._socket = end
        self._closed = False

    @classmethod
    def pair(cls) -> tuple[ControlChannel, ControlChannel]:
        """Return both ends of a new channel."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours), cls(theirs)

    def fileno(self) -> int:
        """Return the descriptor to poll; -1 once closed."""
        return self._socket.fileno()

    @property
    def peer_uid(self) -> int:
        """The user id of the process at the other end."""
        return self._credentials()[1]

    @property
    def peer_pid(self) -> int:
        """The id of the process that connected; 0 if it is in another namespace."""
        return self._credentials()[0]

    def _credentials(self) -> tuple[int, int, int]:
        raw = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, gid = _CREDENTIALS.unpack(raw)
        return pid, uid, gid

    def send(self, type_: str, *, fds: Sequence[int] = (), **fields: Any) -> bool:
        """Send a message; the descriptors are copied, the caller keeps its own.

        Returns:
            Whether it was sent. It was not if the other end is gone, or if it has not read so many
            messages that the socket is full.
        """
        packet = json.dumps({"type": type_, **fields}).encode()
        try:
            socket.send_fds(self._socket, [packet], list(fds))
        except OSError:
            return False
        return True

    def receive(self) -> Message | None:
        """Return the next message, or None if there is none now.

        Raises:
            EOFError: The other end is closed.
            ChannelError: The packet is no message.
        """
        try:
            packet, fds, flags, _ = socket.recv_fds(self._socket, _MAX_PACKET_BYTES, MAX_FDS)
        except BlockingIOError:
            return None
        except OSError as error:
            raise EOFError(str(error)) from None
        if not packet:
            raise EOFError("the other end is closed")
        for fd in fds:
            os.set_inheritable(fd, False)  # noqa: FBT003 - positional only
        try:
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                raise ChannelError("a packet was cut")
            fields = json.loads(packet)
            type_ = fields.pop("type")
        except (ValueError, KeyError, AttributeError, TypeError, ChannelError) as error:
            for fd in fds:
                os.close(fd)
            raise ChannelError(f"not a message: {error}") from None
        return Message(str(type_), fields, fds)

    def messages(self) -> Iterator[Message]:
        """Yield the messages that are there, for a child of the supervisor.

        There are no more when the supervisor has died. The kernel ends its children then.

        Raises:
            ChannelError: A packet is no message.
        """
        try:
            while (message := self.receive()) is not None:
                yield message
        except EOFError:
            return

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


def file_of(content: bytes) -> int:
    """Return the descriptor of a file in memory with this content."""
    fd = os.memfd_create("configuration", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(content)
    return fd


def read_file(fd: int) -> bytes:
    """Return the content of such a file, and close the descriptor.

    Each process has a descriptor of its own and all share one offset, so the offset is not used:
    one that reads while another does would find an empty file.
    """
    try:
        parts, at = [], 0
        while part := os.pread(fd, _PART_BYTES, at):
            parts.append(part)
            at += len(part)
        return b"".join(parts)
    finally:
        os.close(fd)
