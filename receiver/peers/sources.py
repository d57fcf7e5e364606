"""Groups source addresses into peers.

A peer is an IPv4 address, or an IPv6 network of 64 or 48 bits.

Limits, queues and plugins use this rule, so that a peer is the same everywhere.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address, IPv6Network

#: An IPv6 host usually has a network of 64 bits to itself, and a block gets one of 48 (RFC 6177).
SOURCE_BITS = 64
BLOCK_BITS = 48


def source_of(source_address: str) -> str:
    """Return an IPv4 address itself, or the 64 bits of an IPv6 address' network."""
    return _network(source_address, SOURCE_BITS) if ":" in source_address else source_address


def block_of(source_address: str) -> str:
    """Return an IPv4 address itself, or the 48 bits of an IPv6 address' network.

    Shared resources are divided by block, because one address block has 65,536 networks of 64 bits.
    """
    return _network(source_address, BLOCK_BITS) if ":" in source_address else source_address


@lru_cache(maxsize=8192)
def _network(source_address: str, bits: int) -> str:
    try:
        address = IPv6Address(source_address)
    except AddressValueError:
        return source_address
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Network((int(address), bits), strict=False))
