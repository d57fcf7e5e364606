"""The states of a connection, and which follow which.

=============  =====================================================================================
State          Meaning
=============  =====================================================================================
OPEN           Both directions move.
RETIRED        The process ends soon: the connection closes between two requests.
DRAINING       No further request is taken, and due responses are carried.
HALF_CLOSED    One peer has ended, and the other has to end soon.
REFUSED        The client sent malformed bytes: the broker answers what came before, and ends.
FAILED         One peer is gone: what it had sent before goes on to the other, which then ends.
ENDING         The session ends the connection, as soon as the client has its last answer.
CLOSED         Both sockets are closed.
=============  =====================================================================================

A state only moves down this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, auto
from types import MappingProxyType
from typing import Final


class State(IntEnum):
    """State of a connection, in the order of the table."""

    OPEN = auto()
    RETIRED = auto()
    DRAINING = auto()
    HALF_CLOSED = auto()
    REFUSED = auto()
    FAILED = auto()
    ENDING = auto()
    CLOSED = auto()


#: The states that may follow each state.
TRANSITIONS: Final[Mapping[State, frozenset[State]]] = MappingProxyType(
    {state: frozenset(later for later in State if later > state) for state in State}
)
