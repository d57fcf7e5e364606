"""The number of relays of a configuration."""

from __future__ import annotations

from typing import Final

from receiver.settings.gateway import MAX_AUTO_RELAYS
from receiver.settings.model import ReceiverSettings
from receiver.supervisor.cgroups import available_cpus, memory_limit

#: The part of the memory limit that idle relays may take, and the memory of each: 6 MiB measured.
#: The rest is for the core, and for what connections hold.
_SHARE: Final = 4
_RELAY_BYTES: Final = 8 << 20


def wanted_relays(settings: ReceiverSettings) -> int:
    """Return the number of relays, which is 0 when only bridges are let in."""
    if not settings.listeners:
        return 0
    relays = settings.gateway.relays
    return auto_relays(available_cpus(), memory_limit()) if relays == "auto" else relays


def auto_relays(cpus: int, memory_bytes: int | None) -> int:
    """Return a relay for each core, as far as memory suffices, and at most 16.

    Args:
        cpus: The cores that the container may use: all of the node without a limit.
        memory_bytes: The container's memory limit; None without one.
    """
    most = MAX_AUTO_RELAYS
    if memory_bytes is not None:
        most = min(most, memory_bytes // _SHARE // _RELAY_BYTES)
    return max(1, min(cpus, most))
