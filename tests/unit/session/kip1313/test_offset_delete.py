"""OffsetDelete translated between its two versions, byte by byte."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

import pytest

from receiver.session.exchanges.offset_delete import request_to_v0, response_to_v1
from receiver.wire.errors import WireError
from receiver.wire.primitives import Reader
from receiver.wire.writer import Writer

TAG = "01 05 02 6162"

REQUEST_V1 = f"02 67 03 02 61 03 00000001 00 00000002 {TAG} {TAG} 02 62 01 00 {TAG}"
REQUEST_V0 = "0001 67 00000002 0001 61 00000002 00000001 00000002 0001 62 00000000"

RESPONSE_V0 = "0045 0000000a 00000001 0001 61 00000001 00000007 0056"
RESPONSE_V1 = "0045 0000000a 02 02 61 02 00000007 0056 00 00 00"

CASES = [(request_to_v0, REQUEST_V1, REQUEST_V0), (response_to_v1, RESPONSE_V0, RESPONSE_V1)]


@pytest.mark.parametrize(("translate", "before", "after"), CASES)
def test_bytes(translate: Callable[[Reader], bytes], before: str, after: str) -> None:
    data = bytes.fromhex(before)
    reader = Reader(data)
    assert translate(reader) == bytes.fromhex(after)
    reader.expect_end()
    for length in range(len(data)):
        with pytest.raises(WireError) as caught:
            translate(Reader(data[:length]))
        assert 0 <= caught.value.offset <= length


@pytest.mark.parametrize(
    ("request_v1", "field"),
    [("00 01 00", "GroupId"), ("02 67 00 00", "Topics"), ("02 67 02 00 01 00 00", "Name")],
)
def test_nothing_in_a_request_can_be_null(request_v1: str, field: str) -> None:
    with pytest.raises(WireError, match=rf"expected {field} .* found null"):
        request_to_v0(Reader(bytes.fromhex(request_v1)))


def test_topics_and_partitions_are_limited_together() -> None:
    def request(topics: int, partitions: int) -> bytes:
        writer = Writer()
        writer.compact_string("g")
        writer.compact_array_length(topics)
        for _ in range(topics):
            writer.compact_string("t")
            writer.compact_array_length(partitions)
            writer.fixed(Struct(f"{5 * partitions}x"))
            writer.tagged_fields(())
        writer.tagged_fields(())
        return writer.take()

    assert len(request_to_v0(Reader(request(1 << 6, 255)))) == 3 + 4 + (1 << 6) * (3 + 4 + 4 * 255)
    with pytest.raises(WireError, match=r"at most 8192 Partitions .* found 8193"):
        request_to_v0(Reader(request(1, 8_193)))
    with pytest.raises(WireError, match=r"at most 8192 Topics .* found 9000"):
        request_to_v0(Reader(request(9_000, 0)))
    with pytest.raises(WireError, match=r"at most 16384 array items and tagged fields in a message"):
        request_to_v0(Reader(request(3, 8_000)))
