"""Fuzzes PROXY headers, versions 1 and 2, and the bytes after them."""

from __future__ import annotations

import ipaddress
import struct
from random import Random

import google_crc32c

from receiver.gateway.listeners.proxy_protocol import (
    MAX_HEADER_BYTES,
    ProxyHeader,
    ProxyProtocolError,
    may_begin,
    parse,
)
from tests.fuzz.target import Target, require

_START = b"\r\n\r\n\0\r\nQUIT\n"
_MAX_BYTES = 600
_CHECKSUM = 3


def _parse(data: bytes) -> ProxyHeader | str | None:
    """Return the header, the error, or None for more."""
    try:
        return parse(data)
    except ProxyProtocolError as error:
        require(len(str(error)) < 200, "an error as long as the bytes allow")
        return "error"


def _run(data: bytes) -> None:
    found = _parse(data)
    if data:
        require(may_begin(data) or found == "error", "what no header begins with was taken for one")
    if found is None:
        require(len(data) < MAX_HEADER_BYTES, "more is wanted than a header may have")
    if isinstance(found, ProxyHeader):
        require(0 < found.size <= min(len(data), MAX_HEADER_BYTES), f"a header of {found.size} bytes")
        require(_parse(data[: found.size]) == found, "what follows a header changes it")
        require(_parse(data[: found.size - 1]) is None, "without its last byte it is whole as well")
        if found.source is not None:
            address, port = found.source
            require(
                str(ipaddress.ip_address(address)) == address, f"{address!r} is no address as it is written"
            )
            require(0 <= port <= 65_535, f"{port} is no port")
    # In any pieces: the parser asks for more up to one place, and then has the same result.
    at = len(data) // 2
    part = _parse(data[:at])
    require(part is None or part == found, "of a part something else was found")


def _v2(command: int, family: int, body: bytes, tlvs: bytes = b"", *, checksum: bool = False) -> bytes:
    rest = body + tlvs + (struct.pack(">BHI", _CHECKSUM, 4, 0) if checksum else b"")
    header = _START + struct.pack(">BBH", 0x20 | command, family, len(rest)) + rest
    return header[:-4] + struct.pack(">I", google_crc32c.value(header)) if checksum else header


_INET = bytes([192, 0, 2, 1, 198, 51, 100, 2]) + struct.pack(">HH", 50_000, 9092)
_INET6 = ipaddress.ip_address("2001:db8::1").packed * 2 + struct.pack(">HH", 50_000, 9092)
_MAPPED = ipaddress.ip_address("::ffff:192.0.2.1").packed * 2 + struct.pack(">HH", 1, 65_535)
_BODIES = {0x11: _INET, 0x21: _INET6, 0x31: bytes(216), 0x00: b"", 0x12: _INET}
_REQUEST = b"\0\0\0\x0e\0\x12\0\3\0\0\0\1\xff\xff\0"


def _seeds() -> list[bytes]:
    lines = (
        b"PROXY TCP4 192.0.2.1 198.51.100.2 50000 9092\r\n",
        b"PROXY TCP6 2001:db8::1 ::1 50000 9092\r\n",
        b"PROXY TCP6 ::ffff:192.0.2.1 ::ffff:1.2.3.4 0 65535\r\n",
        b"PROXY UNKNOWN\r\n",
        b"PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ::1 65535 65535\r\n",
    )
    tlvs = struct.pack(">BH", 1, 2) + b"h2" + struct.pack(">BH", 4, 3) + b"\0\0\0"
    seeds = [*lines, _REQUEST]
    for family, body in (*_BODIES.items(), (0x21, _MAPPED)):
        for command in (0, 1):
            seeds += [_v2(command, family, body), _v2(command, family, body, tlvs, checksum=True)]
    return seeds + [seed + _REQUEST for seed in seeds]


def _reshape(data: bytes, random: Random) -> bytes:
    """Write a whole header of version 2, its length and checksum right, or nearly."""
    family = random.choice((*_BODIES, random.getrandbits(8)))
    body = _BODIES.get(family, b"") if random.random() < 0.7 else random.randbytes(random.randrange(40))
    tlvs = b"".join(
        struct.pack(">BH", random.choice((1, 2, 3, 4, 5, 0x20, 0xEA)), len(value)) + value
        for value in (random.randbytes(random.randrange(9)) for _ in range(random.randrange(4)))
    )
    header = _v2(random.choice((0, 1, 1, 1, 2)), family, body, tlvs, checksum=random.random() < 0.5)
    return header + data[: random.randrange(20)]


_TOKENS = (
    b"PROXY ",
    _START,
    b"TCP4",
    b"TCP6",
    b"UNKNOWN",
    b"\r\n",
    b" ",
    b"::ffff:",
    b"%eth0",
    b"0x7f",
    b"65536",
    b"00",
    b"+1",
    "\u0661".encode(),
)

TARGET = Target(
    name="proxy",
    run=_run,
    seeds=_seeds,
    tokens=_TOKENS,
    reshape=_reshape,
    max_bytes=_MAX_BYTES,
    max_memory=8 << 20,
    brief=40_000,
)
