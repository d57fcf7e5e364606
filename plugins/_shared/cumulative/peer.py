"""Groups client instances into peers, between which memory is shared fairly."""

from __future__ import annotations

from typing import Final

from receiver.plugin import ClientTelemetryContext
from receiver.plugin.sources import site_of

__all__ = ["peer_of"]

#: Principals without an account. Their clients are grouped by source address.
_NO_ACCOUNT: Final = frozenset({"", "User:ANONYMOUS", "User:unknown"})


def peer_of(context: ClientTelemetryContext) -> str:
    """Name the peer of a push: its principal, or without one its source's site."""
    if context.principal not in _NO_ACCOUNT:
        return f"principal {context.principal}"
    return f"address {site_of(context.source_address)}"
