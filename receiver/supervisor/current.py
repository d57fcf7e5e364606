"""What is in force: the configuration, its sockets, and what relays know of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from receiver.settings.model import ReceiverSettings
from receiver.supervisor.relay_count import wanted_relays
from receiver.supervisor.sockets import ListeningSockets


class Current:
    """What a process that starts is given."""

    sockets: ListeningSockets

    def __init__(self, settings: ReceiverSettings) -> None:
        self.settings = settings
        self._nodes: dict[tuple[str, int], Mapping[str, Any]] = {}

    @property
    def relays(self) -> int:
        """The number of relays that there should be."""
        return wanted_relays(self.settings)

    @property
    def drain_s(self) -> float:
        """The seconds that each part has to end in order."""
        return self.settings.drain.timeout_s

    @property
    def nodes(self) -> Iterator[Mapping[str, Any]]:
        """The nodes behind rewriting listeners, as relays said."""
        return iter(self._nodes.values())

    def learn(self, nodes: Iterable[Mapping[str, Any]]) -> None:
        """Remember the addresses of nodes."""
        for node in nodes:
            self._nodes[node["listener"], node["node"]] = node

    def replace(self, settings: ReceiverSettings, sockets: ListeningSockets) -> None:
        """Use another configuration, and close the sockets that it does not use."""
        self.settings = settings
        sockets.close_others()
        self.sockets = sockets
        wanted = {
            (listener.name, node_id) for listener in settings.listeners for node_id in listener.node_ids
        }
        self._nodes = {key: node for key, node in self._nodes.items() if key in wanted}
