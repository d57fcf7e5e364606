"""Hands the listening sockets of a receiver over to a new version.

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
``failed``              new           why it does not take over; it ends
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

from pathlib import Path
from typing import Final

__all__ = ["PROTOCOL_VERSION", "TakeOverError", "at_control"]

#: The version of these messages. A new version of the receiver may be taken over by an old one too.
PROTOCOL_VERSION: Final = 1


class TakeOverError(Exception):
    """The running receiver can't be taken over.

    The message names the socket and the reason.
    """


def at_control(path: Path, problem: str) -> TakeOverError:
    """Return the error for a problem at a control socket."""
    return TakeOverError(f"gateway.control: {path}: {problem}")
