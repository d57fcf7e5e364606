"""Cases of the byte stream: order of responses, split frames and malformed frames."""

from __future__ import annotations

import struct
from typing import Final

from tests.conformance.conversation import Case, Step, byte_by_byte, split_everywhere, together
from tests.conformance.requests import frame, header, uvarint
from tests.conformance.words import (
    api_versions,
    expect_close,
    expect_silence,
    get,
    metadata,
    produce,
    push,
    send,
)

_CLIENT_HELLO: Final = bytes.fromhex("16030100f8010000f40303") + bytes(range(200))


def _fate(name: str, *steps: Step) -> Case:
    return Case(name=name, steps=(*steps, expect_close()), goes_on=False)


def _tagged_fields(count: int) -> bytes:
    """Return that many unknown tagged fields, all empty."""
    return uvarint(count) + b"".join(uvarint(10_000 + number) + b"\0" for number in range(count))


_ORDER = (
    Case(
        name="a pipeline of everything",
        steps=(
            get("a"),
            together(
                metadata(),
                get("b"),
                produce(0),
                push("a"),
                api_versions(3),
                produce(1),
                get("a"),
                api_versions(99),
                produce(0),
                produce(0),
                get("c"),
                metadata(),
                push("c"),
            ),
        ),
    ),
    Case(
        name="a long pipeline",
        steps=(
            together(
                *(
                    request
                    for number in range(16)
                    for request in (
                        metadata(),
                        get(f"{number}"),
                        produce(number % 2),
                        api_versions(number % 7),
                    )
                )
            ),
        ),
    ),
    Case(name="a pipeline of 33 telemetry requests", steps=(together(*(get(f"{n}") for n in range(33))),)),
    Case(
        name="several requests under one correlation id",
        steps=(
            get("a"),
            together(
                *(
                    request
                    for request in (
                        metadata(correlation_id=7),
                        push("a", correlation_id=7),
                        api_versions(3, correlation_id=7),
                        produce(0, correlation_id=7),
                        get("b", correlation_id=7),
                        produce(1, correlation_id=7),
                        get("a", correlation_id=7),
                        api_versions(99, correlation_id=7),
                        metadata(correlation_id=7),
                    )
                )
            ),
        ),
    ),
    Case(
        name="correlation ids from both ends of the range",
        steps=(
            together(
                *(
                    get(f"{number}", correlation_id=correlation_id)
                    for number, correlation_id in enumerate((0, -1, 2**31 - 1, -(2**31)))
                ),
                *(api_versions(0, correlation_id=correlation_id) for correlation_id in (-1, 0, -(2**31))),
                metadata(correlation_id=-1),
            ),
        ),
    ),
    Case(name="only produce with acks=0 before a get", steps=(together(produce(0), produce(0), get()),)),
)

_HEADERS = tuple(
    _fate(
        f"a {which} request with {count} tagged fields in its header",
        *before,
        # DescribeClientQuotas v1, for all: there are none.
        send(frame(header(48, 1, 1, None, _tagged_fields(count)) + bytes([1, 0, 0]))),
    )
    for which, before in (("first", ()), ("second", (metadata(),)))
    for count in (64, 65)
)

_PIECES = (
    Case(
        name="telemetry byte by byte",
        steps=(byte_by_byte(get("a"), metadata(), push("b"), api_versions(4), produce(1)),),
    ),
    Case(name="ApiVersions cut everywhere", steps=(split_everywhere(lambda: api_versions(5)),)),
    Case(name="get cut everywhere", steps=(split_everywhere(lambda: get("a")),)),
    Case(name="push cut everywhere", steps=(split_everywhere(lambda: push("a", metrics=b"")),)),
    Case(name="metadata cut everywhere", steps=(split_everywhere(metadata),)),
    Case(
        name="a length and nothing after it",
        steps=(send(struct.pack(">i", 100)), expect_silence()),
        goes_on=False,
    ),
    Case(
        name="a telemetry request without its last byte",
        steps=(send(struct.pack(">ihhi", 40, 71, 0, 1) + bytes(31)), expect_silence()),
        goes_on=False,
    ),
    Case(name="half a length", steps=(send(b"\0\0"), expect_silence()), goes_on=False),
)


_GARBAGE = (
    _fate("HTTP", send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")),
    _fate("a TLS ClientHello", send(_CLIENT_HELLO)),
    _fate("a negative length", send(struct.pack(">i", -1) + bytes(20))),
    _fate("the least length there is", send(struct.pack(">i", -(2**31)) + bytes(20))),
    _fate("2 GiB announced", send(struct.pack(">ihhi", 2**31 - 1, 0, 3, 1))),
    _fate("2 GiB of telemetry announced", send(struct.pack(">ihhi", 2**31 - 1, 72, 0, 1))),
    _fate("a byte more than socket.request.max.bytes", send(struct.pack(">ihhi", 104_857_601, 0, 3, 1))),
    _fate("an empty frame", send(bytes(4))),
    _fate("a frame of one byte", send(struct.pack(">i", 1) + b"\0")),
    _fate("a frame of seven bytes", send(struct.pack(">i", 7) + bytes(7))),
    _fate("a header without a client id", send(struct.pack(">ihhi", 8, 18, 0, 1))),
    _fate("a telemetry header without a client id", send(struct.pack(">ihhi", 8, 71, 0, 1))),
    _fate("a client id longer than its frame", send(struct.pack(">ihhih", 10, 18, 0, 1, 500))),
    *(
        _fate(f"{what} whose header {ends}", *before, send(struct.pack(">i", len(data)) + data))
        for what, before in (("a first request", ()), ("a second request", (api_versions(0),)))
        for ends, data in (
            ("has no client id", struct.pack(">hhi", 3, 2, 1)),
            ("has half a length of a client id", struct.pack(">hhi", 3, 2, 1) + b"\0"),
            ("has a client id that goes on behind it", struct.pack(">hhih", 3, 2, 1, 500)),
            ("lacks its tagged fields", struct.pack(">hhih", 3, 9, 1, -1)),
            ("has tagged fields that go on behind it", struct.pack(">hhih", 3, 9, 1, -1) + b"\x01\x05\x7f"),
            ("has a count of tagged fields that is none", struct.pack(">hhih", 3, 9, 1, -1) + b"\xff" * 6),
        )
    ),
    _fate("an API key that nobody has", send(struct.pack(">ihhih", 10, 9999, 0, 1, -1))),
    _fate("a negative API key", send(struct.pack(">ihhih", 10, -1, 0, 1, -1))),
    _fate("garbage after a good request", api_versions(3), get(), send(b"\xff" * 16)),
    *(
        _fate(f"garbage right behind {what}", together(*sent, then=b"\xff" * 16))
        for what, sent in (
            ("metadata", (metadata(),)),
            ("a get", (get(),)),
            ("ApiVersions", (api_versions(3),)),
            ("ApiVersions of a newer client", (api_versions(99),)),
            ("produce", (produce(1),)),
            ("a pipeline", (metadata(), api_versions(3), get(), produce(0), push("b"), produce(1))),
        )
    ),
    _fate("a get cut by a byte behind a pipeline", together(metadata(), api_versions(3), get(), get(cut=1))),
    _fate("a get of version 9 behind a pipeline", together(metadata(), produce(1), get(version=9))),
    _fate("ApiVersions cut by a byte behind a pipeline", together(metadata(), get(), api_versions(3, cut=1))),
)

CASES: Final = _ORDER + _HEADERS + _PIECES + _GARBAGE
