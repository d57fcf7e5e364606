"""What a connection holds for its pending requests is what is counted."""

from __future__ import annotations

import gc
import struct
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Final

import pytest

from receiver.session.exchanges import KINDS
from receiver.wire import altered_configs, api_keys
from receiver.wire.altered_configs import AlterConfigsRequest, AlteredConfig, AlteredResource
from receiver.wire.config_resources import Resource
from receiver.wire.header_versions import FIRST_WITH_HEADER_V3, LATEST
from receiver.wire.writer import Writer
from tests.testbed.scripted_broker import RANGES, framed, request_frame, split
from tests.unit.session.config_answers import OLD_RANGES, ConfigAnswers
from tests.unit.session.support import Wire

#: One character beyond ASCII makes a text take four bytes for each of its characters.
LONG: Final = "x" * 31_990 + "😀"

ID, ANOTHER_ID = b"\7" * 16, b"\x09" * 16

DESCRIBE, INCREMENTAL, OFFSET_DELETE = 32, 44, 47
DELETE_GROUPS = 42

#: A broker whose requests are translated by KIP-1313.
TRANSLATED: Final = {**RANGES, DELETE_GROUPS: (0, LATEST[DELETE_GROUPS]), OFFSET_DELETE: (0, 0)}


def with_id(key: int, number: int, client_instance_id: bytes, body: bytes, client_id: str = "") -> bytes:
    """A request with header v3."""
    name = client_id.encode()
    head = struct.pack(">hhih", key, FIRST_WITH_HEADER_V3[key], number, len(name)) + name
    return framed(head + client_instance_id + b"\0" + body)


def api_versions(number: int) -> bytes:
    writer = Writer()
    writer.tagged_fields(())  # of the header
    writer.compact_string("x" * 32_000)
    writer.compact_string("1")
    writer.tagged_fields(tuple((tag, b"") for tag in range(64)))
    return request_frame(api_keys.API_VERSIONS, 3, number, writer.take(), LONG)


def described(number: int) -> bytes:
    writer = Writer()
    writer.tagged_fields(())
    writer.compact_array_length(2_000)
    for index in range(2_000):
        writer.int8(2 if index else 16)
        writer.compact_string("ab")
        writer.compact_array_length(None)
        writer.tagged_fields(())
    writer.raw(bytes(3))
    return request_frame(DESCRIBE, 4, number, writer.take(), LONG)


def altered(number: int) -> bytes:
    changes = (AlteredConfig("metrics", "*"),)
    request = AlterConfigsRequest(
        resources=tuple(AlteredResource(Resource(16, f"{index}ä"), changes) for index in range(1_000))
    )
    tags = b"\0"  # of the header
    return request_frame(
        INCREMENTAL, 1, number, tags + altered_configs.encode_request(request, INCREMENTAL, 1)
    )


def refused(number: int) -> bytes:
    """A request whose answer repeats a long list."""
    writer = Writer()
    writer.compact_array_length(1_000)
    for _ in range(1_000):
        writer.compact_string("g" * 900)
    writer.tagged_fields(())
    return with_id(DELETE_GROUPS, number, ANOTHER_ID, writer.take())


def translated(number: int) -> bytes:
    writer = Writer()
    writer.compact_string("group")
    writer.compact_array_length(0)
    writer.tagged_fields(())
    return with_id(OFFSET_DELETE, number, ID, writer.take(), LONG)


def plain(key: int, version: int, body: bytes) -> Callable[[int], bytes]:
    return lambda number: request_frame(key, version, number, body, LONG)


#: By name: makes a request with a correlation id.
REQUESTS: Final[Mapping[str, Callable[[int], bytes]]] = {
    "ApiVersions": api_versions,
    "ApiVersions, unknown version": plain(api_keys.API_VERSIONS, 99, b""),
    "SaslHandshake": plain(api_keys.SASL_HANDSHAKE, 1, b"\0\5PLAIN"),
    "SaslAuthenticate": plain(api_keys.SASL_AUTHENTICATE, 1, b"\0\0\0\3abc"),
    "CreateDelegationToken": plain(api_keys.CREATE_DELEGATION_TOKEN, 1, bytes(12)),
    "DescribeDelegationToken": plain(api_keys.DESCRIBE_DELEGATION_TOKEN, 1, b"\xff" * 4),
    "GetTelemetrySubscriptions": plain(api_keys.GET_TELEMETRY_SUBSCRIPTIONS, 0, bytes(18)),
    "PushTelemetry": plain(api_keys.PUSH_TELEMETRY, 0, bytes(23) + b"\1\0"),
    "DescribeConfigs": described,
    "AlterConfigs": plain(api_keys.ALTER_CONFIGS, 0, b"\0\0\0\1\x10\0\1s\0\0\0\0\0"),
    "IncrementalAlterConfigs": altered,
    "ListConfigResources": plain(api_keys.LIST_CONFIG_RESOURCES, 0, b"\0\0"),
    "OffsetDelete": translated,
    "refused": refused,
}


def wire_for(name: str) -> Wire:
    if name in {"OffsetDelete", "refused"}:
        wire = Wire(ranges=TRANSLATED, learned=TRANSLATED, translates=True, max_push_bytes=1_000_000)
        wire.exchange(with_id(api_keys.GET_TELEMETRY_SUBSCRIPTIONS, 1, ID, b"\0"))  # binds the connection
        return wire
    if "Config" in name:
        return Wire(ranges=OLD_RANGES, learned=OLD_RANGES, config_answers=ConfigAnswers())
    return Wire()


def test_each_kind_of_request_is_here() -> None:
    """A kind without a line in the table above would count as it likes."""
    keys = {struct.unpack_from(">h", make(1), 4)[0] for make in REQUESTS.values()}
    assert keys == {key for kind in KINDS for key in kind.keys} | {DELETE_GROUPS}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_memory_of_pending_requests_is_counted(name: str) -> None:
    wire, requests = wire_for(name), [REQUESTS[name](number) for number in range(10, 26)]
    counted_before = wire.session.held_bytes
    gc.collect()
    tracemalloc.start()
    try:
        held_before, _ = tracemalloc.get_traced_memory()
        for request in requests:
            wire.send(request)
            wire.to_broker.clear()
            wire.effects.clear()
            wire.events = type(wire.events)()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - held_before
    finally:
        tracemalloc.stop()
    counted = wire.session.held_bytes - counted_before
    assert wire.session._pending.costly >= len(requests)
    assert held <= 1.1 * counted + 65_536  # and what other threads take meanwhile
    assert counted <= 1.5 * held


@pytest.mark.parametrize("name", ["PushTelemetry", "DescribeConfigs"])
def test_the_memory_of_an_open_call_is_counted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = wire_for(name)
    request = REQUESTS[name](10)
    calls: list[object] = []
    monkeypatch.setattr(wire, "call", calls.append)
    wire.send(request)
    pending = wire.session.held_bytes
    wire.answer()
    assert len(calls) == 1
    assert not split(bytes(wire.to_client))
    assert wire.session.calling
    assert pending <= wire.session.held_bytes <= 2 * pending
