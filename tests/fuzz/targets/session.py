"""Fuzzes a session in both directions: any bytes from client and broker, cut anywhere.

An input is a script: one byte of circumstances, two bytes that seed the cuts, then steps
(:func:`steps`). It runs twice, once in whole steps and once cut, with the same output. If the
broker is honest, no client gets another's principal, and none pushes without a login.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from receiver.brokers.delegation_tokens import DelegationTokens
from receiver.brokers.upstream import Upstream
from receiver.core.registry import ConnectionRegistry
from receiver.peers.pending_work import PendingWork
from receiver.principal.sasl import UNKNOWN_PRINCIPAL
from receiver.session.call import OpenCall
from receiver.session.effects import IdentityChanged
from receiver.session.session import Session
from receiver.settings.limits import LimitsSettings
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.control.series import SeriesBudgets
from receiver.telemetry.control.series_history import SeriesHistory
from receiver.telemetry.identity import ANONYMOUS, ClientIdentity
from receiver.telemetry.instance import ClientInstances
from receiver.telemetry.outcomes import PushOutcome
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire.api_keys import LIST_CONFIG_RESOURCES
from receiver.wire.broker_addresses import BrokerAddress
from receiver.wire.config_resources import Resource
from receiver.wire.error_codes import ErrorCode
from receiver.wire.errors import WireError
from receiver.wire.frame_rewriter import BrokenStreamError
from receiver.wire.header_versions import FIRST_WITH_HEADER_V3, LATEST
from receiver.wire.headers import RequestHeader, encode_request_header
from receiver.wire.telemetry_requests import SUPPORTED_VERSIONS
from receiver.wire.uuid import ZERO_UUID, Uuid
from tests.fuzz.login_broker import OWNER, PASSWORD, TOKEN_ID, UNKNOWN, LoginBroker
from tests.fuzz.target import Target, require
from tests.testbed.scripted_broker import (
    API_VERSIONS,
    CLUSTER_ID,
    RANGES,
    framed,
    produce_frame,
    request_frame,
)
from tests.unit.session.config_answers import ConfigAnswers, ConfigCall, config_request
from tests.unit.session.support import (
    MAX_FRAME_BYTES,
    MAX_PUSH_BYTES,
    Events,
    answer_call,
    api_versions,
    connection,
    get_subscriptions,
    proven_broker,
    push,
    telemetry_core,
)
from tests.unit.wire.corpus import load

#: Further RPCs of a broker's: with KIP-1313 offered on its behalf, each can be asked with request
#: header v3.
_MORE_RANGES = {key: (0, LATEST[key]) for key in (1, 12, 38, 41, 47)}
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MAX_BYTES = 3000
_HEAD = struct.Struct(">BH")

# Steps. The client sends more often than the broker misbehaves.
_CLIENT, _BROKER_ANSWERS, _BROKER_LIES, _BROKER_SAYS = range(4)
_KINDS = (_CLIENT, _CLIENT, _CLIENT, _BROKER_ANSWERS, _BROKER_ANSWERS, _CLIENT, _BROKER_LIES, _BROKER_SAYS)

#: Bytes that a session may keep of incomplete or unanswered requests: two pushes, and as
#: much as may arrive after that in one go, as it is asked between two readings only.
_MAX_HELD = 2 * (MAX_PUSH_BYTES + 131_072) + 2 * _MAX_BYTES


def step(kind: int, data: bytes = b"") -> bytes:
    """Write a step of a script."""
    return _HEAD.pack(_KINDS.index(kind), len(data)) + data


def steps(script: bytes) -> Iterator[tuple[int, bytes]]:
    """Read a script's steps: their kind and content; the last may be cut off."""
    at = 0
    while at + _HEAD.size <= len(script):
        kind, size = _HEAD.unpack_from(script, at)
        at += _HEAD.size
        yield _KINDS[kind % len(_KINDS)], script[at : at + size]
        at += size


@dataclass(slots=True, kw_only=True)
class _Played:
    """The outcome of a script, which must not depend on the cuts."""

    to_broker: bytes
    to_client: bytes
    facts: tuple[Any, ...]


def _replace_address(broker: BrokerAddress) -> tuple[str, int]:
    return "gateway.example", 29_100 + broker.node_id % 1000


#: A core to copy, because compiling the settings is slow.
_LIMITS = LimitsSettings()
_CORE = telemetry_core(Limits(_LIMITS))


def _fresh_core(limits: Limits) -> ClientTelemetry:
    core = copy.copy(_CORE)
    counter = iter(range(2, 1_000_000))
    core._limits = limits
    core.series = SeriesBudgets(core._settings.series)
    core.series_history = SeriesHistory(core._settings.series, limits, core._settings.max_instances)
    core._intake = intake = copy.copy(core._intake)
    intake._limits, intake._series, intake._history = limits, core.series, core.series_history
    core.instances = ClientInstances(64, core._on_forget)
    core._random_bytes = lambda size: next(counter).to_bytes(size, "big")
    return core


class _Conversation:
    def __init__(self, circumstances: int) -> None:
        ranges = {**RANGES, **_MORE_RANGES, API_VERSIONS: (0, (circumstances >> 2 & 7) % 6)}
        broker = proven_broker(CLUSTER_ID if circumstances & 64 else None)
        numbers = Random(circumstances)
        translates, rewrites = (circumstances >> 6 == choice for choice in (2, 3))
        answers_configs = circumstances & 64 != 0
        if circumstances & 0x1C == 0x14:
            ranges[LIST_CONFIG_RESOURCES] = (0, 1)
        upstream = Upstream(
            translates=translates,
            rewrites=rewrites,
            answers_config_requests=answers_configs,
            reads_resources=False,
        )
        if circumstances & 32:
            upstream.learn(ranges)
        self._registry = ConnectionRegistry()
        self._registry.add(accepted := connection(_PROTOCOLS[circumstances & 3]))
        self.events = Events()
        self.session = Session(
            identity=accepted,
            broker=broker,
            upstream=upstream,
            random_number=partial(numbers.getrandbits, 31),
            max_frame_bytes=MAX_FRAME_BYTES,
            max_push_bytes=MAX_PUSH_BYTES,
            principal_claim="sub",
            delegation_tokens=DelegationTokens(),
            pending_work=PendingWork(),
            replace_address=_replace_address if rewrites else None,
        )
        self._known = accepted
        self._core = _fresh_core(Limits(_LIMITS))
        self._sasl = circumstances & 2 != 0
        self._answers = ConfigAnswers(ranges)
        self._answers.refuses = 31 if circumstances & 0x1C == 0x10 else 0
        self._answers_configs = answers_configs and LIST_CONFIG_RESOURCES not in ranges
        self._config_calls: list[ConfigCall] = []
        self._login = LoginBroker(self._answers)
        self._honest = True
        self._waiting = bytearray()
        self._to_broker = bytearray()
        self._to_client = bytearray()
        self._over = False

    def play(self, script: bytes, cuts: Random | None) -> _Played:
        for kind, data in steps(script):
            if kind == _CLIENT:
                self._feed(data, cuts, from_client=True)
            elif kind == _BROKER_SAYS:
                self._honest = False
                self._feed(data, cuts, from_client=False)
            else:
                self._answer(data if kind == _BROKER_LIES else None, cuts)
            if self._over:
                break
            self._check()
        self._check()
        return _Played(
            to_broker=bytes(self._to_broker), to_client=bytes(self._to_client), facts=self._facts()
        )

    def _feed(self, data: bytes, cuts: Random | None, *, from_client: bool) -> None:
        """Pass bytes from one side; the buffer is overwritten afterwards, like the relay's."""
        session = self.session
        out = self._waiting if from_client else self._to_client
        before = len(out)
        feed = session.requests.feed if from_client else session.responses.feed
        try:
            for piece in _pieces(data, cuts):
                while piece:
                    limited = session.may_call and not from_client
                    buffer = bytearray(piece[: session.response_bytes_in_a_turn() if limited else None])
                    piece = piece[len(buffer) :]
                    out += feed(memoryview(buffer))
                    buffer[:] = b"\xee" * len(buffer)
                    if not from_client:
                        self._execute_effects()
                        if self._over:
                            return
        except BrokenStreamError as error:
            out += error.before
            self._over = True
            require(len(str(error)) < 300, "an error as long as the bytes allow")
        if from_client:
            self._to_broker += out[before:]
        self._execute_effects()
        self._over = self._over or session.closing is not None
        require(session.held_bytes <= _MAX_HELD, f"{session.held_bytes} bytes are held")

    def _execute_effects(self) -> None:
        calls = 0
        for effect in self.session.take_effects():
            if isinstance(effect, OpenCall):
                calls += 1
                self._call(effect)
            elif isinstance(effect, IdentityChanged):
                require(effect.identity != self._known, "an identity changed to itself")
                self._known = effect.identity
                self._registry.changed(effect.identity)
            else:
                self.events.record(effect)
        require(calls <= 1, "several calls were open")
        require(self._known == self.session.identity, "the identity changed without an effect")
        require(not self.session.calling, "a call is open that was answered")

    def _call(self, call: OpenCall) -> None:
        if call.header.api_key not in SUPPORTED_VERSIONS:
            self._config_calls.append(config := ConfigCall.read(call))
            self._to_client += self.session.answered(config.answer())
            return
        try:
            answer, outcome = answer_call(self._core, self.identity, call, 1000.0)
        except WireError as error:
            require(len(str(error)) < 300, "an error as long as the bytes allow")
            self.session.answered(None)
            self._over = True
            return
        self._registry.instance_learned(outcome.identity)
        if isinstance(outcome, PushOutcome):
            self.events.pushes.append((call.header, outcome))
        else:
            self.events.subscriptions.append((call.header, outcome))
        self._to_client += self.session.answered(answer)

    @property
    def identity(self) -> ClientIdentity:
        """The connection's entry in the registry."""
        (identity,) = self._registry.snapshot()
        return identity

    def _answer(self, lie: bytes | None, cuts: Random | None) -> None:
        """Let the broker answer every whole frame that it got; with a lie, the first with that."""
        answers = bytearray()
        while len(self._waiting) >= 4:
            end = 4 + int.from_bytes(self._waiting[:4], "big", signed=True)
            if end < 4 or len(self._waiting) < end or self._login.dead:
                break
            data = bytes(self._waiting[4:end])
            del self._waiting[:end]
            if lie is not None:
                self._honest = False
                answers += framed(data[4:8] + lie)
                lie = None
                continue
            try:
                answer = self._login.to(data) if self._sasl else self._answers.to(data)
            except (WireError, struct.error, ValueError, IndexError, KeyError, OverflowError):
                self._login.dead = True  # no broker reads on from that
                break
            if answer is not None:
                answers += framed(answer)
        self._feed(bytes(answers), cuts, from_client=False)

    def _check(self) -> None:
        if self._honest and self._config_calls:
            require(self._answers_configs, "the broker keeps the resources, or nobody asked for this")
            require(not self._answers.refuses, "a call without the right")
            require(not self._sasl or self._login.principal is not None, "a call without a login")
        if not self._honest or not self._sasl:
            return
        principal, events = self.identity.principal, self.events
        known = self._login.principal
        # The receiver may answer "unknown", because it may not have seen a token's owner.
        names = (known, UNKNOWN, *((f"DelegationToken:{TOKEN_ID}",) if known == OWNER else ()))
        if known is None:
            require(principal in (ANONYMOUS, UNKNOWN_PRINCIPAL), "a principal without a login")
            require(not events.pushes and not events.subscriptions, "telemetry was answered without a login")
        else:
            require(
                principal in names or not self._answered(),
                f"{principal} is {known} for the broker",
            )
        for _, outcome in events.pushes:
            if outcome.push is not None:
                require(outcome.push.context.principal in names, "a push under another's name")

    def _answered(self) -> bool:
        """Whether the session has all of the broker's responses, as at the end of each step."""
        return not self._over

    def _facts(self) -> tuple[Any, ...]:
        events, session = self.events, self.session
        return (
            self._over,
            session.closing,
            session.awaiting,
            session.in_flight,
            self.identity,
            events.api_versions,
            [(header, outcome.response) for header, outcome in events.pushes],
            [(header, outcome.response) for header, outcome in events.subscriptions],
            events.unauthenticated,
            events.logins,
            events.floods,
            events.refused_instances,
            events.refused_configs,
            events.hidden_configs,
            self._config_calls,
        )


def _pieces(data: bytes, cuts: Random | None) -> Iterator[bytes]:
    if cuts is None:
        yield data
        return
    at = 0
    while at < len(data):
        size = 1 + int(cuts.random() * (1 << int(cuts.random() * 10)))
        yield data[at : at + size]
        at += size


def _run(data: bytes) -> None:
    if len(data) < 3:
        return
    whole = _Conversation(data[0]).play(data[3:], None)
    cut = _Conversation(data[0]).play(data[3:], Random(int.from_bytes(data[1:3], "big")))
    require(cut.to_broker == whole.to_broker, "cut, something else went to the broker")
    require(cut.to_client == whole.to_client, "cut, something else went to the client")
    require(cut.facts == whole.facts, "cut, something else was noted")


# -- seeds ---------------------------------------------------------------------------------------


def handshake(mechanism: bytes, version: int = 1, correlation_id: int = 17) -> bytes:
    """Write a SaslHandshake."""
    return request_frame(17, version, correlation_id, len(mechanism).to_bytes(2, "big") + mechanism)


def authenticate(token: bytes, version: int = 1, correlation_id: int = 36) -> bytes:
    """Write a SaslAuthenticate."""
    if version == 2:
        size = len(token) + 1
        length = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
        return request_frame(36, 2, correlation_id, b"\0" + length + token + b"\0")
    return request_frame(36, version, correlation_id, len(token).to_bytes(4, "big") + token)


_TOKENS_OF_LOGINS = (
    b"\0alice\0" + PASSWORD,
    b"alice\0alice\0" + PASSWORD,
    b"\0bob\0wrong",
    b"n,,n=carol,r=fyko+d2lbbFgONRv9qkxdawL",
    b"n,a=da=2Cve,n=da=2Cve,r=abc",
    b"n,,n=token-id,r=abc,tokenauth=true",
    b"c=biws,r=fyko+d2lbbFgONRv9qkxdawLserver,p=cHJvb2Y=",
    b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJlcmluIn0.\x01\x01",
)
_INSTANCE = Uuid(bytes(15) + b"\x07")
_METRIC = b"\n\x0c\x12\x0a\x12\x08\n\x03abc\x2a\x01\x00"


def _with_id(api_key: int, body: bytes, instance: Uuid = _INSTANCE, client_id: str | None = "raw") -> bytes:
    """Write a request with header v3, in KIP-1313's version of its RPC."""
    header = RequestHeader(
        api_key=api_key,
        api_version=FIRST_WITH_HEADER_V3[api_key],
        correlation_id=api_key + 1000,
        client_id=client_id,
        client_instance_id=instance,
    )
    return framed(encode_request_header(header, version=3) + body)


def _requests() -> list[bytes]:
    requests = [api_versions(version, version + 1) for version in range(7)]
    requests += [
        get_subscriptions(ZERO_UUID),
        get_subscriptions(_INSTANCE, 72),
        get_subscriptions(_INSTANCE, 73),
    ]
    requests += [push(_INSTANCE, number, _METRIC, terminating=number == 2) for number in (0, 1, 2)]
    requests += [produce_frame(5, b"records" * 9, acks=acks) for acks in (-1, 0, 1)]
    requests += [handshake(name) for name in (b"PLAIN", b"SCRAM-SHA-256", b"GSSAPI", b"OAUTHBEARER")]
    requests += [handshake(b"PLAIN", 0)]
    requests += [authenticate(token, version) for token in _TOKENS_OF_LOGINS for version in (1, 2)]
    for instance in (_INSTANCE, ZERO_UUID, Uuid(bytes(15) + b"\x09")):
        requests += [_with_id(71, b"\0", instance), _with_id(12, bytes(30), instance, None)]
    requests += [_with_id(0, b"\0\xff\xff" + bytes(20)), _with_id(3, bytes(4)), _with_id(36, b"\x01\0")]
    requests += [_with_id(72, bytes(4) + b"\0\0\x01\0"), _with_id(18, b"\x04raw\x041.0\0" + bytes(5))]
    requests += [_with_id(47, b"\x02g\x02\x02t\x02\0\0\0\0\0\0\0")]
    names = [Resource(kind, name) for kind, name in ((16, "s"), (2, "t"), (16, ""), (4, "1"), (16, "s"))]
    for key, version in ((32, 1), (32, 4), (33, 1), (33, 2), (44, 0), (44, 1)):
        requests += [config_request(key, version, *names[:count]) for count in (1, 2, 5)]
    requests += [config_request(74, 0), request_frame(74, 1, 74, b"\0\x03\x02\x10\0")]
    requests += [request_frame(38, 1, 38, bytes(12)), request_frame(41, 1, 41, b"\xff" * 4)]
    requests += [request_frame(3, 2, 9, bytes(4)), request_frame(1, 4, 10, bytes(20))]
    return requests


_REQUESTS = _requests()
_SASL = {
    b"PLAIN": (authenticate(_TOKENS_OF_LOGINS[0]),),
    b"SCRAM-SHA-256": (authenticate(_TOKENS_OF_LOGINS[3]), authenticate(_TOKENS_OF_LOGINS[6])),
    b"GSSAPI": (authenticate(b"\x60\x82opaque"),),
}


def _log_in(mechanism: bytes) -> bytes:
    requests = [handshake(mechanism), *_SASL[mechanism]]
    return b"".join(step(_CLIENT, request) + step(_BROKER_ANSWERS) for request in requests)


def _seeds() -> list[bytes]:
    seeds = []
    telemetry = [get_subscriptions(ZERO_UUID), get_subscriptions(_INSTANCE), push(_INSTANCE, 1, _METRIC)]
    turn = b"".join(step(_CLIENT, request) + step(_BROKER_ANSWERS) for request in telemetry)
    for circumstances in range(0, 256, 5):
        head = bytes([circumstances, 1, 2])
        seeds.append(head + step(_CLIENT, api_versions(3)) + step(_BROKER_ANSWERS) + turn)
        seeds += [
            bytes([circumstances | 2, 1, 2]) + _log_in(mechanism) + turn + _log_in(b"PLAIN") + turn
            for mechanism in _SASL
        ]
    for circumstances in (0x62, 0xB4, 0xB6, 0xF4, 0xF6):
        seeds += [
            bytes([circumstances, 0, 1]) + step(_CLIENT, request) + step(_BROKER_ANSWERS)
            for request in _REQUESTS
        ]
    seeds += [b"\x60\0\1" + step(_CLIENT, b"".join(_REQUESTS[:16])) + step(_BROKER_ANSWERS)]
    for frame in load():
        if len(frame.data) < 1200:
            if frame.is_request:
                seeds.append(b"\x60\0\1" + step(_CLIENT, framed(frame.data)) + step(_BROKER_ANSWERS))
            else:
                asked = request_frame(frame.key, frame.version, 1, bytes(24))
                said = step(_CLIENT, asked) + step(_BROKER_LIES, frame.data[4:])
                seeds += [head + said for head in (b"\x60\0\1", b"\xf4\0\1")]
    return [seed for seed in seeds if len(seed) <= _MAX_BYTES]


def _reshape(data: bytes, random: Random) -> bytes:
    """Change a script step by step: leave out, double, swap, replace, log in."""
    head, script = data[:3], [step(kind, content) for kind, content in steps(data[3:])]
    for _ in range(1 + int(random.random() * 4)):
        at = int(random.random() * (len(script) + 1))
        choice = int(random.random() * 10)
        if choice == 0 and script:
            del script[at - 1]
        elif choice == 1 and script:
            script.insert(at, script[int(random.random() * len(script))])
        elif choice == 2 and script:
            script.insert(at, script.pop(int(random.random() * len(script))))
        elif choice == 3:
            script.insert(at, _log_in(random.choice(tuple(_SASL))))
        elif choice == 4:
            head = bytes([random.getrandbits(8)]) + random.randbytes(2)
        elif choice < 7:
            script.insert(at, step(_BROKER_ANSWERS))
        else:
            script.insert(at, step(_CLIENT, _REQUESTS[int(random.random() * len(_REQUESTS))]))
    return head + b"".join(script)


_WORDS = (
    *_REQUESTS,
    *_TOKENS_OF_LOGINS,
    step(_BROKER_ANSWERS),
    step(_BROKER_LIES, bytes(30)),
    b"\xff\xff\xff\xff",
    int(ErrorCode.ILLEGAL_SASL_STATE).to_bytes(2, "big"),
)

TARGET = Target(
    name="session",
    run=_run,
    seeds=_seeds,
    tokens=_WORDS,
    reshape=_reshape,
    max_bytes=_MAX_BYTES,
    max_memory=16 << 20,
    brief=4_000,
)
