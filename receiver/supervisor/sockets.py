"""Binds the listening sockets of a configuration.

The supervisor owns them, so that they outlive relays and the core. A socket that is bound accepts
connections only after :meth:`ListeningSockets.listen`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from typing import Final

from receiver.settings.hostport import HostPort
from receiver.settings.model import ReceiverSettings
from receiver.settings.socket_path import Bind, SocketPath
from receiver.supervisor.socket_file import bind_file
from receiver.telemetry.identity import port_name
from spark_streaming.system_errors import reason_of

#: The names of the core's own sockets: a listener's name has no blank.
REST: Final = "rest api"
BRIDGE: Final = "bridge listener"
_OF_CORE: Final = {REST: "rest.bind", BRIDGE: "bridge.bind"}

#: Connections to a listener that the kernel keeps until a relay accepts them.
BACKLOG: Final = 1024

_CORE_BACKLOG: Final = 128


class SocketError(Exception):
    """An address can't be listened on; the message names it, and the reason."""


class ListeningSockets:
    """The listening sockets by name: listeners, :data:`REST`, :data:`BRIDGE`.

    Those of the core accept connections at once.

    Args:
        existing: Sockets to use again where the address is the same: address and socket by name.

    Raises:
        SocketError: An address can't be bound.
    """

    def __init__(
        self,
        settings: ReceiverSettings,
        existing: Mapping[str, tuple[Bind, socket.socket]] | None = None,
    ) -> None:
        self._existing = existing or {}
        self._sockets: dict[str, tuple[Bind, socket.socket]] = {}
        self._new: list[socket.socket] = []
        self._sharing: list[socket.socket] = []  # that let another socket have their port
        wanted: dict[str, Bind] = {listener.name: listener.bind for listener in settings.listeners}
        self._wanted = wanted
        wanted[REST] = settings.rest.bind
        if settings.bridge is not None:
            wanted[BRIDGE] = settings.bridge.bind
        self._of_nodes = {
            port_name(listener.name, node_id): bind
            for listener in settings.listeners
            for node_id, bind in listener.node_binds.items()
        }
        wanted |= self._of_nodes
        try:
            for name, bind in wanted.items():
                self._sockets[name] = bind, self._get(name, bind)
        except SocketError:
            self.discard()
            raise

    def _get(self, name: str, bind: Bind) -> socket.socket:
        known_bind, known = self._existing.get(name, (None, None))
        if known is not None and known_bind == bind:
            return known
        # The system chooses port 0 anew for each name.
        is_chosen = isinstance(bind, HostPort) and bind.port == 0
        for known_bind, known in () if is_chosen else self._existing.values():
            if known_bind == bind:
                return known
        owner = _OF_CORE.get(name, f"listener {name}")
        listening = self._bind(owner, bind)
        self._new.append(listening)
        if name in _OF_CORE:
            _listen(owner, bind, listening, _CORE_BACKLOG)
        return listening

    def _bind(self, owner: str, bind: Bind) -> socket.socket:
        """Bind an address whose port another socket still has on another host.

        Linux lets both have it if both ask for SO_REUSEPORT. They do only until the new one
        listens, so that no other program gets a share of the port.
        """
        if isinstance(bind, SocketPath):
            return _bind_file(owner, bind)
        kept = self._wanted.values()
        beside = [
            known
            for known_bind, known in self._existing.values()
            if isinstance(known_bind, HostPort)
            and known_bind.port == bind.port != 0
            and known_bind not in kept
        ]
        for known in beside:
            _share_port(known, share=True)
            self._sharing.append(known)
        listening = _bind(owner, bind, share=bool(beside))
        if beside:
            self._sharing.append(listening)
        return listening

    def _stop_sharing(self) -> None:
        for listening in self._sharing:
            _share_port(listening, share=False)
        self._sharing.clear()

    def __getitem__(self, name: str) -> socket.socket:
        return self._sockets[name][1]

    @property
    def bridge(self) -> socket.socket | None:
        """The socket of the listener for bridges, if there is one."""
        found = self._sockets.get(BRIDGE)
        return None if found is None else found[1]

    def items(self) -> Iterator[tuple[str, Bind, socket.socket]]:
        """Return name, configured address and socket of each."""
        return ((name, bind, listening) for name, (bind, listening) in self._sockets.items())

    @property
    def by_name(self) -> Mapping[str, tuple[Bind, socket.socket]]:
        """Address and socket by name."""
        return self._sockets

    @property
    def of_listeners(self) -> dict[str, socket.socket]:
        """The sockets of listeners by name."""
        return {name: listening for name, (_, listening) in self._sockets.items() if name not in _OF_CORE}

    def listen(self) -> None:
        """Accept connections on the sockets of listeners that were bound here.

        Relays open the port of a node, once they know the node.

        Raises:
            SocketError: Another process listens there since the socket was bound.
        """
        for name, (bind, listening) in self._sockets.items():
            if name not in _OF_CORE and name not in self._of_nodes and listening in self._new:
                _listen(f"listener {name}", bind, listening, BACKLOG)
        self._stop_sharing()

    def discard(self) -> None:
        """Close the sockets that were bound here."""
        self._stop_sharing()
        for listening in self._new:
            listening.close()

    def close_others(self) -> None:
        """Close the existing sockets that are not used again."""
        used = {listening for _, listening in self._sockets.values()}
        for _, listening in self._existing.values():
            if listening not in used:
                listening.close()

    def close(self) -> None:
        """Close all."""
        for _, listening in self._sockets.values():
            listening.close()


def _listen(owner: str, bind: Bind, listening: socket.socket, backlog: int) -> None:
    try:
        listening.listen(backlog)
    except OSError as error:
        raise SocketError(f"{owner}: {bind}: cannot listen there: {reason_of(error)}") from None


def _share_port(listening: socket.socket, *, share: bool) -> None:
    if listening.fileno() >= 0:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, share)


def _bind_file(owner: str, bind: SocketPath) -> socket.socket:
    try:
        return bind_file(bind.path)
    except OSError as error:
        raise SocketError(f"{owner}: {bind}: cannot listen there: {reason_of(error)}") from None


def _bind(owner: str, bind: HostPort, *, share: bool) -> socket.socket:
    try:
        found = socket.getaddrinfo(bind.host, bind.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setblocking(False)  # noqa: FBT003 - the socket's own signature
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _share_port(listening, share=share)
            listening.bind(address)
        except OSError:
            listening.close()
            raise
    except socket.gaierror as error:
        raise SocketError(
            f"{owner}: {bind}: cannot listen there: the host is not known: {reason_of(error)}"
        ) from None
    except OSError as error:
        raise SocketError(f"{owner}: {bind}: cannot listen there: {reason_of(error)}") from None
    return listening
