"""Written messages are read back, with unknown tags; malformed bytes raise only WireError."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from receiver.wire import k03_metadata, k18_api_versions
from receiver.wire.errors import WireError
from receiver.wire.headers import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from receiver.wire.primitives import Reader
from receiver.wire.uuid import RESERVED_UUIDS, Uuid, random_uuid, uuid_from_text, uuid_to_text
from tests.exploration import examples
from tests.property.wire.strategies import (
    int16s,
    request_headers,
    requests,
    response_headers,
    responses,
    uuids,
)
from tests.unit.wire.corpus import REQUESTS, RESPONSES, VERSIONS, load

MESSAGES = [(key, version) for key, versions in VERSIONS.items() for version in versions]
CAPTURED = [frame.data for frame in load()]


def _check(codec: Any, version: int, value: Any, after: bytes) -> None:
    data = codec.encode(value, version)
    reader = Reader(data + after)
    assert codec.decode(reader, version) == value
    assert reader.offset == len(data)


@pytest.mark.parametrize(("key", "version"), MESSAGES)
@settings(max_examples=examples(30))
@given(data=st.data(), after=st.binary(max_size=8))
def test_request(key: int, version: int, data: st.DataObject, after: bytes) -> None:
    _check(REQUESTS[key], version, data.draw(requests(key, version)), after)


@pytest.mark.parametrize(("key", "version"), MESSAGES)
@settings(max_examples=examples(30))
@given(data=st.data(), after=st.binary(max_size=8))
def test_response(key: int, version: int, data: st.DataObject, after: bytes) -> None:
    _check(RESPONSES[key], version, data.draw(responses(key, version)), after)


@pytest.mark.parametrize("version", range(4))
@given(data=st.data())
def test_request_header(version: int, data: st.DataObject) -> None:
    header = data.draw(request_headers(version))
    reader = Reader(encode_request_header(header, version))
    assert decode_request_header(reader, version) == header
    reader.expect_end()


@pytest.mark.parametrize("version", range(2))
@given(data=st.data())
def test_response_header(version: int, data: st.DataObject) -> None:
    header = data.draw(response_headers(version))
    reader = Reader(encode_response_header(header, version))
    assert decode_response_header(reader, version) == header
    reader.expect_end()


@given(uuids)
def test_uuid_text(uuid: Uuid) -> None:
    text = uuid_to_text(uuid)
    assert len(text) == 22
    assert uuid_from_text(text) == uuid


@given(st.text(max_size=30))
def test_any_text_is_a_uuid_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert uuid_to_text(uuid_from_text(text)) == text.removesuffix("==")


@given(st.randoms(use_true_random=False))
def test_new_uuids(random: Any) -> None:
    uuid = random_uuid(random.randbytes)
    assert uuid not in RESERVED_UUIDS
    assert not uuid_to_text(uuid).startswith("-")
    assert uuid[6] >> 4 == 4
    assert uuid[8] >> 6 == 2


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A captured frame with some of it overwritten, cut off or doubled; or anything at all."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=200))
    frame = bytearray(draw(st.sampled_from(CAPTURED))[:1500])
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(frame)))
        frame[start : start + draw(st.integers(0, 6))] = draw(st.binary(max_size=6))
    return bytes(frame)


def _offset_reached(attempt: Any, reader: Reader) -> int:
    """Where reading ended: the reader's place, or the place that the error names."""
    try:
        attempt(reader)
    except WireError as error:
        return error.offset
    return reader.offset


@given(damaged(), st.integers(0, 60))
def test_any_bytes_are_a_message_or_a_wire_error(data: bytes, start: int) -> None:
    start = min(start, len(data))
    attempts: list[Any] = [
        lambda r: decode_request_header(r),
        lambda r: decode_response_header(r, 0),
        lambda r: decode_response_header(r, 1),
    ]
    attempts += [lambda r, v=v: decode_request_header(r, v) for v in range(4)]
    attempts += [lambda r, v=v: k03_metadata.decode_cluster(r, v) for v in k03_metadata.SUPPORTED_VERSIONS]
    for codecs in (REQUESTS, RESPONSES):
        attempts += [lambda r, c=codecs[k], v=v: c.decode(r, v) for k, v in MESSAGES]
    for attempt in attempts:
        reader = Reader(data, start)
        assert start <= _offset_reached(attempt, reader) <= len(data)


@given(damaged(), st.sampled_from(k18_api_versions.SUPPORTED_VERSIONS), int16s)
def test_any_body_is_spliced_or_a_wire_error(data: bytes, version: int, key: int) -> None:
    for body in (data, data[4:]):
        with suppress(WireError):
            k18_api_versions.splice_api_keys(body, version, {key: (0, 0), 71: (0, 0)})
        with suppress(WireError):
            k18_api_versions.read_ranges(body, version, [key])
