"""Groups client instances into peers, the unit between which memory is shared fairly.

Owns what counts as one peer. Pure.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from receiver.plugin import ClientTelemetryContext

__all__ = ["peer_of"]

#: Principals that stand for no account. Their clients are grouped by source address.
_NO_ACCOUNT: Final = frozenset({"", "User:ANONYMOUS", "User:unknown"})
#: A site gets an IPv6 network of this length, so one host can use any address in it.
_IPV6_PREFIX: Final = 48


def peer_of(context: ClientTelemetryContext) -> str:
    """Name the peer of a push: its principal, or its source address if the client has not logged in.

    IPv6 addresses are grouped by /48, because one site can choose any address in its /48.
    """
    if context.principal not in _NO_ACCOUNT:
        return f"principal {context.principal}"
    try:
        address = ipaddress.ip_address(context.source_address)
    except ValueError:
        # A privacy rule may have replaced the address.
        return f"address {context.source_address}"
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return f"address {address.ipv4_mapped}"
        return f"address {ipaddress.ip_network((int(address), _IPV6_PREFIX), strict=False)}"
    return f"address {address}"
