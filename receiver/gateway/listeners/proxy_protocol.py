"""Parses PROXY protocol headers (versions 1 and 2) of load balancers.

Owns the header's form (HAProxy's "The PROXY protocol", sections 2.1 and 2.2): bytes in; a header,
None for "need more", or an error out. Admission reads the bytes and decides which peers may send a
header.

While :func:`parse` returns None, all bytes that it was given belong to the header. So the reader
can never consume bytes behind the header.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from struct import Struct
from typing import Final

import google_crc32c

_V1_START: Final = b"PROXY "
_V2_START: Final = b"\r\n\r\n\0\r\nQUIT\n"
_STARTS: Final = (_V1_START, _V2_START)

#: Section 2.1: the longest line, including CRLF.
_MAX_LINE: Final = 107

#: Section 2.2 allows 65,535 bytes behind the first 16, for addresses and TLVs. Addresses take at
#: most 216; the TLVs of load balancers (a VPC endpoint, a TLS client's name) take a few hundred.
_MAX_V2_LENGTH: Final = 4096

_V2_HEAD = Struct(">12sBBH")
_INET = Struct(">4s4sHH")
_INET6 = Struct(">16s16sHH")
_TLV = Struct(">BH")

#: The longest accepted header, in bytes.
MAX_HEADER_BYTES: Final = _V2_HEAD.size + _MAX_V2_LENGTH

_LOCAL, _PROXY = 0, 1
_AF_UNSPEC, _AF_INET, _AF_INET6, _AF_UNIX = range(4)
_UNIX_BYTES: Final = 216
_STREAM: Final = 1
_MAX_TRANSPORT: Final = 2
_CRC32C_TLV: Final = 0x03

_PORT = re.compile(r"0|[1-9][0-9]{0,4}")


class ProxyProtocolError(ValueError):
    """The bytes are no valid PROXY header; the message gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyHeader:
    """A parsed header."""

    size: int
    """The header's length in bytes."""
    source: tuple[str, int] | None
    """The client's address and port. None if the header names none (LOCAL, UNKNOWN, or a family
    other than TCP); the connection's own address then counts."""


def may_begin(data: bytes) -> bool:
    """Return whether a header may begin with these bytes (at least one).

    No Kafka request and no TLS record begins like a header. As a request's length the first bytes
    would mean 218 MB or 1.3 GB.
    """
    return any(data[: len(start)] == start[: len(data)] for start in _STARTS)


def parse(data: bytes) -> ProxyHeader | None:
    """Parse the header at the start of a connection; None while it is incomplete.

    All of ``data`` belongs to an incomplete header.

    Args:
        data: The connection's first bytes, as many as have arrived.

    Raises:
        ProxyProtocolError: No valid header begins with these bytes.
    """
    if data and not may_begin(data):
        raise ProxyProtocolError("expected a PROXY header, found something else")
    if data.startswith(_V1_START):
        return _parse_line(data)
    if len(data) >= _V2_HEAD.size:
        return _parse_v2(data)
    return None


def plain_address(text: str) -> str:
    """Return an address, IPv4-mapped IPv6 (RFC 4291, 2.5.5.2) as plain IPv4."""
    return text.removeprefix("::ffff:") if "." in text else text


def _text(address: IPv4Address | IPv6Address) -> str:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


# -- version 1 -------------------------------------------------------------------------------------


def _parse_line(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, _MAX_LINE)
    if end < 0:
        if len(data) >= _MAX_LINE:
            raise ProxyProtocolError(f"PROXY line: expected at most {_MAX_LINE} bytes")
        return None
    size = end + 2
    words = data[len(_V1_START) : end].split(b" ")
    if words[0] == b"UNKNOWN":
        return ProxyHeader(size=size, source=None)
    if words[0] not in (b"TCP4", b"TCP6"):
        raise ProxyProtocolError("PROXY line: expected TCP4, TCP6 or UNKNOWN")
    kind = IPv4Address if words[0] == b"TCP4" else IPv6Address
    try:
        source, destination, source_port, destination_port = (word.decode("ascii") for word in words[1:])
        port = _port(source_port)
        _port(destination_port)
        kind(destination)
        if "%" in source + destination:
            raise AddressValueError("expected an address without a zone")
        return ProxyHeader(size=size, source=(_text(kind(source)), port))
    except ValueError:
        raise ProxyProtocolError("PROXY line: expected two addresses and two ports") from None


def _port(text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 65_535:
        raise ValueError("not a port")
    return int(text)


# -- version 2 -------------------------------------------------------------------------------------


def _parse_v2(data: bytes) -> ProxyHeader | None:
    _, version_and_command, family_and_transport, length = _V2_HEAD.unpack_from(data)
    version, command = divmod(version_and_command, 16)
    family, transport = divmod(family_and_transport, 16)
    if version != 2 or command not in (_LOCAL, _PROXY):
        raise ProxyProtocolError(
            f"PROXY version {version}, command {command}: expected version 2, command 0 or 1"
        )
    if length > _MAX_V2_LENGTH:
        raise ProxyProtocolError(f"PROXY header of {length} bytes: expected at most {_MAX_V2_LENGTH}")
    if command == _PROXY and (family > _AF_UNIX or transport > _MAX_TRANSPORT):
        raise ProxyProtocolError(f"unsupported PROXY address family {family}, transport {transport}")
    size = _V2_HEAD.size + length
    if len(data) < size:
        return None
    if command == _LOCAL:  # the load balancer's own health check; section 2.2 says to ignore the rest
        return ProxyHeader(size=size, source=None)
    header = data[:size]
    _check_tlvs(header, _V2_HEAD.size + _address_bytes(family, length))
    source = None
    if transport == _STREAM and family == _AF_INET:
        address, _, port, _ = _INET.unpack_from(header, _V2_HEAD.size)
        source = _text(IPv4Address(address)), port
    elif transport == _STREAM and family == _AF_INET6:
        address, _, port, _ = _INET6.unpack_from(header, _V2_HEAD.size)
        source = _text(IPv6Address(address)), port
    return ProxyHeader(size=size, source=source)


def _address_bytes(family: int, length: int) -> int:
    needed = {_AF_UNSPEC: 0, _AF_INET: _INET.size, _AF_INET6: _INET6.size, _AF_UNIX: _UNIX_BYTES}[family]
    if length < needed:
        raise ProxyProtocolError(f"PROXY addresses of {length} bytes: expected at least {needed}")
    return needed


def _check_tlvs(header: bytes, position: int) -> None:
    """Check the form of the TLVs, and the checksum if there is one (section 2.2.4)."""
    while position < len(header):
        if position + _TLV.size > len(header):
            raise ProxyProtocolError("truncated PROXY TLV")
        kind, length = _TLV.unpack_from(header, position)
        start, position = position + _TLV.size, position + _TLV.size + length
        if position > len(header):
            raise ProxyProtocolError("a PROXY TLV is longer than the header")
        if kind == _CRC32C_TLV:
            zeroed = header[:start] + bytes(length) + header[position:]
            if length != 4 or google_crc32c.value(zeroed) != int.from_bytes(header[start:position], "big"):
                raise ProxyProtocolError("wrong checksum in the PROXY header")
