"""Valid and invalid PROXY headers, byte by byte."""

from __future__ import annotations

import socket
import struct

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.gateway.listeners.proxy_protocol import (
    MAX_HEADER_BYTES,
    ProxyHeader,
    ProxyProtocolError,
    may_begin,
    parse,
    plain_address,
)
from tests.testbed.scripted_broker import produce_frame

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
INET = socket.inet_aton("192.0.2.1") + socket.inet_aton("10.0.0.1") + struct.pack(">HH", 56_324, 443)
INET6 = (
    socket.inet_pton(socket.AF_INET6, "2001:db8::1")
    + socket.inet_pton(socket.AF_INET6, "fd00::1")
    + struct.pack(">HH", 56_324, 443)
)
MAPPED = socket.inet_pton(socket.AF_INET6, "::ffff:192.0.2.1") * 2 + struct.pack(">HH", 1, 2)


def v2(
    addresses: bytes = INET,
    tlvs: bytes = b"",
    *,
    command: int = 0x21,
    family: int = 0x11,
    length: int | None = None,
) -> bytes:
    """A header of version 2."""
    behind = addresses + tlvs
    return (
        SIGNATURE + struct.pack(">BBH", command, family, len(behind) if length is None else length) + behind
    )


def tlv(kind: int, value: bytes) -> bytes:
    return struct.pack(">BH", kind, len(value)) + value


def with_checksum(tlvs_before: bytes = b"", tlvs_behind: bytes = b"", *, wrong: int = 0) -> bytes:
    """A header of version 2 with a checksum (section 2.2.4), or with one that is wrong."""
    zeroed = v2(INET, tlvs_before + tlv(3, bytes(4)) + tlvs_behind)
    checksum = (google_crc32c.value(zeroed) ^ wrong).to_bytes(4, "big")
    return v2(INET, tlvs_before + tlv(3, checksum) + tlvs_behind)


V4, V6 = ("192.0.2.1", 56_324), ("2001:db8::1", 56_324)

GOOD: dict[str, tuple[bytes, tuple[str, int] | None]] = {
    "v1 TCP4": (b"PROXY TCP4 192.0.2.1 10.0.0.1 56324 443\r\n", V4),
    "v1 TCP6": (b"PROXY TCP6 2001:db8::1 fd00::1 56324 443\r\n", V6),
    "v1 TCP6, not abbreviated": (b"PROXY TCP6 2001:0db8:0:0:0:0:0:0001 fd00::1 56324 443\r\n", V6),
    "v1 TCP6, mapped": (b"PROXY TCP6 ::ffff:192.0.2.1 fd00::1 56324 443\r\n", V4),
    "v1 UNKNOWN": (b"PROXY UNKNOWN\r\n", None),
    "v1 UNKNOWN and more": (b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", None),
    "v1, longest": (b"PROXY UNKNOWN " + b"f" * 91 + b"\r\n", None),
    "v1 ports at their bounds": (b"PROXY TCP4 192.0.2.1 10.0.0.1 0 65535\r\n", ("192.0.2.1", 0)),
    "v2 TCP over IPv4": (v2(), V4),
    "v2 TCP over IPv6": (v2(INET6, family=0x21), V6),
    "v2 TCP over IPv6, mapped": (v2(MAPPED, family=0x21), ("192.0.2.1", 1)),
    "v2 LOCAL": (v2(b"", command=0x20, family=0x00), None),
    "v2 LOCAL with addresses": (v2(command=0x20), None),
    "v2 LOCAL of a family that there is not": (v2(b"abc", command=0x20, family=0xFF), None),
    "v2 unspecified": (v2(b"", family=0x00), None),
    "v2 UDP": (v2(family=0x12), None),
    "v2 Unix": (v2(bytes(216), family=0x31), None),
    "v2 with TLVs": (v2(INET, tlv(0xEA, b"\x01vpce-08d2bf15fac5001c9") + tlv(4, bytes(30))), V4),
    "v2 with an empty TLV": (v2(INET, tlv(4, b"")), V4),
    "v2 with a checksum": (with_checksum(), V4),
    "v2 with a checksum among others": (with_checksum(tlv(4, b"x"), tlv(0xEA, b"yz")), V4),
    "v2, longest": (v2(INET, tlv(4, bytes(MAX_HEADER_BYTES - 16 - len(INET) - 3))), V4),
}

BAD: dict[str, tuple[bytes, str]] = {
    "Kafka": (produce_frame(1), "expected a PROXY header"),
    "TLS": (b"\x16\x03\x01\x02\0", "expected a PROXY header"),
    "HTTP": (b"GET / HTTP/1.1\r\n\r\n", "expected a PROXY header"),
    "almost v1": (b"PROXYTCP4", "expected a PROXY header"),
    "v1 in small letters": (b"proxy TCP4", "expected a PROXY header"),
    "v1, too long": (b"PROXY UNKNOWN " + b"f" * 92 + b"\r\n", "at most 107 bytes"),
    "v1 without an end": (b"PROXY " + b"x" * 101, "at most 107 bytes"),
    "v1 of another family": (b"PROXY UDP4 192.0.2.1 10.0.0.1 1 2\r\n", "expected TCP4, TCP6 or UNKNOWN"),
    "v1 without words": (b"PROXY \r\n", "expected TCP4, TCP6 or UNKNOWN"),
    "v1, a word too few": (
        b"PROXY TCP4 192.0.2.1 10.0.0.1 56324\r\n",
        "two addresses and two ports",
    ),
    "v1, a word too many": (
        b"PROXY TCP4 192.0.2.1 10.0.0.1 1 2 3\r\n",
        "two addresses and two ports",
    ),
    "v1, two spaces": (b"PROXY TCP4  192.0.2.1 10.0.0.1 1 2\r\n", "two addresses and two ports"),
    "v1, a name": (b"PROXY TCP4 localhost 10.0.0.1 1 2\r\n", "two addresses and two ports"),
    "v1, no destination": (b"PROXY TCP4 192.0.2.1 there 1 2\r\n", "two addresses and two ports"),
    "v1, IPv6 as TCP4": (b"PROXY TCP4 ::1 ::1 1 2\r\n", "two addresses and two ports"),
    "v1, IPv4 as TCP6": (b"PROXY TCP6 192.0.2.1 10.0.0.1 1 2\r\n", "two addresses and two ports"),
    "v1, a zone": (b"PROXY TCP6 fe80::1%eth0 fe80::2 1 2\r\n", "two addresses and two ports"),
    "v1, a port too high": (
        b"PROXY TCP4 192.0.2.1 10.0.0.1 65536 2\r\n",
        "two addresses and two ports",
    ),
    "v1, a port below 0": (b"PROXY TCP4 192.0.2.1 10.0.0.1 -1 2\r\n", "two addresses and two ports"),
    "v1, a port with zeros": (
        b"PROXY TCP4 192.0.2.1 10.0.0.1 01 2\r\n",
        "two addresses and two ports",
    ),
    "v1, no port": (b"PROXY TCP4 192.0.2.1 10.0.0.1 1 http\r\n", "two addresses and two ports"),
    "v1, not ASCII": (
        "PROXY TCP4 192.0.2.1 10.0.0.1 1 ٢\r\n".encode(),
        "two addresses and two ports",
    ),
    "v1, a line feed alone": (b"PROXY TCP4 192.0.2.1 10.0.0.1 1 2\n" + b"x" * 80, "at most 107 bytes"),
    "almost v2": (SIGNATURE[:-1] + b"\r", "expected a PROXY header"),
    "v2, version 1": (v2(command=0x11), "version 1, command 1"),
    "v2, version 3": (v2(command=0x31), "version 3, command 1"),
    "v2, command 2": (v2(command=0x22), "version 2, command 2"),
    "v2, family 4": (v2(family=0x41), "family 4, transport 1"),
    "v2, transport 3": (v2(family=0x13), "family 1, transport 3"),
    "v2, too long": (v2(length=4097), "4097 bytes: expected at most 4096"),
    "v2, addresses too short": (v2(INET[:-1]), "11 bytes: expected at least 12"),
    "v2, IPv6 too short": (v2(INET6[:-1], family=0x21), "35 bytes: expected at least 36"),
    "v2, Unix too short": (v2(bytes(215), family=0x31), "215 bytes: expected at least 216"),
    "v2, a TLV cut short": (v2(INET, b"\x04\0"), "truncated PROXY TLV"),
    "v2, a TLV too long": (v2(INET, b"\x04\0\x02x"), "longer than the header"),
    "v2, a wrong checksum": (with_checksum(wrong=1), "wrong checksum"),
    "v2, a checksum of another length": (v2(INET, tlv(3, bytes(3))), "wrong checksum"),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_header_is_read_to_its_last_byte_and_no_further(name: str) -> None:
    data, source = GOOD[name]
    expected = ProxyHeader(size=len(data), source=source)
    assert parse(data) == expected
    assert parse(data + produce_frame(1) + data) == expected
    for cut in range(len(data)):
        assert parse(data[:cut]) is None
        assert may_begin(data[: cut + 1])


@pytest.mark.parametrize("name", BAD)
def test_anything_else_is_refused(name: str) -> None:
    data, why = BAD[name]
    with pytest.raises(ProxyProtocolError) as raised:
        parse(data)
    assert why in str(raised.value)
    assert parse(b"") is None


def test_nothing_that_clients_begin_with_may_begin_a_header() -> None:
    assert not may_begin(produce_frame(1))
    assert not may_begin(b"\0")
    assert not may_begin(b"\x16\x03\x01")


@pytest.mark.parametrize(
    ("as_the_system_writes_it", "plain"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::1", "::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("::192.0.2.1", "::192.0.2.1"),
    ],
)
def test_addresses_that_are_mapped_to_ipv6_are_shown_as_ipv4(
    as_the_system_writes_it: str, plain: str
) -> None:
    assert plain_address(as_the_system_writes_it) == plain


headers = st.sampled_from([data for data, _ in (*GOOD.values(), *BAD.values())])
mutations = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=3)


@st.composite
def beginnings(draw: st.DrawFn) -> bytes:
    """Bytes of no form at all, and headers of which some bytes are others."""
    if draw(st.booleans()):
        return draw(st.sampled_from([b"", b"PROXY ", SIGNATURE, SIGNATURE + b"\x21\x11"])) + draw(st.binary())
    data = bytearray(draw(headers))
    for position, byte in draw(mutations):
        if position < len(data):
            data[position] = byte
    return bytes(data)


def outcome(data: bytes) -> ProxyHeader | str | None:
    try:
        return parse(data)
    except ProxyProtocolError as error:
        return str(error)


@given(beginnings(), st.binary(max_size=40))
def test_what_was_decided_stays_decided_whatever_follows(data: bytes, more: bytes) -> None:
    """Any input gives a header, a ProxyProtocolError, or a wish for more bytes."""
    found = outcome(data)
    if found is None:
        assert len(data) < MAX_HEADER_BYTES
        later = outcome(data + more)
        if isinstance(later, ProxyHeader):
            assert later.size > len(data)
    else:
        assert outcome(data + more) == found
    if isinstance(found, ProxyHeader):
        assert found.size <= len(data)
        assert outcome(data[: found.size]) == found
        assert outcome(data[: found.size - 1]) is None
