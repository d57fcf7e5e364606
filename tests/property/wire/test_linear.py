"""Decoding is linear: twice the items cost at most twice the steps, and a step is cheap.

A step is a line of Python. Lines are counted, not seconds, so the result is the same on any
machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from receiver.session.exchanges import offset_delete
from receiver.wire import (
    altered_configs,
    api_keys,
    config_resources,
    k03_metadata,
    k10_find_coordinator,
    k18_api_versions,
    k32_describe_configs,
    k36_sasl_authenticate,
    k41_describe_delegation_token,
    k55_describe_quorum,
    k60_describe_cluster,
    k72_push_telemetry,
    k74_list_config_resources,
)
from receiver.wire.altered_configs import AlterConfigsRequest, AlteredConfig, AlteredResource
from receiver.wire.broker_addresses import BrokerAddress
from receiver.wire.config_resources import Resource
from receiver.wire.primitives import Reader
from receiver.wire.writer import Writer
from tests.exploration import examples

#: Steps that an item may cost, in lines of Python.
_MAX_STEPS: Final = 150

#: Steps that do not depend on the number of items.
_BASE: Final = 400


def _steps(decode: Callable[[bytes], object], data: bytes) -> int:
    steps = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        decode(data)
    finally:
        sys.settrace(before)
    return steps


def _replace(_: BrokerAddress) -> tuple[str, int]:
    return "gateway.example", 29_100


def _written(write: Callable[[Writer, int], None]) -> Callable[[int], bytes]:
    def make(count: int) -> bytes:
        writer = Writer()
        write(writer, count)
        return writer.take()

    return make


def _tags(writer: Writer, count: int) -> None:
    writer.tagged_fields(tuple((tag, b"") for tag in range(count % 64)))


def _api_versions_request(writer: Writer, count: int) -> None:
    writer.compact_string("java")
    writer.compact_string("4")
    _tags(writer, count)


def _sasl(writer: Writer, count: int) -> None:
    writer.unsigned_varint(3)
    writer.raw(b"xy")
    _tags(writer, count)


def _push(writer: Writer, count: int) -> None:
    writer.raw(bytes(16 + 4 + 1 + 1))
    writer.unsigned_varint(1)
    _tags(writer, count)


def _describe_configs(writer: Writer, count: int) -> None:
    writer.compact_array_length(count)
    for number in range(count):
        writer.int8(16)
        writer.compact_string(f"r{number}")
        writer.compact_array_length(1)
        writer.compact_string("metrics")
        writer.tagged_fields(())
    writer.raw(bytes(3))


def _alter_configs(writer: Writer, count: int) -> None:
    changes = (AlteredConfig("metrics", "*"),)
    resources = tuple(AlteredResource(Resource(16, f"r{number}"), changes) for number in range(count))
    writer.raw(altered_configs.encode_request(AlterConfigsRequest(resources=resources), _ALTER, 1))


def _resource_types(writer: Writer, count: int) -> None:
    writer.compact_array_length(count % 256)
    writer.raw(bytes(count % 256))
    writer.tagged_fields(())


def _coordinators(writer: Writer, count: int) -> None:
    writer.int32(0)
    writer.compact_array_length(count)
    for _ in range(count):
        writer.compact_string("group")
        writer.int32(7)
        writer.compact_string("broker")
        writer.int32(9092)
        writer.int16(0)
        writer.compact_nullable_string(None)
        writer.tagged_fields(())
    writer.tagged_fields(())


def _brokers(writer: Writer, count: int) -> None:
    writer.int32(0)
    writer.compact_array_length(count)
    for number in range(count):
        writer.int32(number)
        writer.compact_string("broker")
        writer.int32(9092)
        writer.compact_nullable_string(None)
        writer.tagged_fields(())
    writer.raw(b"\x00\x00\x00\x00\x01\x01\x00")


def _cluster(writer: Writer, count: int) -> None:
    writer.int32(0)
    writer.int16(0)
    writer.compact_nullable_string(None)
    writer.int8(1)
    writer.compact_string("cluster")
    writer.int32(1)
    writer.compact_array_length(count)
    for number in range(count):
        writer.int32(number)
        writer.compact_string("broker")
        writer.int32(9092)
        writer.compact_nullable_string(None)
        writer.tagged_fields(())
    writer.raw(bytes(5))


def _quorum(writer: Writer, count: int) -> None:
    writer.int16(0)
    writer.compact_nullable_string(None)
    writer.compact_array_length(0)
    writer.compact_array_length(count)
    for number in range(count):
        writer.int32(number)
        writer.compact_array_length(1)
        writer.compact_string("CONTROLLER")
        writer.compact_string("broker")
        writer.raw(bytes(2))
        writer.tagged_fields(())
        writer.tagged_fields(())
    writer.tagged_fields(())


def _deleted_v1(writer: Writer, count: int) -> None:
    writer.compact_string("group")
    writer.compact_array_length(1)
    writer.compact_string("topic")
    writer.compact_array_length(count)
    writer.raw(bytes(5 * count))
    writer.raw(bytes(2))


def _deleted_v0(writer: Writer, count: int) -> None:
    writer.raw(bytes(6))
    writer.array_length(1)
    writer.string("topic")
    writer.array_length(count)
    writer.raw(bytes(6 * count))


def _tokens(writer: Writer, count: int) -> None:
    writer.int16(0)
    writer.array_length(count)
    for number in range(count):
        writer.string("User")
        writer.string("alice")
        writer.raw(bytes(24))
        writer.string(f"token-{number}")
        writer.raw(bytes(4))
        writer.array_length(0)


def _entries(writer: Writer, count: int) -> None:
    writer.int16(0)
    writer.compact_array_length(count)
    for key in range(count):
        writer.int16(key)
        writer.raw(bytes(4))
        writer.tagged_fields(((0, b"x"),) if key % 2 else ())
    writer.raw(bytes(5))


_OFFERED: Final = {71: (0, 1), 72: (0, 1)}
_ALTER: Final = api_keys.INCREMENTAL_ALTER_CONFIGS
_CASES: Final[dict[str, tuple[Callable[[Writer, int], None], Callable[[bytes], object]]]] = {
    "ApiVersions request": (
        _api_versions_request,
        lambda data: k18_api_versions.decode_request(Reader(data), 3),
    ),
    "ApiVersions response": (_entries, lambda data: k18_api_versions.splice_api_keys(data, 3, _OFFERED)),
    "SaslAuthenticate": (_sasl, lambda data: k36_sasl_authenticate.decode_request(Reader(data), 2)),
    "PushTelemetry": (_push, lambda data: k72_push_telemetry.decode_request(Reader(data), 0)),
    "DescribeConfigs": (_describe_configs, lambda data: k32_describe_configs.decode_request(data, 4)),
    "configs, split": (_alter_configs, lambda data: config_resources.split(data, _ALTER, 1)),
    "ListConfigResources": (_resource_types, lambda data: k74_list_config_resources.asks_for(data, 1, 16)),
    "FindCoordinator": (
        _coordinators,
        lambda data: k10_find_coordinator.replace_addresses(data, 4, _replace),
    ),
    "Metadata": (_brokers, lambda data: k03_metadata.replace_addresses(data, 12, _replace)),
    "DescribeCluster": (_cluster, lambda data: k60_describe_cluster.replace_addresses(data, 1, _replace)),
    "DescribeQuorum": (_quorum, lambda data: k55_describe_quorum.remove_listeners(data, 2)),
    "OffsetDelete request": (_deleted_v1, lambda data: offset_delete.request_to_v0(Reader(data))),
    "OffsetDelete response": (_deleted_v0, lambda data: offset_delete.response_to_v1(Reader(data))),
    "DescribeDelegationToken": (
        _tokens,
        lambda data: k41_describe_delegation_token.decode_response(Reader(data), 1),
    ),
}


@pytest.mark.parametrize("case", _CASES)
@given(count=st.integers(1, 400))
@settings(max_examples=examples(5))
def test_twice_the_items_cost_at_most_twice_the_steps(case: str, count: int) -> None:
    write, decode = _CASES[case]
    make = _written(write)
    _steps(decode, make(2 * count))  # what is cached on the first call
    once, twice = _steps(decode, make(count)), _steps(decode, make(2 * count))
    assert twice <= 2 * once + _BASE
    assert twice <= _MAX_STEPS * 2 * count + _BASE
