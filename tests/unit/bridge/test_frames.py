"""Frames: every value survives, every length is checked, and what is new is skipped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from receiver.bridge import frames
from receiver.bridge.frames import BOUNDS, Challenge, FrameError, FrameType, Result, Welcome
from tests.unit.bridge import bridge_frames
from tests.unit.bridge.support import HELLO, PUSH

ROUND_TRIPS: list[tuple[Callable[[Any], bytes], Callable[[bytes], Any], Any]] = [
    (frames.encode_hello, frames.decode_hello, HELLO),
    (frames.encode_challenge, frames.decode_challenge, Challenge(version=1, nonce=b"n" * 32)),
    (bridge_frames.encode_proof, frames.decode_proof, b"p" * 32),
    (
        frames.encode_welcome,
        bridge_frames.decode_welcome,
        Welcome(proof=b"p" * 32, max_push_bytes=2**20, window=9),
    ),
    (bridge_frames.encode_push, frames.decode_push, PUSH),
    (frames.encode_refused, frames.decode_refused, "the receiver stops"),
    (
        frames.encode_acknowledge,
        bridge_frames.decode_acknowledge,
        [(1, Result.ACCEPTED), (2**63, Result.REFUSED)],
    ),
]


@pytest.mark.parametrize(("encode", "decode", "value"), ROUND_TRIPS)
def test_every_value_survives(
    encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], value: Any
) -> None:
    assert decode(encode(value)) == value


@pytest.mark.parametrize(("encode", "decode", "value"), ROUND_TRIPS)
def test_a_frame_that_ends_early_is_refused_or_has_shorter_metrics(
    encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], value: Any
) -> None:
    whole = encode(value)
    for size in range(1, len(whole)):
        try:
            found = decode(whole[:size])
        except FrameError:
            continue
        # The metrics are the rest of a frame, and so is a reason.
        assert value is PUSH or isinstance(value, str)
        if value is PUSH:
            assert replace(found, metrics=b"") == replace(PUSH, metrics=b"")


def test_statistics_have_names_and_unknown_ones_are_skipped() -> None:
    values = list(range(len(frames.STATISTICS) + 3))
    assert frames.decode_statistics(bridge_frames.encode_statistics(values)) == dict(
        zip(frames.STATISTICS, values, strict=False)
    )
    assert frames.decode_statistics(bridge_frames.encode_statistics([8])) == {"received": 8}
    with pytest.raises(FrameError, match="negative"):
        frames.decode_statistics(bridge_frames.encode_statistics([-1]))
    with pytest.raises(FrameError, match="count"):
        frames.decode_statistics(bridge_frames.encode_statistics(range(65)))


def test_a_text_has_a_bound_on_both_ends() -> None:
    long = replace(PUSH, client_id="x" * 5000)
    assert len(frames.decode_push(bridge_frames.encode_push(long)).client_id) == frames.MAX_TEXT_BYTES
    encoded = bytearray(bridge_frames.encode_push(replace(PUSH, client_id="x" * 2048)))
    start = encoded.index(b"\x08\x00xxx")
    encoded[start : start + 2] = b"\x08\x01"
    with pytest.raises(FrameError, match="client id: 2049 bytes are more than 2048"):
        frames.decode_push(bytes(encoded))


def test_the_longest_frames_are_within_their_bounds() -> None:
    text = "\U0001f600" * 512
    hello = replace(HELLO, cluster_id=text, software_version=text)
    assert len(frames.encode_hello(hello)) == BOUNDS[FrameType.HELLO]
    push = replace(
        PUSH,
        client_id=text,
        principal=text,
        source_address=text,
        listener=text,
        security_protocol=text,
        client_software_name=text,
        client_software_version=text,
        connection_id=text,
        metrics=b"",
    )
    assert len(bridge_frames.encode_push(push)) <= BOUNDS[FrameType.PUSH]
    assert len(bridge_frames.encode_statistics(range(64))) == BOUNDS[FrameType.STATISTICS]


def test_wrong_values_are_named() -> None:
    with pytest.raises(FrameError, match="source port 65536"):
        frames.decode_push(bridge_frames.encode_push(replace(PUSH, source_port=65_536)))
    with pytest.raises(FrameError, match="not those of a bridge"):
        frames.decode_hello(frames.encode_hello(HELLO).replace(b"KTBP", b"HTTP"))
    assert frames.decode_push(bridge_frames.encode_push(replace(PUSH, interval_ms=0))).interval_ms == -1


def test_a_reason_is_cut_at_a_character() -> None:
    assert frames.decode_refused(frames.encode_refused("é" * 400)) == "é" * 256
