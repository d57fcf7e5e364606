"""Fuzzes the link between a relay and the core: any messages, to either end.

An input is a byte that names the end, and messages, each with its length in two bytes. A message is
refused by ending the link. Nothing of the connections that were named on it may be left then.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
from structlog.testing import capture_logs

from receiver.brokers.listener_broker import KnownBroker
from receiver.link.messages import (
    PROTOCOL_VERSION,
    Answer,
    BrokerKnown,
    Call,
    Closed,
    CoreMessage,
    EndConnection,
    Hello,
    Identity,
    Levels,
    LinkError,
    Problems,
    RelayMessage,
    Report,
    ReportTaken,
    Statistics,
    StatisticsRequest,
    TokenOwner,
    decode_core_message,
    decode_relay_message,
    encode,
)
from receiver.telemetry.identity import Broker
from receiver.wire.api_keys import (
    DESCRIBE_CONFIGS,
    GET_TELEMETRY_SUBSCRIPTIONS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
    PUSH_TELEMETRY,
)
from receiver.wire.headers import RequestHeader
from tests.fuzz.target import Target, require
from tests.unit.gateway.support import Gate, on_loop
from tests.unit.telemetry.parts import connection

_LENGTH = struct.Struct(">H")
_RELAY = "fuzz"
_MAX_BYTES = 3000
_INSTANCE = bytes(range(16))


def _messages(script: bytes) -> Iterator[bytes]:
    at = 0
    while at + _LENGTH.size <= len(script):
        (size,) = _LENGTH.unpack_from(script, at)
        at += _LENGTH.size
        yield script[at : at + size]
        at += size


def _check(decode: Callable[[bytes], RelayMessage | CoreMessage], data: bytes) -> None:
    try:
        message = decode(data)
    except LinkError as error:
        require(len(str(error)) < 500, "an error as long as the bytes allow")
        return
    # repr, because a time may be NaN
    require(repr(decode(encode(message))) == repr(message), "encoded again it is another message")


def _run(data: bytes) -> None:
    messages = list(_messages(data[1:]))
    for message in messages:
        _check(decode_relay_message, message)
        _check(decode_core_message, message)
    with capture_logs():
        on_loop((_to_core if not data or data[0] % 2 == 0 else _to_relay)(messages))


async def _to_core(messages: list[bytes]) -> None:
    gate = Gate()
    gate.close()
    relays, reasons = gate.relays, []
    ended = relays.ended

    def note(link: object, reason: str) -> None:
        reasons.append(reason)
        ended(link, reason)  # type: ignore[arg-type]  # the link that the core made

    relays.ended = note  # type: ignore[method-assign]  # to see the reason
    ours, theirs = socket.socketpair()
    with ours:
        relays.attach(_RELAY, theirs)
        await _feed(ours, messages)
        require("internal error" not in reasons, "a message causes an internal error")
        require(len(reasons) <= 1, "the link ended twice")
        require(len(relays.registry) == sum(relays.open.values()), "connections are counted wrongly")
    relays.close()
    require(len(relays.registry) == 0, "a connection outlives its link")
    require(not any(relays.open.values()), "a listener's connections are counted after the link's end")
    for peers in relays.limits._by_scope.values():
        require(not peers._connections, "a limit counts a connection after the link's end")


async def _to_relay(messages: list[bytes]) -> None:
    gate = Gate()
    gate.close()
    reasons: list[str] = []
    core = gate.core
    ended = core._ended

    def note(reason: str) -> None:
        reasons.append(reason)
        ended(reason)

    core._ended = note  # type: ignore[method-assign]  # to see the reason
    ours, theirs = socket.socketpair()
    with ours:
        core.attach(theirs)
        await _feed(ours, messages)
        require("internal error" not in reasons, "a message causes an internal error")
    core.close()


async def _feed(end: socket.socket, messages: list[bytes]) -> None:
    end.setblocking(False)
    for message in messages:
        try:
            end.sendall(struct.pack(">I", len(message)) + message)
        except OSError:  # the link has ended
            break
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def _script(end: int, *messages: bytes) -> bytes:
    return bytes([end]) + b"".join(_LENGTH.pack(len(message)) + message for message in messages)


def _identity(number: int, **changes: Any) -> Identity:
    return Identity(number, replace(connection(), id=f"{_RELAY}-{number}", **changes))


def _call(number: int, api_key: int, version: int, body: bytes) -> Call:
    header = RequestHeader(api_key=api_key, api_version=version, correlation_id=5, client_id="client")
    return Call(number, 1, header, body)


_TO_CORE: tuple[RelayMessage, ...] = (
    Hello(PROTOCOL_VERSION, "relay-1"),
    _identity(1),
    _identity(1, principal="User:alice"),
    _identity(2, source_address="2001:db8::7"),
    _call(1, GET_TELEMETRY_SUBSCRIPTIONS, 0, _INSTANCE + b"\0"),
    _call(2, PUSH_TELEMETRY, 0, _INSTANCE + bytes(6) + b"\x03\x0a\x00\0"),
    _call(2, PUSH_TELEMETRY, 0, _INSTANCE),
    _call(1, LIST_CONFIG_RESOURCES, 0, b"\0"),
    _call(1, DESCRIBE_CONFIGS, 4, b"\x02\x10\x02s\0\0\0\0\0"),
    _call(2, INCREMENTAL_ALTER_CONFIGS, 1, b"\x02\x10\x02s\x01\0\0\0"),
    Problems(("the broker does not answer",)),
    BrokerKnown("CLIENT", KnownBroker(broker=Broker(id=1, cluster_id="cluster"), proven=True)),
    TokenOwner("token", "User:owner"),
    Report(
        (("source_address", "192.0.2.7", "new_connections", 3.0, 1.0),),
        (("connection_opened", ("CLIENT",), 1.0), ("upstream_connected", ("CLIENT", "0.1"), 1.0)),
    ),
    Statistics(1, 0.5, 1000, 0.01, 0, (("CLIENT", "client", 2e9),), 0),
    Closed(1),
    Identity(3, replace(connection(), id=f"{_RELAY}-3"), slot=0),
    Identity(4, replace(connection(), id=f"{_RELAY}-4"), slot=1 << 40),
    Closed(3, "client_closed"),
    _identity(1, source_address="192.0.2.99"),
    _identity(1, listener="OTHER"),
)
_TO_RELAY: tuple[CoreMessage, ...] = (
    TokenOwner("token", "User:owner"),
    BrokerKnown("CLIENT", KnownBroker(broker=Broker(id=1, cluster_id="cluster"), proven=True)),
    Levels((("principal", "User:alice", "core_time", 5.0),)),
    ReportTaken((("address_block", "2001:db8::/48", "new_connections", 5.0),)),
    StatisticsRequest(1),
    Answer(1, b"\0\0\0\0", throttled=True),
    Answer(2, b"", malformed=("a body", 4, "nothing")),
    EndConnection(1, "limit"),
)


def _seeds() -> list[bytes]:
    to_core, to_relay = [encode(item) for item in _TO_CORE], [encode(item) for item in _TO_RELAY]
    return [
        _script(0, *to_core),
        _script(1, *to_relay),
        *(_script(0, encode(_TO_CORE[0]), encode(_TO_CORE[1]), item) for item in to_core),
        *(_script(1, item) for item in to_relay),
    ]


_VALUES: tuple[object, ...] = (
    *(0, 1, 2, -1, 2**31, 2**63, 1.5, -0.5, float("nan"), float("inf"), None, True, b"", bytes(16), [], {}),
    *("", "x" * 300, "User:alice", f"{_RELAY}-1", f"{_RELAY}-2", "address_block", "core_time"),
)


def _other(value: object, random: Random) -> object:
    """Return a value like this one, or another type's."""
    match value:
        case list() if value and random.random() < 0.8:
            changed = list(value)
            at = random.randrange(len(changed))
            changed[at] = _other(changed[at], random)
            return changed
        case dict() if value and random.random() < 0.8:
            key = random.choice(list(value))
            return {**value, key: _other(value[key], random)}
    return random.choice((value, [value], *_VALUES))


def _reshape(data: bytes, random: Random) -> bytes:
    """Send known messages in any order, some of them with other values."""
    end = random.randrange(2)
    known: tuple[RelayMessage | CoreMessage, ...] = _TO_RELAY if end else _TO_CORE
    chosen = [encode(random.choice(known)) for _ in range(random.randrange(1, 8))]
    for at, message in enumerate(chosen):
        if random.random() < 0.5:
            changed = msgspec.msgpack.decode(message)
            fields = [changed[0], *(_other(field, random) for field in changed[1:])]
            if random.random() < 0.2:
                fields[1:] = [_other(fields[1:], random)]
            chosen[at] = msgspec.msgpack.encode(fields)
    return _script(end, *chosen)[:_MAX_BYTES]


TARGET = Target(
    name="link",
    run=_run,
    seeds=_seeds,
    tokens=tuple(encode(message) for message in (*_TO_CORE, *_TO_RELAY)),
    reshape=_reshape,
    max_bytes=_MAX_BYTES,
    max_memory=32 << 20,
    brief=1000,
)
