"""The states of the supervisor, and which follow which.

==========  ========================================================================================
State       Meaning
==========  ========================================================================================
STARTING    The core starts, then the relays. A process that can't start ends the receiver.
RUNNING     All processes serve, and one that ends is started again.
PREPARING   The processes prepare a new configuration, and none is started.
APPLYING    All processes agreed to the new configuration and apply it.
OFFERING    A new version has the listening sockets, and this one serves.
RELEASING   The core ends for the new version, and the relays carry the traffic.
LEAVING     The new version accepts clients, and the relays keep their open connections.
STOPPING    The relays answer what is in flight, and end.
EXPORTING   The relays have ended, and the core exports what is queued.
ENDED       The exit status is known.
==========  ========================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum, auto
from types import MappingProxyType
from typing import Final


class State(Enum):
    """State of the supervisor, in the order of the table."""

    STARTING = auto()
    RUNNING = auto()
    PREPARING = auto()
    APPLYING = auto()
    OFFERING = auto()
    RELEASING = auto()
    LEAVING = auto()
    STOPPING = auto()
    EXPORTING = auto()
    ENDED = auto()


#: The states that may follow each state. An error, or a second SIGINT, ends each at once.
TRANSITIONS: Final[Mapping[State, frozenset[State]]] = MappingProxyType(
    {
        state: frozenset(following) | ({State.ENDED} - {state})
        for state, following in {
            State.STARTING: {State.RUNNING, State.STOPPING},
            State.RUNNING: {State.PREPARING, State.OFFERING, State.STOPPING},
            State.PREPARING: {State.RUNNING, State.APPLYING, State.STOPPING},
            State.APPLYING: {State.RUNNING, State.STOPPING},
            State.OFFERING: {State.RUNNING, State.RELEASING, State.STOPPING},
            State.RELEASING: {State.RUNNING, State.LEAVING, State.STOPPING},
            State.LEAVING: {State.STOPPING},
            State.STOPPING: {State.EXPORTING},
            State.EXPORTING: set[State](),
            State.ENDED: set[State](),
        }.items()
    }
)

#: States in which a core that is missing is started, and in which a relay is.
STARTS_CORE: Final = frozenset({State.STARTING, State.RUNNING, State.APPLYING, State.OFFERING})
STARTS_RELAYS: Final = STARTS_CORE | {State.RELEASING}

#: States from which the receiver does not return: a process that ends is not replaced.
ENDING: Final = frozenset({State.LEAVING, State.STOPPING, State.EXPORTING, State.ENDED})


class ChildState(IntEnum):
    """State of a child process. It only moves on."""

    #: It has not said that it is ready, and can't answer.
    STARTING = auto()
    READY = auto()
    #: It was told to end, or has said that it ends, and is not started again.
    LEAVING = auto()


class Lifecycle:
    """The state of one supervisor.

    Attributes:
        status: The exit status, once it has ended.
    """

    def __init__(self) -> None:
        self.state = State.STARTING
        self.status = 0

    def enter(self, state: State) -> None:
        """Go to a state; raise ValueError if it does not follow the present one."""
        if state not in TRANSITIONS[self.state]:
            raise ValueError(f"{state.name} does not follow {self.state.name}")
        self.state = state

    def end(self, status: int) -> None:
        """End with an exit status; the first one counts."""
        if self.state is not State.ENDED:
            self.enter(State.ENDED)
            self.status = status
