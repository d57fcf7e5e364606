"""Every push gets an answer, whatever its bytes."""

from __future__ import annotations

import gzip

import cramjam
import lz4.frame
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from receiver.settings.model import TelemetrySettings
from receiver.telemetry.compression import inflate
from receiver.telemetry.errors import NotInflatableError, TooLargeError
from receiver.wire.error_codes import ErrorCode
from receiver.wire.uuid import Uuid
from tests.unit.telemetry.parts import ALL_PAYLOADS, Client, connection, payload, subscription

COMPRESS = {
    0: bytes,
    1: gzip.compress,
    2: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    3: lz4.frame.compress,
    4: zstandard.compress,
}
codecs = st.sampled_from(sorted(COMPRESS))
XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"

SETTINGS = TelemetrySettings(max_bytes=1024, max_inflated_bytes=4096)


@given(
    client_instance_id=st.binary(min_size=16, max_size=16).map(Uuid),
    codec=st.integers(-128, 127),
    right_id=st.booleans(),
    terminating=st.booleans(),
    metrics=st.one_of(st.none(), st.binary(max_size=64), st.binary(min_size=1000, max_size=1100)),
    client_id=st.text(alphabet=st.characters(exclude_categories=()), max_size=20),
)
def test_any_push_is_answered(
    client_instance_id: Uuid,
    codec: int,
    right_id: bool,
    terminating: bool,
    metrics: bytes | None,
    client_id: str,
) -> None:
    client = Client(
        subscription(match={"client_id": ".*"}), settings=SETTINGS, connected=connection(client_id=client_id)
    )
    client.id = client_instance_id
    client.get(0)
    changes = {} if right_id else {"subscription_id": 5}
    outcome = client.push(
        1,
        metrics,
        client_instance_id=client_instance_id,
        compression_type=codec,
        terminating=terminating,
        **changes,
    )
    assert outcome.response.error_code in set(ErrorCode)
    assert (outcome.problem is None) == (outcome.response.error_code == ErrorCode.NONE)
    assert (outcome.push is None) == (outcome.problem is not None)
    if outcome.push is not None and outcome.push.payload.data:
        assert outcome.push.payload.metrics.resource_metrics


@given(codec=codecs, data=st.binary(max_size=3000), framed=st.booleans(), limit=st.integers(1, 4000))
def test_any_bytes_inflate_or_are_refused(codec: int, data: bytes, framed: bool, limit: int) -> None:
    try:
        inflated = inflate(codec, (XERIAL if framed else b"") + data, limit)
    except (NotInflatableError, TooLargeError):
        return
    assert len(inflated) <= limit


@given(codec=codecs, data=st.data())
def test_damage_is_refused_or_inflates_within_the_limit(codec: int, data: st.DataObject) -> None:
    text = payload(data.draw(st.sampled_from(ALL_PAYLOADS)))
    damaged = bytearray(COMPRESS[codec](text))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    client = Client(subscription())
    client.get(0)
    outcome = client.push(1, bytes(damaged), compression_type=codec)
    assert outcome.response.error_code in (
        ErrorCode.NONE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.TELEMETRY_TOO_LARGE,
    )


@given(
    codec=codecs,
    pieces=st.lists(st.tuples(st.binary(max_size=200), st.integers(1, 2000)), max_size=5),
    spare=st.integers(0, 1),
)
def test_compressed_data_round_trips(codec: int, pieces: list[tuple[bytes, int]], spare: int) -> None:
    text = b"".join(piece * times for piece, times in pieces)
    compressed = COMPRESS[codec](text)
    if compressed:
        assert inflate(codec, compressed, len(text) + spare) == text
        if text and not spare:
            try:
                inflate(codec, compressed, len(text) - 1)
            except TooLargeError:
                return
            raise AssertionError("more than the limit came out")
