"""Both directions against kio, a codec made from Kafka's own schemas by other people.

kio fails on tagged fields that its schema does not name, so there are none here; it has no
ApiVersions v5, no v1 of the telemetry messages and no request header v3. It turns durations into
seconds in floating point, so a session's lifetime stays below 2**50 ms here, where that is exact;
the round trip goes through all of int64.
"""

from __future__ import annotations

import importlib
import io
import uuid
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from receiver.wire import headers, k03_metadata, k18_api_versions
from receiver.wire.broker_addresses import BrokerAddress
from receiver.wire.primitives import Reader
from tests.exploration import examples
from tests.property.wire.strategies import int16s, int32s, requests, responses, texts
from tests.unit.wire.corpus import REQUESTS, RESPONSES, VERSIONS

_NAMES = {
    3: "metadata",
    17: "sasl_handshake",
    18: "api_versions",
    36: "sasl_authenticate",
    71: "get_telemetry_subscriptions",
    72: "push_telemetry",
}
_LACKING = {(18, 5), (71, 1), (72, 1)}
MESSAGES = [
    (key, version)
    for key, versions in VERSIONS.items()
    for version in versions
    if (key, version) not in _LACKING
]
lifetimes = st.integers(-(2**50), 2**50)
error_codes = st.sampled_from([code.value for code in KioErrorCode])


def _type(key: int, version: int, direction: str) -> Any:
    name = _NAMES[key]
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{direction}")
    return getattr(module, "".join(word.capitalize() for word in name.split("_")) + direction.capitalize())


def _write(value: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(value))(buffer, value)
    return buffer.getvalue()


def _read(kind: Any, data: bytes) -> Any:
    value, size = entity_reader(kind)(data, 0)
    assert size == len(data)
    return value


def _ours(value: Any) -> Any:
    """Convert a value of kio to the type that the receiver uses."""
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value


_RENAMED = {
    "throttle_time": "throttle_time_ms",
    "push_interval": "push_interval_ms",
    "session_lifetime": "session_lifetime_ms",
}


def _assert_same(ours: Any, theirs: Any) -> None:
    """Compare the fields that kio's version has."""
    for name in (field.name for field in fields(theirs)):
        expected = getattr(theirs, name)
        if name in (
            "supported_features",
            "finalized_features_epoch",
            "finalized_features",
            "zk_migration_ready",
        ):
            continue  # tagged fields, which we keep raw
        found = getattr(ours, _RENAMED.get(name, name))
        if name == "api_keys":
            assert len(found) == len(expected)
            for our_entry, their_entry in zip(found, expected, strict=True):
                _assert_same(our_entry, their_entry)
        elif name == "client_instance_id":
            assert found == (bytes(16) if expected is None else expected.bytes)
        else:
            assert found == _ours(expected)


@pytest.mark.parametrize(("key", "version"), MESSAGES)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_request(key: int, version: int, data: st.DataObject) -> None:
    ours = data.draw(requests(key, version, unknown=False))
    written = REQUESTS[key].encode(ours, version)
    theirs = _read(_type(key, version, "request"), written)
    _assert_same(ours, theirs)
    assert _write(theirs) == written


@pytest.mark.parametrize(("key", "version"), MESSAGES)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_response(key: int, version: int, data: st.DataObject) -> None:
    ours = data.draw(responses(key, version, unknown=False, error_codes=error_codes, lifetimes=lifetimes))
    written = RESPONSES[key].encode(ours, version)
    theirs = _read(_type(key, version, "response"), written)
    _assert_same(ours, theirs)
    again = Reader(_write(theirs))
    assert RESPONSES[key].decode(again, version) == ours
    again.expect_end()


@pytest.mark.parametrize("version", [3, 4])
@given(names=st.lists(texts, max_size=3), epoch=st.integers(0, 2**63 - 1), error=error_codes)
def test_features_survive_an_edit(version: int, names: list[str], epoch: int, error: int) -> None:
    module = importlib.import_module(f"kio.schema.api_versions.v{version}.response")
    theirs = module.ApiVersionsResponse(
        error_code=KioErrorCode(0),
        api_keys=(module.ApiVersion(api_key=18, min_version=0, max_version=4),),
        throttle_time=timedelta(milliseconds=5),
        supported_features=tuple(
            module.SupportedFeatureKey(name=name, min_version=0, max_version=1) for name in names
        ),
        finalized_features_epoch=epoch,
        finalized_features=tuple(
            module.FinalizedFeatureKey(name=name, max_version_level=1, min_version_level=0) for name in names
        ),
        zk_migration_ready=True,
    )
    spliced = k18_api_versions.splice_api_keys(_write(theirs), version, {18: (0, 5), 71: (0, 0), 3: (0, 9)})
    read = _read(module.ApiVersionsResponse, spliced)
    assert [(e.api_key, e.min_version, e.max_version) for e in read.api_keys] == [
        (3, 0, 9),
        (18, 0, 5),
        (71, 0, 0),
    ]
    for name in ("throttle_time", "supported_features", "finalized_features_epoch", "finalized_features"):
        assert getattr(read, name) == getattr(theirs, name)
    assert read.zk_migration_ready


@pytest.mark.parametrize("version", [1, 2])
@given(key=int16s, api_version=int16s, correlation_id=int32s, client_id=st.none() | texts)
def test_request_header(
    version: int, key: int, api_version: int, correlation_id: int, client_id: str | None
) -> None:
    kind = importlib.import_module(f"kio.schema.request_header.v{version}.header").RequestHeader
    theirs = kind(
        request_api_key=key,
        request_api_version=api_version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    ours = headers.RequestHeader(
        api_key=key, api_version=api_version, correlation_id=correlation_id, client_id=client_id
    )
    written = headers.encode_request_header(ours, version)
    assert written == _write(theirs)
    assert headers.decode_request_header(Reader(written), version) == ours


@pytest.mark.parametrize("version", [0, 1])
@given(correlation_id=int32s)
def test_response_header(version: int, correlation_id: int) -> None:
    kind = importlib.import_module(f"kio.schema.response_header.v{version}.header").ResponseHeader
    written = headers.encode_response_header(headers.ResponseHeader(correlation_id=correlation_id), version)
    assert written == _write(kind(correlation_id=correlation_id))


def _header_version(kind: Any) -> int:
    return int(kind.__header_schema__.__version__)


@pytest.mark.parametrize(
    ("key", "version"), [*MESSAGES, *((3, version) for version in k03_metadata.SUPPORTED_VERSIONS)]
)
def test_header_versions_are_those_of_the_schemas(key: int, version: int) -> None:
    assert headers.request_header_version(key, version) == _header_version(_type(key, version, "request"))
    assert headers.response_header_version(key, version) == _header_version(_type(key, version, "response"))


def test_header_versions_of_produce() -> None:
    for version in range(3, 13):
        kind = importlib.import_module(f"kio.schema.produce.v{version}.request").ProduceRequest
        assert headers.request_header_version(0, version) == _header_version(kind)
        kind = importlib.import_module(f"kio.schema.produce.v{version}.response").ProduceResponse
        assert headers.response_header_version(0, version) == _header_version(kind)


@pytest.mark.parametrize("version", k03_metadata.SUPPORTED_VERSIONS)
def test_metadata_for_no_topics(version: int) -> None:
    theirs = _read(_type(3, version, "request"), k03_metadata.encode_no_topics_request(version))
    asked = {field.name: getattr(theirs, field.name) for field in fields(theirs)}
    assert asked.pop("topics") == ()
    assert not any(asked.values())
    assert ("allow_auto_topic_creation" in asked) is (version >= 4)


@pytest.mark.parametrize("version", k03_metadata.SUPPORTED_VERSIONS)
@settings(max_examples=examples(30))
@given(
    hosts=st.lists(st.tuples(int32s, texts, int32s, st.none() | texts), max_size=4),
    cluster_id=st.none() | texts,
    throttle=int32s,
)
def test_cluster_id(
    version: int, hosts: list[tuple[int, str, int, str | None]], cluster_id: str | None, throttle: int
) -> None:
    module = importlib.import_module(f"kio.schema.metadata.v{version}.response")
    values: dict[str, Any] = {
        "brokers": tuple(
            module.MetadataResponseBroker(node_id=node, host=host, port=port, rack=rack)
            for node, host, port, rack in hosts
        ),
        "controller_id": 1,
        "topics": (),
    }
    named = {field.name for field in fields(module.MetadataResponse)}
    optional = {
        "cluster_id": cluster_id,
        "throttle_time": timedelta(milliseconds=throttle),
        "cluster_authorized_operations": -(2**31),
        "error_code": KioErrorCode(0),
    }
    values |= {name: value for name, value in optional.items() if name in named}
    body = _write(module.MetadataResponse(**values))
    expected = cluster_id if version >= 2 else None
    brokers = tuple(BrokerAddress(node, host, port) for node, host, port, _ in hosts)
    assert k03_metadata.decode_cluster(Reader(body), version) == k03_metadata.Cluster(expected, brokers)
