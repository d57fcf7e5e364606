from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from receiver.host.push_format import PushFormatError, decode_push, encode_push
from receiver.plugin import Push
from tests.property.host.strategies import pushes


@given(pushes)
def test_any_push_is_read_as_it_was_written(push: Push) -> None:
    assert decode_push(encode_push(push)) == push


@given(st.binary() | st.binary().map(lambda text: b"\x01" + len(text).to_bytes(4, "little") + text))
def test_any_bytes_are_a_push_or_a_format_error(data: bytes) -> None:
    with contextlib.suppress(PushFormatError):
        decode_push(data)


@given(pushes, st.data())
def test_a_push_with_a_changed_byte_is_a_push_or_a_format_error(push: Push, data: st.DataObject) -> None:
    changed = bytearray(encode_push(push))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(PushFormatError):
        decode_push(memoryview(changed))
