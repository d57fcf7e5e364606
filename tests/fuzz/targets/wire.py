"""Fuzzes the wire codec: every message in every version, and the headers.

An input's first byte chooses the reader of the rest. A value that was read is written and read
again, and must be equal.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from receiver.session.exchanges import offset_delete
from receiver.session.exchanges.api_versions import OFFERED
from receiver.session.exchanges.refusal import error_body
from receiver.session.exchanges.refused_entries import error_entries, has_entries
from receiver.wire import (
    k03_metadata,
    k18_api_versions,
    k38_create_delegation_token,
    k41_describe_delegation_token,
    k72_push_telemetry,
)
from receiver.wire.errors import WireError
from receiver.wire.header_versions import LATEST
from receiver.wire.headers import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from receiver.wire.primitives import Reader
from tests.fuzz.target import Target, require
from tests.unit.wire.corpus import REQUESTS, RESPONSES, VERSIONS, Codec, decode_header, load

#: The longest text of an error, whatever the bytes are.
_MAX_ERROR_CHARACTERS = 300

_KEY_VERSION_ERROR = Struct(">hhh")
_WITH_ENTRIES = [
    (key, version) for key, last in LATEST.items() for version in range(last + 2) if has_entries(key, version)
]


def _both_ways(codec: Codec, version: int) -> Callable[[bytes], None]:
    """Return a check of a message or header that is read and written."""

    def check(data: bytes) -> None:
        reader = Reader(data)
        value = codec.decode(reader, version)
        require(0 <= reader.offset <= len(data), "the reader left its buffer")
        written = codec.encode(value, version)
        again = Reader(written)
        require(codec.decode(again, version) == value, "what was written reads as something else")
        again.expect_end()
        require(codec.encode(value, version) == written, "it is written differently the second time")

    return check


def _header_of_any_version(data: bytes) -> None:
    header = decode_request_header(Reader(data))
    require(decode_request_header(Reader(encode_request_header(header))) == header, "another header")


def _reads(read: Callable[[Reader, int], Any], version: int) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        read(Reader(data), version)

    return check


def _cut_push(data: bytes) -> None:
    push = k72_push_telemetry.decode_request(Reader(data), 0, cut=True)
    require(len(push.metrics or b"") <= len(data), "more metrics than bytes")


def _translates(translate: Callable[[Reader], bytes]) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        reader = Reader(data)
        require(len(translate(reader)) <= 4 * len(data) + 16, "a translation much longer than what it is of")
        require(0 <= reader.offset <= len(data), "the reader left its buffer")

    return check


def _error_body(data: bytes) -> None:
    api_key, api_version, error_code = Reader(data).fixed(_KEY_VERSION_ERROR)
    error_body(api_key, api_version, error_code)


def _error_entries(data: bytes) -> None:
    reader = Reader(data)
    key, version = _WITH_ENTRIES[reader.int16() % len(_WITH_ENTRIES)]
    answer = error_entries(key, version, reader, 42)
    require(len(answer) <= 70 * len(data) + 16, "a long answer to a short request")
    require(0 <= reader.offset <= len(data), "the reader left its buffer")


def _splice(version: int) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        error_code = k18_api_versions.read_error_code(data)
        k18_api_versions.read_ranges(data, version, (3, 18))
        spliced = k18_api_versions.splice_api_keys(data, version, OFFERED)
        if error_code == 0 and spliced is not data:  # it lists keys at all
            ranges = k18_api_versions.read_ranges(spliced, version, OFFERED)
            require(ranges == dict(OFFERED), f"the spliced answer says {ranges}")
            require(
                k18_api_versions.splice_api_keys(spliced, version, OFFERED) == spliced,
                "spliced again it differs",
            )

    return check


def _table() -> dict[tuple[str, int, int], Callable[[bytes], None]]:
    """Every reader by what it reads: kind, API key and version."""
    table: dict[tuple[str, int, int], Callable[[bytes], None]] = {
        ("any request header", 0, 0): _header_of_any_version
    }
    for version in range(4):
        codec = Codec(decode=decode_request_header, encode=encode_request_header)
        table["request header", 0, version] = _both_ways(codec, version)
    for version in range(2):
        codec = Codec(decode=decode_response_header, encode=encode_response_header)
        table["response header", 0, version] = _both_ways(codec, version)
    for key, versions in VERSIONS.items():
        for version in versions:
            table["request", key, version] = _both_ways(REQUESTS[key], version)
            table["response", key, version] = _both_ways(RESPONSES[key], version)
    for version in k18_api_versions.SUPPORTED_VERSIONS:
        table["splice", 18, version] = _splice(version)
    for version in k03_metadata.SUPPORTED_VERSIONS:
        table["cluster", 3, version] = _reads(k03_metadata.decode_cluster, version)
        table["is error", 3, version] = _reads(k03_metadata.is_error, version)
    table["cut push", 72, 0] = _cut_push
    table["to v0", 47, 1] = _translates(offset_delete.request_to_v0)
    table["to v1", 47, 0] = _translates(offset_delete.response_to_v1)
    table["error body", 0, 0] = _error_body
    table["error entries", 0, 0] = _error_entries
    for module, key in ((k38_create_delegation_token, 38), (k41_describe_delegation_token, 41)):
        for version in module.SUPPORTED_VERSIONS:
            table["tokens", key, version] = _reads(module.decode_response, version)
    return table


_TABLE = _table()
_KINDS = list(_TABLE)
_CHECKS = list(_TABLE.values())


def _run(data: bytes) -> None:
    if not data:
        return
    try:
        _CHECKS[data[0] % len(_CHECKS)](data[1:])
    except WireError as error:
        require(len(str(error)) <= _MAX_ERROR_CHARACTERS, "an error as long as the bytes allow")
        require(error.__cause__ is None and error.__context__ is None, "an error that holds another")


def _seeds() -> list[bytes]:
    seeds = []
    for frame in load():
        if (kind := "request" if frame.is_request else "response", frame.key, frame.version) in _TABLE:
            reader = Reader(frame.data)
            decode_header(reader, frame)
            body = frame.data[reader.offset :]
            wanted = [(kind, frame.key, frame.version), ("cut push", frame.key, frame.version)]
            wanted += [("splice", frame.key, frame.version)] * (not frame.is_request)
            seeds += [bytes([_KINDS.index(kind)]) + body for kind in wanted if kind in _TABLE]
            header = ("any request header", 0, 0) if frame.is_request else ("response header", 0, 0)
            seeds.append(bytes([_KINDS.index(header)]) + frame.data[:64])
    for index in range(len(_KINDS)):
        seeds += [bytes([index]) + bytes(40), bytes([index]) + bytes(range(1, 60))]
    return sorted(set(seeds), key=len)


TARGET = Target(name="wire", run=_run, seeds=_seeds, max_bytes=2048, max_memory=8 << 20, brief=60_000)
