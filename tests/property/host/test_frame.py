from __future__ import annotations

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from receiver.host.push_format import decode_push
from receiver.host.spool.frame import HEADER_BYTES, Frame, FrameError, encode_frames, parse_header, split_body
from receiver.plugin import Push
from tests.property.host.strategies import pushes

_COMPRESSOR = zstandard.ZstdCompressor(level=1)


def decoded(data: bytes) -> list[Push]:
    header = parse_header(data[:HEADER_BYTES])
    return [decode_push(record) for record in split_body(header, data[HEADER_BYTES:])]


def encoded(some: list[Push], *, first: int, raw_bytes: int) -> list[Frame]:
    return encode_frames(some, first=first, raw_bytes=raw_bytes, compressor=_COMPRESSOR)


@given(st.lists(pushes, max_size=8), st.integers(0, 1 << 60), st.integers(1, 3000))
def test_pushes_come_out_of_frames_as_they_went_in(some: list[Push], first: int, raw_bytes: int) -> None:
    frames = encoded(some, first=first, raw_bytes=raw_bytes)
    assert [push for frame in frames for push in decoded(frame.data)] == some
    end = first
    for frame in frames:
        header = parse_header(frame.data[:HEADER_BYTES])
        assert (header.first, header.end) == (frame.first, frame.end)
        assert frame.first == end < frame.end
        assert header.raw_bytes <= raw_bytes or header.pushes == 1
        oldest = min(push.context.received_at_ns for push in some[frame.first - first : frame.end - first])
        assert header.oldest_received_at_ns == oldest
        end = frame.end
    assert end == first + len(some)


@given(st.lists(pushes, min_size=1, max_size=3), st.data())
def test_a_frame_with_a_changed_byte_or_a_part_of_one_is_refused(
    some: list[Push], data: st.DataObject
) -> None:
    (frame,) = encoded(some, first=0, raw_bytes=1 << 20)
    changed = bytearray(frame.data)
    at = data.draw(st.integers(0, len(changed) - 1))
    changed[at] ^= data.draw(st.integers(1, 255))
    for wrong in (bytes(changed), frame.data[:at]):
        with pytest.raises(FrameError):
            decoded(wrong)
