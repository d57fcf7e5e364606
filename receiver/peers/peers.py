"""The peers of a connection: its source, its address block, and its principal.

Computed once for each identity of a connection, because every request is charged to them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from receiver.peers.sources import block_of, source_of

#: The kinds of peers. A client instance has one limit only: of its new series.
Scope: TypeAlias = Literal["source_address", "address_block", "principal", "client_instance"]


class Peers(NamedTuple):
    """The peers of a connection."""

    source: str
    """The IPv4 address, or the network of 64 bits around an IPv6 address."""
    block: str
    """The IPv4 address, or the network of 48 bits around an IPv6 address."""
    addresses: tuple[tuple[Scope, str], ...]
    """Those of the source address that have limits of their own. The block of an IPv4 address is
    the source itself, and is not counted twice."""
    limited: tuple[tuple[Scope, str], ...]


def peers_of(source_address: str, principal: str | None) -> Peers:
    """Return the peers of a connection; a principal of None has no limits."""
    source, block = source_of(source_address), block_of(source_address)
    addresses: tuple[tuple[Scope, str], ...] = (("source_address", source),)
    if ":" in source:
        addresses = (*addresses, ("address_block", block))
    limited = addresses if principal is None else (*addresses, ("principal", principal))
    return Peers(source, block, addresses, limited)
