"""The port of a listener: one listening socket, which all relays share.

Owns the relay's descriptor of the socket, and when the event loop reads it. A listening socket that
is disconnected keeps its address, and the kernel refuses clients, in all relays. Each relay opens
the port again for itself.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import select
import socket
from collections.abc import Callable
from enum import Enum, auto
from struct import Struct
from typing import Final

from receiver.event_loop import running_loop
from receiver.gateway.spread import LOOK_S, PATIENCE_S, Spread
from receiver.supervisor.sockets import BACKLOG

OUT_OF_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE_OUT_OF_FILES_S: Final = 0.5


#: An address without a family, which connect(2) takes to disconnect a socket.
_NOWHERE: Final = Struct("H14x").pack(socket.AF_UNSPEC)


def _disconnect(listening: socket.socket) -> None:
    """Have a socket listen no more; it keeps its address.

    Not by ``shutdown``: a second one, of another relay, would leave the socket shut for reading.
    The kernel hands that on to each client that is accepted later, which seems to close at once.

    Raises:
        OSError: The kernel refuses.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if library.connect(listening.fileno(), _NOWHERE, len(_NOWHERE)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class _State(Enum):
    """Whether this relay accepts clients."""

    CLOSED = auto()
    OPEN = auto()
    #: Open, but the next client is left to the other relays for a moment.
    LEFT = auto()
    #: Open, but there are no descriptors.
    PAUSED = auto()
    ENDED = auto()


class Port:
    """Accepts clients while it is open.

    Args:
        listening: The listening socket; the port owns its descriptor.
        on_client: Gets each client's socket, not yet non-blocking, its address and its port.
        on_out_of_files: Called when the system has no descriptor for a client.
        on_closed: Called when another relay has closed the port.
    """

    def __init__(
        self,
        listening: socket.socket,
        spread: Spread,
        *,
        on_client: Callable[[socket.socket, str, int], None],
        on_out_of_files: Callable[[OSError], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._socket = listening
        self._spread = spread
        self._on_client = on_client
        self._on_out_of_files = on_out_of_files
        self._on_closed = on_closed
        self._state = _State.CLOSED
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether this relay accepts clients, or will go on in a moment."""
        return self._state not in {_State.CLOSED, _State.ENDED}

    def open(self) -> None:
        """Let the kernel queue clients, and accept them.

        Raises:
            OSError: Another program has the port.
        """
        if self._state is not _State.CLOSED:
            return
        self._socket.listen(BACKLOG)  # another relay may have closed the port; else it changes nothing
        self._read()

    def close(self) -> None:
        """Let the kernel refuse clients, in all relays."""
        if self.is_open:
            self._rest(_State.CLOSED)
            _disconnect(self._socket)

    def end(self) -> None:
        """Close this relay's descriptor; the other relays go on."""
        if self._state is not _State.ENDED:
            self._rest(_State.ENDED)
            self._socket.close()

    def _read(self) -> None:
        self._state = _State.OPEN
        running_loop().add_reader(self._socket, self._readable)

    def _rest(self, state: _State) -> None:
        self._state = state
        running_loop().remove_reader(self._socket)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _readable(self) -> None:
        # One client in each turn of the loop, so that a flood of them does not delay open
        # connections.
        if self._spread.leaves_next():
            self._rest(_State.LEFT)
            self._look_later(running_loop().time())
        else:
            self._accept()

    def _look_later(self, since: float) -> None:
        self._timer = running_loop().call_later(LOOK_S, self._look, since)

    def _look(self, since: float) -> None:
        """Look whether another relay has taken a client that waits since ``since``."""
        waits = self._has_client()
        if waits and self._spread.leaves_next():
            if running_loop().time() - since < PATIENCE_S:
                self._look_later(since)
                return
            self._spread.others_are_slow()
        self._timer = None
        self._read()
        if waits:
            self._accept()

    def _has_client(self) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def _accept(self) -> None:
        try:
            client, address = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno in OUT_OF_FILES:
                self._rest(_State.PAUSED)
                self._timer = running_loop().call_later(_PAUSE_OUT_OF_FILES_S, self._read)
                self._on_out_of_files(error)
            elif error.errno == errno.EINVAL:  # another relay has closed the port
                self._rest(_State.CLOSED)
                self._on_closed()
            else:
                raise
            return
        self._on_client(client, address[0], address[1])
