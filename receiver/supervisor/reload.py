"""A reload of the configuration in two phases: all processes prepare it, then all apply it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from receiver.settings.model import ReceiverSettings
from receiver.supervisor.channel import Message
from receiver.supervisor.child import Child
from receiver.supervisor.sockets import ListeningSockets
from receiver.supervisor.takeover import ControlSocket

__all__ = ["Reload"]


class Reload:
    """The progress of one reload.

    Attributes:
        settings: The new configuration.
        sockets: Its listening sockets.
        relays: Its number of relays.
        problem: Why a process can't use the configuration; None so far.
        committed: Whether the processes have been told to apply it.
        control: Its control socket, if that is another one.
    """

    def __init__(self, settings: ReceiverSettings, sockets: ListeningSockets) -> None:
        self.settings = settings
        self.sockets = sockets
        self.relays = 0
        self.problem: str | None = None
        self.committed = False
        self.control: ControlSocket | None = None
        self._children: list[Child] = []
        self._waiting: set[Child] = set()

    def ask(self, child: Child, fds: Sequence[int], **fields: Any) -> None:
        """Have a process prepare the configuration."""
        if child.channel.send("configure", fds=fds, **fields):
            self._children.append(child)
            self._waiting.add(child)
        else:
            self.problem = f"the process {child.name} does not read its messages"

    def answered(self, child: Child, message: Message) -> None:
        """Take an answer of a process."""
        if message.type == "refused" and self.problem is None:
            self.problem = str(message.fields["problem"])
        self._waiting.discard(child)

    def left(self, child: Child) -> None:
        """Go on without a process that has ended; it starts with the configuration in force."""
        self._waiting.discard(child)
        if child in self._children:
            self._children.remove(child)

    @property
    def waiting_for(self) -> list[str]:
        """The names of the processes that have not answered."""
        return sorted(child.name for child in self._waiting)

    @property
    def prepared(self) -> bool:
        """Whether all processes have prepared the configuration."""
        return not self._waiting

    @property
    def applied(self) -> bool:
        """Whether all processes have applied it."""
        return self.committed and not self._waiting

    def commit(self) -> None:
        """Have all processes apply the configuration."""
        self.committed = True
        self._waiting = set(self._children)
        for child in self._children:
            child.channel.send("commit")

    def abort(self) -> None:
        """Have all processes drop the configuration, and close its new sockets."""
        for child in self._children:
            child.channel.send("abort")
        for child in self._waiting:
            child.stale_answers += 1
        if self.control is not None:
            self.control.close()
        self.sockets.discard()
