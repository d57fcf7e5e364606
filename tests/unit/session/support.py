"""A session between a client that tests speak for and a broker that answers as a real one does."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from receiver.brokers.delegation_tokens import DelegationTokens
from receiver.brokers.listener_broker import ListenerBroker
from receiver.brokers.upstream import Upstream
from receiver.core.registry import ConnectionRegistry
from receiver.peers.pending_work import PendingWork
from receiver.session.call import OpenCall
from receiver.session.effects import (
    ApiVersionsAnswered,
    ClientInstanceRefused,
    ConfigRequestAllowed,
    ConfigRequestHidden,
    ConfigRequestRefused,
    Effect,
    Flooded,
    IdentityChanged,
    LoginEnded,
    LoginOutcome,
    UnauthenticatedTelemetry,
)
from receiver.session.messages import answer_frame
from receiver.session.session import Session
from receiver.settings.limits import LimitsSettings
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.current_subscriptions import CurrentSubscriptions
from receiver.telemetry.identity import Broker, ClientIdentity
from receiver.telemetry.outcomes import PushOutcome, SubscriptionsOutcome
from receiver.telemetry.subscription import Subscription, SubscriptionSet
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire import (
    api_keys,
    k18_api_versions,
    k71_get_telemetry_subscriptions,
    k72_push_telemetry,
)
from receiver.wire.broker_addresses import ReplaceAddress
from receiver.wire.errors import WireError
from receiver.wire.headers import RequestHeader, decode_response_header, response_header_version
from receiver.wire.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from receiver.wire.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.primitives import Reader
from receiver.wire.telemetry_requests import SUPPORTED_VERSIONS, decode_telemetry_request
from receiver.wire.uuid import ZERO_UUID, Uuid
from tests.testbed.scripted_broker import (
    CLUSTER_ID,
    NODE_ID,
    RANGES,
    Answers,
    Request,
    framed,
    parse,
    produce_frame,
    request_frame,
    split,
)
from tests.unit.session.config_answers import ConfigAnswers, ConfigCall

MAX_PUSH_BYTES = 4096
MAX_FRAME_BYTES = 1_048_576

#: The subscription that matches every client in these tests.
EVERYTHING = Subscription(name="everything", metrics=("*",), interval_ms=1000)

WHOLE, BYTE_BY_BYTE, FOLLOWED = "whole", "byte by byte", "with bytes after it"

#: How bytes arrive: a case holds for each (the idea is h11's).
ARRIVALS = (WHOLE, BYTE_BY_BYTE, FOLLOWED)

_FOLLOWER = 777_777


@dataclass(slots=True)
class Clock:
    """A clock that tests set; its time is also the CPU time."""

    now: float = 1000.0

    def cpu(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def wall_ns(self) -> int:
        return int(self.now * 1e9)


@dataclass(slots=True)
class Events:
    """Records the effects of a session and the outcomes of its calls."""

    api_versions: list[tuple[RequestHeader, int]] = field(default_factory=list)
    subscriptions: list[tuple[RequestHeader, SubscriptionsOutcome]] = field(default_factory=list)
    pushes: list[tuple[RequestHeader, PushOutcome]] = field(default_factory=list)
    unauthenticated: list[RequestHeader] = field(default_factory=list)
    logins: list[tuple[str, LoginOutcome]] = field(default_factory=list)
    refused_instances: list[RequestHeader] = field(default_factory=list)
    floods: int = 0
    refused_configs: list[tuple[RequestHeader, int]] = field(default_factory=list)
    hidden_configs: list[RequestHeader] = field(default_factory=list)
    allowed_configs: list[RequestHeader] = field(default_factory=list)

    def record(self, effect: Effect) -> None:
        """Record an effect that is not a call."""
        match effect:
            case ApiVersionsAnswered(header, error_code):
                self.api_versions.append((header, error_code))
            case LoginEnded(mechanism, outcome):
                self.logins.append((mechanism, outcome))
            case UnauthenticatedTelemetry(header):
                self.unauthenticated.append(header)
            case ClientInstanceRefused(header):
                self.refused_instances.append(header)
            case Flooded():
                self.floods += 1
            case ConfigRequestRefused(header, error_code):
                self.refused_configs.append((header, error_code))
            case ConfigRequestHidden(header):
                self.hidden_configs.append(header)
            case ConfigRequestAllowed(header):
                self.allowed_configs.append(header)


def answer_call(
    telemetry: ClientTelemetry, identity: ClientIdentity, call: OpenCall, now: float
) -> tuple[bytes, SubscriptionsOutcome | PushOutcome]:
    """Return the real core's answer to a call as a frame, without limits and plugins.

    Raises:
        WireError: The request is malformed.
    """
    header = call.header
    request = decode_telemetry_request(header, call.body, cut_beyond=call.cut_beyond)
    outcome: SubscriptionsOutcome | PushOutcome
    if isinstance(request, PushTelemetryRequest):
        pushed = outcome = telemetry.push_telemetry(identity, request, now=now, received_at_ns=int(now * 1e9))
        body = k72_push_telemetry.encode_response(pushed.response, header.api_version)
    else:
        subscribed = outcome = telemetry.get_telemetry_subscriptions(identity, request, now=now)
        body = k71_get_telemetry_subscriptions.encode_response(subscribed.response, header.api_version)
    return answer_frame(header, body), outcome


def proven_broker(cluster_id: str | None = None) -> ListenerBroker:
    """The broker NODE_ID, which has shown that it is that."""
    broker = ListenerBroker(Broker(cluster_id=cluster_id), ("broker", 9092), 19092)
    broker.record_node_id(NODE_ID)
    return broker


def telemetry_core(limits: Limits, *, max_push_bytes: int = MAX_PUSH_BYTES) -> ClientTelemetry:
    """Return the real core; its client instance ids count up."""
    counter = iter(range(2, 1_000_000))
    return ClientTelemetry(
        settings=TelemetrySettings(max_bytes=max_push_bytes),
        subscriptions=CurrentSubscriptions(SubscriptionSet((EVERYTHING,))),
        limits=limits,
        random_bytes=lambda size: next(counter).to_bytes(size, "big"),
    )


def connection(security_protocol: str = "PLAINTEXT") -> ClientIdentity:
    """The identity of a connection as admission makes it."""
    return ClientIdentity(
        id="1",
        listener="CLIENT",
        security_protocol=security_protocol,
        source_address="192.0.2.7",
        source_port=50_000,
        since=0.0,
    )


class Wire:
    """A session between a client and a broker that the test controls.

    Requests to the broker wait until :meth:`answer`. Bytes arrive in a buffer that is overwritten
    afterwards, like the relay's, so the session has to copy what it keeps.
    """

    def __init__(
        self,
        *,
        arrival: str = WHOLE,
        ranges: Mapping[int, tuple[int, int]] = RANGES,
        learned: Mapping[int, tuple[int, int]] | None = RANGES,
        cluster_id: str | None = CLUSTER_ID,
        max_push_bytes: int = MAX_PUSH_BYTES,
        security_protocol: str = "PLAINTEXT",
        translates: bool = False,
        delegation_tokens: DelegationTokens | None = None,
        pending_work: PendingWork | None = None,
        replace_address: ReplaceAddress | None = None,
        config_answers: ConfigAnswers | None = None,
        reads_resources: bool = True,
    ) -> None:
        self.arrival = arrival
        self.broker = proven_broker(cluster_id)
        self.upstream = Upstream(
            translates=translates,
            rewrites=replace_address is not None,
            answers_config_requests=config_answers is not None,
            reads_resources=reads_resources,
        )
        self.upstream.learn(learned or {})
        self.registry = ConnectionRegistry()
        self.registry.add(accepted := connection(security_protocol))
        self.clock = Clock()
        self.events = Events()
        self.effects: list[Effect] = []
        self.telemetry = telemetry_core(Limits(LimitsSettings()), max_push_bytes=max_push_bytes)
        self.answers = config_answers or Answers(ranges=ranges)
        self.config_calls: list[ConfigCall] = []
        self.malformed: WireError | None = None  # why the core can't read a request
        self.random: list[int] = []
        self.session = Session(
            identity=accepted,
            broker=self.broker,
            upstream=self.upstream,
            random_number=self._random_number,
            max_frame_bytes=MAX_FRAME_BYTES,
            max_push_bytes=max_push_bytes,
            principal_claim="sub",
            delegation_tokens=DelegationTokens() if delegation_tokens is None else delegation_tokens,
            pending_work=PendingWork() if pending_work is None else pending_work,
            replace_address=replace_address,
        )
        self.to_broker = bytearray()
        self.to_client = bytearray()
        self._followers = 0
        self._number = 0

    def _random_number(self) -> int:
        if self.random:
            return self.random.pop(0)
        self._number += 1
        return (self._number * 2_654_435_761) % (1 << 31)

    def send(self, data: bytes) -> None:
        """The client sends."""
        if self.arrival == FOLLOWED:
            self._followers += 1
            data += produce_frame(_FOLLOWER, b"behind")
        for piece in _pieces(data, self.arrival):
            buffer = bytearray(piece)
            self.to_broker += self.session.requests.feed(memoryview(buffer))
            self.execute_effects()
            buffer[:] = b"\xee" * len(buffer)

    def execute_effects(self) -> None:
        """Answer calls, keep the identity, and record the other effects."""
        for effect in self.session.take_effects():
            self.effects.append(effect)
            if isinstance(effect, OpenCall):
                self.call(effect)
            elif isinstance(effect, IdentityChanged):
                self.registry.changed(effect.identity)
            else:
                self.events.record(effect)

    @property
    def identity(self) -> ClientIdentity:
        """The connection's entry in the registry."""
        (identity,) = self.registry.snapshot()
        return identity

    def call(self, call: OpenCall) -> None:
        """Answer a call at once."""
        if call.header.api_key not in SUPPORTED_VERSIONS:
            self.config_calls.append(config := ConfigCall.read(call))
            self.to_client += self.session.answered(config.answer())
            return
        try:
            answer, outcome = answer_call(self.telemetry, self.identity, call, self.clock.now)
        except WireError as error:
            self.malformed = error
            assert self.session.answered(None) == b""
            return
        self.registry.instance_learned(outcome.identity)
        if isinstance(outcome, PushOutcome):
            self.events.pushes.append((call.header, outcome))
        else:
            self.events.subscriptions.append((call.header, outcome))
        self.to_client += self.session.answered(answer)

    def forwarded(self) -> list[Request]:
        """Return the unanswered requests of the broker, without those that only follow."""
        return [request for request in map(parse, split(bytes(self.to_broker))) if not _follows(request)]

    def seen(self) -> list[Request]:
        """Return the answered requests of the broker, without those that only follow."""
        return [request for request in self.answers.seen if not _follows(request)]

    def answer(self) -> None:
        """The broker answers everything that it got."""
        answers = bytearray()
        for data in split(bytes(self.to_broker)):
            if (answer := self.answers.to(data)) is not None:
                answers += framed(answer)
        self.to_broker.clear()
        self.receive(bytes(answers))

    def receive(self, data: bytes) -> None:
        """The broker sends; no more is read at once than the session can take."""
        for piece in _pieces(data, self.arrival):
            while piece:
                limit = self.session.response_bytes_in_a_turn() if self.session.may_call else len(piece)
                buffer = bytearray(piece[:limit])
                self.to_client += self.session.responses.feed(memoryview(buffer))
                self.execute_effects()
                buffer[:] = b"\xee" * len(buffer)
                piece = piece[limit:]

    def received(self) -> list[bytes]:
        """Return the client's new responses, and check those to the requests that only follow."""
        follower = struct.pack(">ihh", _FOLLOWER, -1, 1) + b"behind"
        frames = split(bytes(self.to_client))
        self.to_client.clear()
        self._followers -= frames.count(follower)
        return [data for data in frames if data != follower]

    def awaits(self) -> bool:
        """Whether a request is pending."""
        return self.session.awaiting

    def congested(self) -> bool:
        """Whether the client should not be read from."""
        return self.session.congested

    def exchange(self, data: bytes) -> bytes:
        """The client sends one request, the broker answers: return the client's answer."""
        self.send(data)
        self.answer()
        (answer,) = self.received()
        assert self.session.closing or not self._followers, "what followed the request has got lost"
        return answer


def _follows(request: Request) -> bool:
    return request.api_key == api_keys.PRODUCE and request.correlation_id == _FOLLOWER


def _pieces(data: bytes, arrival: str) -> list[bytes]:
    size = 1 if arrival == BYTE_BY_BYTE else max(1, len(data))
    return [data[start : start + size] for start in range(0, len(data), size)]


# -- requests and answers ------------------------------------------------------------------------


def api_versions(version: int, correlation_id: int = 1, **fields: object) -> bytes:
    """An ApiVersions request; v3 and later have a valid software name and version by default."""
    known = version in k18_api_versions.SUPPORTED_VERSIONS
    if not known:
        return request_frame(api_keys.API_VERSIONS, version, correlation_id, b"\x0bwhatever that is")
    information: dict[str, object] = {"client_software_name": "raw", "client_software_version": "1.0"}
    body = k18_api_versions.encode_request(
        ApiVersionsRequest(**(information | fields)),  # type: ignore[arg-type]  # the test's own words
        version,
    )
    return request_frame(
        api_keys.API_VERSIONS, version, correlation_id, (b"\0" if version >= 3 else b"") + body
    )


def get_subscriptions(
    instance: Uuid = ZERO_UUID, correlation_id: int = 71, *, client_id: str = "raw", version: int = 0
) -> bytes:
    """A GetTelemetrySubscriptions request."""
    body = k71_get_telemetry_subscriptions.encode_request(
        GetTelemetrySubscriptionsRequest(client_instance_id=instance), 0
    )
    return request_frame(
        api_keys.GET_TELEMETRY_SUBSCRIPTIONS, version, correlation_id, b"\0" + body, client_id
    )


def push(
    instance: Uuid,
    subscription_id: int,
    metrics: bytes = b"",
    *,
    correlation_id: int = 72,
    terminating: bool = False,
) -> bytes:
    """A PushTelemetry request."""
    body = k72_push_telemetry.encode_request(
        PushTelemetryRequest(
            client_instance_id=instance,
            subscription_id=subscription_id,
            terminating=terminating,
            metrics=metrics,
        ),
        0,
    )
    return request_frame(api_keys.PUSH_TELEMETRY, 0, correlation_id, b"\0" + body)


def sasl_handshake(version: int, correlation_id: int = 17) -> bytes:
    """A SaslHandshake request for PLAIN."""
    return request_frame(api_keys.SASL_HANDSHAKE, version, correlation_id, b"\0\x05PLAIN")


def correlation_id_of(answer: bytes) -> int:
    return int(struct.unpack_from(">i", answer)[0])


def read_api_versions(answer: bytes, version: int, correlation_id: int = 1) -> ApiVersionsResponse:
    """Read an answer to ApiVersions; it has to end where it should."""
    reader = Reader(answer)
    assert decode_response_header(reader, 0).correlation_id == correlation_id
    response = k18_api_versions.decode_response(reader, version)
    reader.expect_end()
    return response


def listed_ranges(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    """What an answer lists; a key twice is a mistake."""
    ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    assert len(ranges) == len(response.api_keys)
    return ranges


def read_subscriptions(answer: bytes, correlation_id: int = 71) -> GetTelemetrySubscriptionsResponse:
    """Read an answer to GetTelemetrySubscriptions."""
    reader = Reader(answer)
    version = response_header_version(api_keys.GET_TELEMETRY_SUBSCRIPTIONS, 0)
    assert decode_response_header(reader, version).correlation_id == correlation_id
    response = k71_get_telemetry_subscriptions.decode_response(reader, 0)
    reader.expect_end()
    return response


def read_push(answer: bytes, correlation_id: int = 72) -> int:
    """Read an answer to PushTelemetry: its error code."""
    reader = Reader(answer)
    version = response_header_version(api_keys.PUSH_TELEMETRY, 0)
    assert decode_response_header(reader, version).correlation_id == correlation_id
    response = k72_push_telemetry.decode_response(reader, 0)
    reader.expect_end()
    return response.error_code


def encode_subscriptions_answer(correlation_id: int, outcome: SubscriptionsOutcome) -> bytes:
    """Write the answer that the core's outcome makes, without its length."""
    return struct.pack(">ib", correlation_id, 0) + k71_get_telemetry_subscriptions.encode_response(
        outcome.response, 0
    )


def encode_push_answer(correlation_id: int, outcome: PushOutcome) -> bytes:
    """Write the answer that the core's outcome makes, without its length."""
    return struct.pack(">ib", correlation_id, 0) + k72_push_telemetry.encode_response(outcome.response, 0)
