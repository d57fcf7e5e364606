"""Every captured frame: read, compared with an independent decoder, rewritten and damaged."""

from __future__ import annotations

from typing import Any

import pytest

from receiver.wire import k03_metadata
from receiver.wire.errors import WireError
from receiver.wire.primitives import Reader
from receiver.wire.uuid import uuid_to_text
from tests.unit.wire.corpus import CLUSTER_ID, Captured, codec, decode_header, encode_header, load

FRAMES = load()
WHOLE = [frame for frame in FRAMES if frame.key != 3]  # of Metadata only a part is ever read


def _name(frame: Captured) -> str:
    return frame.file.removesuffix(".bin")


def _decode(data: bytes, frame: Captured) -> tuple[Any, Any, Reader]:
    reader = Reader(data)
    header = decode_header(reader, frame)
    return header, codec(frame).decode(reader, frame.version), reader


def _as_indexed(frame: Captured, header: Any, value: Any) -> dict[str, Any]:
    """Return a decoded message in the terms of index.json."""
    key, version, is_request = frame.key, frame.version, frame.is_request
    fields: dict[str, Any] = {"client_id": header.client_id} if is_request else {}
    if key == 18 and is_request:
        fields["version"] = version
        if version >= 3:
            fields |= {"name": value.client_software_name, "ver": value.client_software_version}
        if version >= 5:
            fields |= {"cluster": value.cluster_id, "node": value.node_id}
    elif key == 18:
        ranges = {entry.api_key: [entry.min_version, entry.max_version] for entry in value.api_keys}
        fields |= {"error": value.error_code, "n": len(value.api_keys)}
        fields |= {f"k{k}": ranges.get(k) for k in (18, 71, 72, 74)}
    elif is_request:
        fields["instance"] = uuid_to_text(value.client_instance_id)
        if key == 72:
            fields |= {
                "sub": value.subscription_id,
                "terminating": value.terminating,
                "compression": value.compression_type,
                "wire": len(value.metrics),
            }
    else:
        fields |= {"throttle": value.throttle_time_ms, "error": value.error_code}
        if key == 71:
            fields |= {
                "instance": uuid_to_text(value.client_instance_id),
                "sub": value.subscription_id,
                "accepted": list(value.accepted_compression_types),
                "push_interval": value.push_interval_ms,
                "max": value.telemetry_max_bytes,
                "delta": value.delta_temporality,
                "metrics": list(value.requested_metrics),
            }
    return fields


def test_the_corpus_has_every_message_in_both_directions() -> None:
    assert {(f.key, f.is_request) for f in FRAMES} == {
        (key, is_request) for key in (3, 17, 18, 36, 71, 72) for is_request in (True, False)
    }


@pytest.mark.parametrize("frame", FRAMES, ids=_name)
def test_header(frame: Captured) -> None:
    data = frame.data
    assert len(data) == frame.length
    reader = Reader(data)
    header = decode_header(reader, frame)
    assert header.correlation_id == frame.correlation_id
    if frame.is_request:
        assert (header.api_key, header.api_version) == (frame.key, frame.version)
        assert header.client_id == frame.client_id
        assert header.client_instance_id is None
    assert encode_header(header, frame) == data[: reader.offset]


@pytest.mark.parametrize("frame", [f for f in WHOLE if f.decoded is not None], ids=_name)
def test_fields_are_those_of_the_index(frame: Captured) -> None:
    header, value, _ = _decode(frame.data, frame)
    assert _as_indexed(frame, header, value) == frame.decoded


@pytest.mark.parametrize("frame", WHOLE, ids=_name)
def test_written_again_byte_for_byte(frame: Captured) -> None:
    data = frame.data
    header, value, reader = _decode(data, frame)
    reader.expect_end()
    assert encode_header(header, frame) + codec(frame).encode(value, frame.version) == data


@pytest.mark.parametrize("frame", WHOLE, ids=_name)
def test_cut_at_every_byte(frame: Captured) -> None:
    data = frame.data
    for length in range(len(data)):
        with pytest.raises(WireError) as caught:
            _decode(data[:length], frame)
        assert 0 <= caught.value.offset <= length


@pytest.mark.parametrize("frame", WHOLE, ids=_name)
def test_bytes_after_it_stay_unread(frame: Captured) -> None:
    data = frame.data
    after = b"\xff\x00more"
    header, value, reader = _decode(data + after, frame)
    assert (header, value) == _decode(data, frame)[:2]
    assert reader.remaining == len(after)
    with pytest.raises(WireError, match=rf"at offset {len(data)}, found {len(after)} more bytes"):
        reader.expect_end()


@pytest.mark.parametrize("frame", [f for f in FRAMES if f.key == 3 and not f.is_request], ids=_name)
def test_cluster_id(frame: Captured) -> None:
    data = frame.data
    reader = Reader(data)
    decode_header(reader, frame)
    assert k03_metadata.decode_cluster(reader, frame.version).id == CLUSTER_ID
    for length in range(reader.offset):
        cut = Reader(data[:length])
        with pytest.raises(WireError) as caught:  # noqa: PT012 - either of the two may be the one cut
            decode_header(cut, frame)
            k03_metadata.decode_cluster(cut, frame.version)
        assert 0 <= caught.value.offset <= length


@pytest.mark.parametrize("frame", [f for f in FRAMES if f.key == 36], ids=_name)
def test_tokens_are_not_shown(frame: Captured) -> None:
    _, value, _ = _decode(frame.data, frame)
    secret = value.auth_bytes
    shown = repr(value)
    assert "auth_bytes" not in shown
    if secret:
        assert repr(secret)[2:-1] not in shown


def test_login_outcomes() -> None:
    outcomes = {}
    for frame in FRAMES:
        if frame.key == 36 and not frame.is_request:
            _, value, _ = _decode(frame.data, frame)
            outcomes[_name(frame)] = value.error_code
    failed = {name for name, code in outcomes.items() if code}
    assert failed == {name for name in outcomes if "BAD" in name}
    assert all(outcomes[name] == 58 for name in failed)


def test_requested_mechanisms() -> None:
    asked = {
        (frame.label, _decode(frame.data, frame)[1].mechanism)
        for frame in FRAMES
        if frame.key == 17 and frame.is_request
    }
    assert ("ck-sasl-plain", "PLAIN") in asked
    assert ("java44-sasl-scram", "SCRAM-SHA-256") in asked
