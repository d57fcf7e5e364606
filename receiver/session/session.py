"""One proxied connection: forwards frames and answers telemetry requests.

All bytes pass unchanged, except for these requests:

- ApiVersions is forwarded in a version that the broker speaks, and the response is edited
  (:mod:`receiver.session.api_versions`).
- GetTelemetrySubscriptions and PushTelemetry are answered by the telemetry core. The broker gets a
  marker in their place.
- SaslHandshake and SaslAuthenticate pass. Their contents are read to learn the principal
  (:mod:`receiver.session.login`).
- CreateDelegationToken and DescribeDelegationToken pass. Their responses are read to learn the
  owners of tokens (:mod:`receiver.brokers.delegation_tokens`).
- Requests about client metrics resources are answered by the receiver, in front of a broker that
  does not keep them (:mod:`receiver.session.config_requests`).
- SaslHandshake v0 ends all inspection of the connection. Bare tokens without a request header
  follow it, and a token may look like any request (the PLAIN token of a user "Gina" looks like key
  71).
- Request headers with a client instance id are translated for older brokers
  (:mod:`receiver.session.kip1313`).

**Order.** Kafka answers the requests of a connection in order. Counting responses cannot reproduce
that order, because Produce with acks=0 has no response. Therefore each request that is answered
here is replaced by a *marker*: a tiny request whose response is replaced by our answer. The order
is then the broker's own.

The marker of a telemetry request is Metadata for no topics. A broker answers it only on
authenticated connections, so the broker decides who may push. A push is decided when the marker's
response arrives. Between SaslHandshake and the end of authentication a broker answers any request
with ILLEGAL_SASL_STATE before it closes. Such an error is passed on, and the push is not accepted.

The marker of an ApiVersions request is ApiVersions in a version that no broker has. A broker
answers it on any connection. It must not be a version that the broker has: the broker takes only
one such request before SaslHandshake, so a client that falls back from a newer version could not
log in.

**The shortcut.** When nothing is in flight there is no order to keep, so no marker is needed.
Nothing is in flight when as many responses as requests have passed. A Produce with acks=0 makes the
two counts differ for good, and the connection then always uses markers. The shortcut also needs a
marker that the broker has answered on this connection, and it is never used with SASL, where a
login can expire.

**Effects.** The session does no I/O, reads no clock and calls nobody. The caller gives it bytes,
sends the bytes that it returns, and then executes its effects (:mod:`receiver.session.effects`). A
telemetry request becomes a :class:`~receiver.session.effects.TelemetryCall`. Until its answer comes
(:meth:`Session.answered`), the caller must not read from the broker (:attr:`Session.calling`), so
the answer keeps its place. At most one call is open.

**Turns.** A client's requests must not delay other clients. In one turn of the event loop a
connection opens at most one call and reads at most 43 headers; see
:meth:`Session.bytes_in_a_turn` and :meth:`Session.response_bytes_in_a_turn`. The caller charges the
CPU time to the client (:meth:`Session.take_worked`), also before its login.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from struct import Struct
from typing import Final

from receiver.brokers.delegation_tokens import DelegationTokens
from receiver.brokers.listener_broker import ListenerBroker
from receiver.brokers.upstream import Upstream
from receiver.session.addresses import MAX_KEPT_BYTES, Addresses, is_plain, needs_look
from receiver.session.api_versions import ApiVersionsRequests
from receiver.session.config_requests import (
    KEYS as CONFIG_KEYS,
)
from receiver.session.config_requests import (
    LONGEST,
    ConfigExchange,
    config_error,
    is_about_resources,
    not_logged_in,
    read_exchange,
)
from receiver.session.effects import (
    ClientInstanceRefused,
    ConfigCall,
    ConfigRequestHidden,
    ConfigRequestRefused,
    Effect,
    Flooded,
    IdentityChanged,
    LoginEnded,
    TelemetryCall,
    TelemetryRequest,
    UnauthenticatedTelemetry,
)
from receiver.session.kip1313 import offset_delete
from receiver.session.kip1313.refusals import refusal
from receiver.session.kip1313.request_headers import RequestHeaders
from receiver.session.login import WATCHED as WATCHED_BY_LOGIN
from receiver.session.login import Login, LoginOutcome
from receiver.session.messages import (
    decode_telemetry,
    marker,
    telemetry_error,
    unknown_version_request,
    with_correlation_id,
    with_throttle_time,
    without_tagged_fields,
)
from receiver.session.pending import MakeAnswer, NamingRequest, PendingRequest, PendingRequests
from receiver.telemetry.identity import MAX_TEXT_CHARS, ClientIdentity
from receiver.wire import api_keys, k03_metadata, node_endpoints
from receiver.wire.addressed_framing import (
    AddressedRequests,
    AddressedResponses,
    LongResponse,
    names_brokers,
)
from receiver.wire.broker_addresses import ReplaceAddress
from receiver.wire.config_resources import Result
from receiver.wire.error_codes import ErrorCode
from receiver.wire.errors import WireError
from receiver.wire.framing import RequestRewriter, ResponseRewriter, frame, frame_start
from receiver.wire.headers import RequestHeader, at_body
from receiver.wire.primitives import Reader

__all__ = ["HEADER_BYTES_IN_A_TURN", "WATCHED_KEYS", "Session", "SessionEnd"]

#: API keys of the requests that the session reads on every connection.
WATCHED_KEYS: Final = WATCHED_BY_LOGIN | {
    api_keys.API_VERSIONS,
    api_keys.GET_TELEMETRY_SUBSCRIPTIONS,
    api_keys.PUSH_TELEMETRY,
}

#: Most bytes of a watched request besides a push's metrics. A client id, a software name and a
#: software version have at most 32,767 bytes each.
_MAX_AROUND_METRICS: Final = 131_072

#: Longest response that is replaced: ApiVersions, or Metadata for no topics of a large cluster.
_MAX_RESPONSE_BYTES: Final = 4_194_304

#: The same where addresses are replaced: Metadata of half a million partitions.
_MAX_ADDRESSED_BYTES: Final = 33_554_432

#: Longest response that is read to learn a principal; a longer one passes unread. It has room for
#: about 2,000 delegation tokens, which take 10 ms to read.
_MAX_OBSERVED_BYTES: Final = 262_144

#: Pending requests at which the client is no longer read from.
_MAX_PENDING: Final = 16

#: Pending requests at which the connection is closed. One chunk holds thousands of small requests,
#: and all clients wait while they are answered. A well-behaved client has one or two pending.
_MAX_OUTSTANDING: Final = 32

#: The same two limits where addresses are replaced. A client may have as many Produce requests
#: pending as it likes, and they hold little memory.
_MAX_PENDING_ADDRESSED: Final = 512
_MAX_OUTSTANDING_ADDRESSED: Final = 8_192

#: Bytes of requests to take in one turn while each header is read: at most 43 headers of twelve
#: bytes, which take less than a millisecond.
HEADER_BYTES_IN_A_TURN: Final = 512

#: Bytes of a response that hold its length and its correlation id.
_RESPONSE_HEAD_BYTES: Final = 8

_GREATEST_INT32: Final = 2_147_483_647

_SASL: Final = frozenset({api_keys.SASL_HANDSHAKE, api_keys.SASL_AUTHENTICATE})

_KEY = Struct(">h")


class SessionEnd(StrEnum):
    """Reason for which a session closes its connection."""

    INVALID_REQUEST = "invalid_request"
    LIMIT = "limit"


class Session:
    """Decides what happens to each frame of one connection, in each direction.

    Args:
        identity: Who the client is, as far as admission knows.
        broker: What is known of the broker; markers' responses complete it.
        upstream: The versions that the broker speaks, which the session keeps up to date.
        random_number: Returns a random integer of 31 bits, which no client can predict.
        max_frame_bytes: Longest request that a client may announce.
        max_push_bytes: Most bytes of metrics in a push. A longer push is refused, and its end not
            kept.
        principal_claim: The claim of an OAUTHBEARER token that names the principal.
        delegation_tokens: The owners of delegation tokens, shared by all sessions of the broker.
        replace_address: Gives the host and port to write for a broker that a response names; None
            if addresses are kept. It excludes ``upstream.translates``.

    Attributes:
        requests: Rewrites the bytes from the client to the broker.
        responses: Rewrites the bytes from the broker to the client.
        identity: Who the client is, as far as the session knows. It does not have the client
            instance id of telemetry requests, because the telemetry core gives ids.
        closing: Set when the connection has to be closed after all returned bytes have been sent.
    """

    __slots__ = (
        "_added",
        "_addresses",
        "_answered_here",
        "_api_versions",
        "_broker",
        "_call",
        "_call_bytes",
        "_calls",
        "_can_expire",
        "_effects",
        "_finish",
        "_headers",
        "_login",
        "_marker_answered",
        "_max_held_bytes",
        "_max_push_bytes",
        "_opaque",
        "_pending",
        "_throttle_time_ms",
        "_upstream",
        "_worked",
        "closing",
        "identity",
        "requests",
        "responses",
    )

    def __init__(
        self,
        *,
        identity: ClientIdentity,
        broker: ListenerBroker,
        upstream: Upstream,
        random_number: Callable[[], int],
        max_frame_bytes: int,
        max_push_bytes: int,
        principal_claim: str,
        delegation_tokens: DelegationTokens,
        replace_address: ReplaceAddress | None = None,
    ) -> None:
        self.identity = identity
        self._broker = broker
        self._upstream = upstream
        self._effects: list[Effect] = []
        self._worked = False
        self._headers = RequestHeaders(upstream)
        watched = WATCHED_KEYS | upstream.watched_config_keys
        if upstream.translates:
            watched |= {api_keys.OFFSET_DELETE}
        self._addresses = None if replace_address is None else Addresses(replace_address)
        self.requests: RequestRewriter
        self.responses: ResponseRewriter
        if self._addresses is None:
            self.requests = RequestRewriter(
                self._replace_request,
                replace_head=self._replace_head,
                header_version=self._headers.version,
                watched=watched,
                longest_watched=LONGEST,
                max_frame_bytes=max_frame_bytes,
                max_watched_bytes=max_push_bytes + _MAX_AROUND_METRICS,
            )
            self.responses = ResponseRewriter(
                self._replace_response,
                replace_correlation_id=self._pass_unread,
                max_frame_bytes=_GREATEST_INT32,
                max_watched_bytes=_MAX_RESPONSE_BYTES,
            )
        else:
            self.requests = AddressedRequests(
                self._replace_request,
                replace_head=self._replace_head,
                track=self._track_in_place,
                header_version=self._headers.version,
                watched=watched,
                longest_watched=LONGEST,
                max_frame_bytes=max_frame_bytes,
                max_watched_bytes=max_push_bytes + _MAX_AROUND_METRICS,
            )
            self.responses = AddressedResponses(
                self._replace_response,
                take_plain=self._take_plain,
                long_response=self._take_long,
                max_frame_bytes=_GREATEST_INT32,
                max_watched_bytes=_MAX_ADDRESSED_BYTES,
            )
        self.requests.reads_all_headers = True  # until the first request has decided (KIP-1313)
        self._pending = PendingRequests(random_number)
        self._max_push_bytes = max_push_bytes
        self._max_held_bytes = 2 * max_push_bytes
        self._login = Login(
            required=identity.security_protocol.startswith("SASL_"),
            principal=identity.principal,
            principal_claim=principal_claim,
            delegation_tokens=delegation_tokens,
            on_outcome=self._logged_in,
        )
        self._can_expire = self._login.required  # whether the broker may stop answering markers
        self._api_versions = ApiVersionsRequests(
            broker=broker,
            upstream=upstream,
            on_software=self._learn_software,
            emit=self._effects.append,
        )
        self._opaque = False
        self._marker_answered = False  # whether the broker has answered a marker on this connection
        self._answered_here = 0  # requests that were answered without a marker
        self._added = 0  # further requests that the broker got
        self._calls = 0
        self._call: int | None = None  # the token of the open call
        self._call_bytes = 0
        self._throttle_time_ms = 0  # of the open call's marker
        self._finish: Callable[[bytes], bytes] | None = None  # makes the answer of the open call's
        self.closing: SessionEnd | None = None

    # -- effects -------------------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        """Return the effects since the last call, in order.

        Call it each time :attr:`requests` or :attr:`responses` has rewritten bytes, and execute the
        effects after the bytes are sent.
        """
        if not self._effects:
            return []
        effects = self._effects[:]
        self._effects.clear()
        return effects

    def take_worked(self) -> bool:
        """Return and reset whether the last bytes cost work to charge the client for.

        Headers that are only translated are not charged. They are the client's own traffic, which
        the broker limits, and the event loop's shares keep their cost from other clients.
        """
        worked, self._worked = self._worked, False
        return worked

    @property
    def calling(self) -> bool:
        """Whether a call is open: nothing may be read from the broker until it is answered."""
        return self._call is not None

    def answered(self, token: int, answer: bytes) -> bytes:
        """Take the answer to a call and return the bytes to send to the client now.

        Args:
            token: The token of the call. The answer to a call that is not open any more, perhaps
                because it took too long, is ignored.
            answer: The answer as a frame.
        """
        if token != self._call:
            return b""
        self._call = None
        self._call_bytes = 0
        finish, self._finish = self._finish, None
        if finish is not None:
            return finish(answer)
        return with_throttle_time(answer, self._throttle_time_ms) if self._throttle_time_ms else answer

    def end(self, end: SessionEnd) -> None:
        """Close the connection after what has been returned so far."""
        self.requests.stop_passing()
        self.responses.stop_passing()
        self.closing = end

    def close(self) -> None:
        """Break the reference cycles of the session, so that its memory is freed at once.

        The session must not be used afterwards.
        """
        del self.requests, self.responses, self._pending, self._login, self._api_versions

    @property
    def held_bytes(self) -> int:
        """Bytes held by incomplete requests, by pending requests and by the open call."""
        return self.requests.held + self._pending.held_bytes + self._call_bytes

    @property
    def congested(self) -> bool:
        """Whether too many requests are pending to read more from the client now.

        It can end with each chunk of responses.
        """
        most = _MAX_PENDING if self._addresses is None else _MAX_PENDING_ADDRESSED
        return len(self._pending) >= most or self._pending.held_bytes > self._max_held_bytes

    @property
    def due(self) -> int:
        """Bytes still to come of the client's current request; 0 between two."""
        return self.requests.due

    @property
    def looks_at_headers(self) -> bool:
        """Whether every request header is read now (KIP-1313).

        That holds for the first request, and for all requests if they are translated.
        """
        return self.requests.reads_all_headers

    def bytes_in_a_turn(self) -> int:
        """Return the limit on client bytes in one turn while every header is read."""
        return self.requests.due + HEADER_BYTES_IN_A_TURN

    @property
    def may_call(self) -> bool:
        """Whether the broker's next bytes could open a call."""
        return self._pending.undecided > 0

    def response_bytes_in_a_turn(self) -> int:
        """Return the limit on broker bytes in one turn while :attr:`may_call` is set.

        At most one response ends, so nothing is read behind one that opens a call.
        """
        return self.responses.due or _RESPONSE_HEAD_BYTES

    @property
    def in_flight(self) -> bool:
        """Whether the broker may owe a response; always so after acks=0."""
        return self._unanswered != 0

    @property
    def only_polls(self) -> bool:
        """Whether the broker owes one response, to a Fetch, which may be waiting for records."""
        return self._unanswered == 1 and self.requests.last_key == api_keys.FETCH and not self.calling

    @property
    def awaiting(self) -> bool:
        """Whether an answer is pending: the broker's that the session reads, or the core's."""
        return bool(self._pending) or self.calling

    # -- requests ------------------------------------------------------------------------------

    def _replace_request(self, request: bytes, length: int) -> bytes:
        self._worked = True
        self._check_outstanding()
        (api_key,) = _KEY.unpack_from(request)
        if length > len(request) and api_key != api_keys.PUSH_TELEMETRY:
            raise WireError(
                expected=f"at most {len(request)} bytes of {api_keys.api_name(api_key)}",
                offset=0,
                found=str(length),
            )
        header, reader = self._headers.read(request)
        if not self._admits(header):
            return self._refuse(header)
        if api_key == api_keys.OFFSET_DELETE:
            return self._replace_offset_delete(header, reader, request)
        if self._headers.is_translated(header):
            request = self._headers.translated(header) + request[reader.offset :]
            header, reader = self._headers.read(request)
        header = without_tagged_fields(header)
        if api_key == api_keys.API_VERSIONS:
            return self._replace_api_versions(header, reader, request)
        if api_key in CONFIG_KEYS:
            return self._replace_config_request(header, reader, request)
        if api_key in WATCHED_BY_LOGIN:
            if self._addresses is not None:
                self._check_offered(header)
            return self._observe_login(header, reader, request)
        return self._replace_telemetry(header, reader, cut=length > len(request), held_bytes=len(request))

    def _observe_login(self, header: RequestHeader, reader: Reader, request: bytes) -> bytes:
        self._can_expire |= header.api_key in _SASL
        if header.api_key == api_keys.SASL_HANDSHAKE and header.api_version == 0:
            self._stop_watching()
            self._login.forget_principal()
            self._identify(replace(self.identity, principal=self._login.principal))
            return frame(request)
        observe_response = self._login.observe(header, reader)

        def make_answer(response: bytes) -> bytes:
            observe_response(response)
            return frame(with_correlation_id(header.correlation_id, response, at=0))

        # No byte of the request is kept, because it may hold a password or a token.
        correlation_id = self._pending.add(
            make_answer, 0, max_read_bytes=_MAX_OBSERVED_BYTES, unread_correlation_id=header.correlation_id
        )
        self._await_next()
        return frame(with_correlation_id(correlation_id, request))

    def _logged_in(self, mechanism: str, outcome: LoginOutcome) -> None:
        login = self._login
        self._identify(replace(self.identity, principal=login.principal, sasl_mechanism=login.mechanism))
        self._effects.append(LoginEnded(mechanism, outcome))

    def _replace_api_versions(self, header: RequestHeader, reader: Reader, request: bytes) -> bytes:
        exchange = self._api_versions.exchange(header, reader, request)
        if not exchange.closes:
            return frame(exchange.request(self._expect(exchange.answer, len(request))))
        # A broker reads nothing after such a request either.
        self.requests.stop_passing()

        def answer_and_end(response: bytes) -> bytes:
            self.end(SessionEnd.INVALID_REQUEST)
            return exchange.answer(response)

        return frame(exchange.request(self._expect(answer_and_end, len(request))))

    def _learn_software(self, name: str, version: str) -> None:
        self._identify(replace(self.identity, client_software_name=name, client_software_version=version))

    def _identify(self, identity: ClientIdentity) -> None:
        if identity != self.identity:
            self.identity = identity
            self._worked = True  # whoever keeps identities has work too
            self._effects.append(IdentityChanged(identity))

    def _replace_telemetry(
        self, header: RequestHeader, reader: Reader, *, cut: bool, held_bytes: int
    ) -> bytes:
        request = decode_telemetry(header, reader, cut_beyond=self._max_push_bytes if cut else None)
        if self._may_call_now():
            self._answered_here += 1
            self._throttle_time_ms = 0
            return self._open_call(header, request, held_bytes)
        version = self._upstream.metadata_version()

        def make_answer(response: bytes) -> bytes:
            body = at_body(response, api_keys.METADATA, version)
            if k03_metadata.is_error(body, version) or (self._login.required and not self._login.succeeded):
                # The second case: a login is required, but the broker answers without one.
                self._effects.append(UnauthenticatedTelemetry(header))
                return telemetry_error(header, ErrorCode.ILLEGAL_SASL_STATE)
            if self._broker.wants_cluster:
                body = at_body(response, api_keys.METADATA, version)
                self._broker.record_cluster(k03_metadata.decode_cluster(body, version))
            self._marker_answered = True
            self._throttle_time_ms = k03_metadata.decode_throttle_time_ms(
                at_body(response, api_keys.METADATA, version), version
            )
            return self._open_call(header, request, held_bytes)

        correlation_id = self._expect(make_answer, held_bytes, decides=True)
        return marker(self._headers.client_id(header), version, correlation_id)

    def _open_call(self, header: RequestHeader, request: TelemetryRequest, held_bytes: int) -> bytes:
        self._begin_call(held_bytes)
        self._effects.append(TelemetryCall(self._calls, header, request))
        return b""

    def _begin_call(self, held_bytes: int) -> None:
        self._calls += 1
        self._call = self._calls
        self._call_bytes = held_bytes

    def _replace_config_request(self, header: RequestHeader, reader: Reader, request: bytes) -> bytes:
        if self._addresses is not None:
            self._check_offered(header)
        body, upstream = request[reader.offset :], self._upstream
        if not upstream.answers_for_resources:
            if upstream.hides_resources and is_about_resources(header, body):
                self._effects.append(ConfigRequestHidden(header))
            return frame(request)
        exchange = read_exchange(header, body, upstream)
        if exchange is None:
            return frame(request)
        judgements: list[tuple[int, Result | None]] = []

        def judge(response: bytes) -> bytes:
            throttle_time_ms, refused = exchange.judgement(response)
            if self._login.required and not self._login.succeeded:
                refused = not_logged_in()
            judgements.append((throttle_time_ms, refused))
            return self._answer_config_request(exchange, *judgements[0]) if exchange.others is None else b""

        def take_others(response: bytes) -> bytes:
            exchange.check_others(response)
            return self._answer_config_request(exchange, *judgements[0], response)

        client_id = self._headers.client_id(header)
        question = self._expect(judge, len(request), decides=exchange.others is None)
        sent = exchange.question_frame(question, client_id)
        if exchange.others is not None:
            self._added += 1
            others = self._pending.add(
                take_others,
                0,
                max_read_bytes=_MAX_RESPONSE_BYTES,
                unread_correlation_id=header.correlation_id,
                decides=True,
            )
            sent += exchange.others_frame(others, client_id)
        return sent

    def _answer_config_request(
        self,
        exchange: ConfigExchange,
        throttle_time_ms: int,
        refused: Result | None,
        others: bytes | None = None,
    ) -> bytes:
        if refused is not None:
            self._effects.append(ConfigRequestRefused(exchange.header, refused.error_code))
            own = config_error(exchange.header, exchange.own, refused.error_code, refused.error_message)
            return exchange.answer(own, others, throttle_time_ms)
        self._begin_call(len(exchange.own) + len(others or b""))
        self._finish = lambda own: exchange.answer(own, others, throttle_time_ms)
        self._effects.append(ConfigCall(self._calls, exchange.header, exchange.own))
        return b""

    def _may_call_now(self) -> bool:
        """Whether the shortcut is open: only the current request has no response yet."""
        return (
            self._marker_answered
            and self._call is None
            and not self._can_expire
            and self._unanswered == 1
            and not self.responses.due
        )

    @property
    def _unanswered(self) -> int:
        """Number of requests that the broker got and has not answered."""
        return self.requests.frames + self._added - self._answered_here - self.responses.frames

    def _expect(self, make_answer: MakeAnswer, held_bytes: int, *, decides: bool = False) -> int:
        correlation_id = self._pending.add(make_answer, held_bytes, decides=decides)
        self._await_next()
        return correlation_id

    def _await_next(self) -> None:
        first, responses = self._pending.first, self.responses
        if first is None:
            responses.awaited = None
        else:
            responses.awaited, responses.max_replaced_bytes = first.correlation_id, first.max_read_bytes

    def _check_outstanding(self) -> None:
        most = _MAX_OUTSTANDING if self._addresses is None else _MAX_OUTSTANDING_ADDRESSED
        if len(self._pending) + self.calling >= most:
            self._effects.append(Flooded())
            raise WireError(
                expected=f"at most {most} requests for the receiver before an answer",
                offset=0,
                found="one more",
            )

    def _stop_watching(self) -> None:
        self.requests.stop_watching()
        self._opaque = True
        if not self._pending:
            self.responses.stop_watching()

    # -- request headers (KIP-1313) ------------------------------------------------------------

    def _replace_head(self, head: bytes, length: int) -> tuple[bytes, bool]:
        self._worked |= not self._headers.binding_decided
        header, body = self._headers.read(head)
        if not self._admits(header):
            return self._refuse(header), False
        if self._addresses is not None:
            if needs_look(header, body):
                self._check_outstanding()
                correlation_id = self._track(header.api_key, header.api_version, header.correlation_id)
                head = with_correlation_id(correlation_id, head)
            return frame_start(head, length - len(head)), True
        forwarded = self._headers.translated(header) if self._headers.is_translated(header) else head
        return frame_start(forwarded, length - len(head)), True

    def _admits(self, header: RequestHeader) -> bool:
        headers, identity = self._headers, self.identity
        admitted = headers.admit(header)
        self.requests.reads_all_headers = headers.must_read_all
        client_id = headers.client_id(header)
        client_id = identity.client_id if client_id is None else client_id[:MAX_TEXT_CHARS]
        if client_id != identity.client_id or headers.bound_to != identity.client_instance_id:
            self._identify(replace(identity, client_id=client_id, client_instance_id=headers.bound_to))
        return admitted

    def _refuse(self, header: RequestHeader) -> bytes:
        header = without_tagged_fields(header)
        answer = refusal(header)
        self._check_outstanding()

        def make_answer(_: bytes) -> bytes:
            self._effects.append(ClientInstanceRefused(header))
            return answer

        return frame(unknown_version_request(header, self._expect(make_answer, 0)))

    def _replace_offset_delete(self, header: RequestHeader, reader: Reader, request: bytes) -> bytes:
        if not self._headers.is_translated(header):
            return frame(request)
        translated = self._headers.translated(header) + offset_delete.request_to_v0(reader)
        kept_header = without_tagged_fields(header)
        correlation_id = self._expect(lambda response: offset_delete.answer(kept_header, response), 0)
        return frame(with_correlation_id(correlation_id, translated))

    # -- addresses of brokers ------------------------------------------------------------------

    def _track(self, api_key: int, version: int, correlation_id: int) -> int:
        """Expect a response that names brokers; return the correlation id for the broker."""
        most = MAX_KEPT_BYTES if api_key in node_endpoints.VERSIONS else _GREATEST_INT32
        forwarded = self._pending.add_naming(api_key, version, correlation_id, most)
        if self.responses.awaited is None:
            self._await_next()
        return forwarded

    def _track_in_place(self, api_key: int, version: int, correlation_id: int) -> int | None:
        # The relay hears of a full queue only if it has to rewrite bytes.
        return None if self.congested else self._track(api_key, version, correlation_id)

    def _take_plain(self, chunk: memoryview, begin: int, end: int) -> int | None:
        """Take the pending request of a response that names no broker; see the framing."""
        first = self._pending.first
        if not isinstance(first, NamingRequest) or not is_plain(first.api_key, chunk, begin, end):
            return None
        self._take_pending()
        return first.client_correlation_id

    def _take_long(self) -> LongResponse | int:
        pending = self._take_pending()
        if isinstance(pending, PendingRequest):
            return pending.unread_correlation_id
        return self._replacing.long_response(pending.api_key, pending.version, pending.client_correlation_id)

    @property
    def _replacing(self) -> Addresses:
        if self._addresses is None:
            raise AssertionError("addresses are kept")
        return self._addresses

    @staticmethod
    def _check_offered(header: RequestHeader) -> None:
        """Refuse a request whose response, or what follows it, may hold an address."""
        names_brokers(header.api_key, header.api_version)
        if header.api_key == api_keys.SASL_HANDSHAKE and header.api_version == 0:
            raise WireError(
                expected="SaslHandshake version 1, because addresses are rewritten",
                offset=2,
                found="version 0",
            )

    # -- responses -----------------------------------------------------------------------------

    def _replace_response(self, response: bytes, length: int) -> bytes:
        if length > len(response):
            raise WireError(
                expected=f"a response of at most {len(response)} bytes",
                offset=0,
                found=f"{length} bytes",
            )
        pending = self._take_pending()
        if isinstance(pending, PendingRequest):
            self._worked = True
            return pending.make_answer(response)
        # A Fetch or Produce response costs about as much as one that passes. It is not charged for.
        self._worked |= pending.api_key not in node_endpoints.VERSIONS
        return self._replacing.answer(
            pending.api_key, pending.version, pending.client_correlation_id, response
        )

    def _pass_unread(self) -> int:
        pending = self._take_pending()
        if not isinstance(pending, PendingRequest):
            raise AssertionError("addresses are kept")
        return pending.unread_correlation_id

    def _take_pending(self) -> PendingRequest | NamingRequest:
        pending = self._pending.take()
        self._await_next()
        if self._opaque and not self._pending:
            self.responses.stop_watching()
        return pending
