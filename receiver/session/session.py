"""One proxied connection: both of its directions, and the answers that are ours.

Everything passes byte for byte, but for these requests:

- ApiVersions goes on under a correlation id of ours, in a version that the broker speaks, and its answer is
  edited on the way back (:mod:`receiver.session.api_versions` has the rules);
- GetTelemetrySubscriptions and PushTelemetry stay here. In their place the broker gets a marker;
- SaslHandshake version 0 ends our look at the connection: what follows it are bare tokens without a request
  header, and a token may look like any request (a PLAIN token of a user "Gina" looks like key 71).

**Order.** Kafka answers the requests of a connection in order, but Produce with acks=0 has no answer, so
counting answers goes wrong. A request that we answer is therefore exchanged for a *marker*, a tiny request
whose answer is exchanged for ours: the order is then the broker's own. The marker of a telemetry request is
Metadata for no topics, which a broker answers to authenticated connections only: so the broker decides who
may push, and a push counts when the marker's answer is there. Between SaslHandshake and the end of
authentication a broker answers anything, with ILLEGAL_SASL_STATE, before it closes: so an answer that is an
error is passed on as that error, and nothing is decided. The marker of an ApiVersions request is ApiVersions
in a version that nobody has. It is answered to anybody, as the request itself is, and changes nothing with
the broker: a version that it had would count as the one ApiVersions that it takes before SaslHandshake, and
a client that falls back from a newer version could not log in.

**The short cut.** Where nothing is in flight there is no order to keep, and the answer can go out at once.
Each answer belongs to one request before it, so nothing is in flight when as many answers have passed as
requests; a Produce with acks=0 makes the two differ for good, and the marker stays. It is taken only where
the broker has answered a marker on this connection, and never with SASL, where a login can expire.

**Correlation ids.** A marker never carries the client's correlation id but a random one from the half of the
range that no client uses. A client that guesses or repeats ids could otherwise make the answer to another of
its requests, one that needs no authentication, pass for the marker's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Final, Protocol

from receiver.session.api_versions import Answer, answer_body, decide
from receiver.session.events import SessionEvents
from receiver.session.messages import (
    api_versions_request,
    decode_telemetry,
    marker,
    response_header,
    telemetry_error,
    under,
    unknown_version_request,
)
from receiver.session.upstream import LEARNED_KEYS, Upstream
from receiver.telemetry.connection import Broker, Connection
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire import (
    api_keys,
    k03_metadata,
    k18_api_versions,
    k71_get_telemetry_subscriptions,
    k72_push_telemetry,
)
from receiver.wire.error_codes import ErrorCode
from receiver.wire.errors import WireError
from receiver.wire.framing import RequestRewriter, ResponseRewriter, frame
from receiver.wire.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    response_header_version,
)
from receiver.wire.k18_api_versions import ApiVersionsRequest
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.primitives import Reader

__all__ = ["WATCHED_KEYS", "Clock", "Session"]

#: Requests that do not just pass.
WATCHED_KEYS: Final = frozenset(
    {
        api_keys.SASL_HANDSHAKE,
        api_keys.API_VERSIONS,
        api_keys.GET_TELEMETRY_SUBSCRIPTIONS,
        api_keys.PUSH_TELEMETRY,
    }
)

#: Room that a watched request may take besides a push's metrics: a client id and a software name and version
#: have at most 32,767 bytes each.
_MAX_AROUND_METRICS: Final = 131_072

#: Longest answer of the broker's that we read: ApiVersions, or Metadata for no topics of a large cluster.
_MAX_ANSWER_BYTES: Final = 4_194_304

#: Answers that may be outstanding before the client is no longer read from.
_MAX_PENDING: Final = 64

#: Requests for us in one go after which the connection is given up. A chunk holds thousands of small ones,
#: and all clients wait while they are answered; a client of good will has one or two outstanding.
_MAX_OUTSTANDING: Final = 256

_GREATEST_INT32: Final = 2_147_483_647

_CORRELATION_ID = Struct(">i")
_REQUEST_START = Struct(">hhi")


class Clock(Protocol):
    """Where a session gets the time from."""

    def monotonic(self) -> float:
        """Return seconds that never go backwards."""

    def wall_ns(self) -> int:
        """Return nanoseconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """A request whose answer is ours or is edited by us.

    Attributes:
        correlation_id: The one under which the broker will answer.
        held_bytes: Memory that the request keeps.
        answer: Makes the answer's frame from the body of the broker's.
    """

    correlation_id: int
    held_bytes: int
    answer: Callable[[bytes], bytes]


class Session:
    """What happens to each frame of one connection, in each direction.

    Args:
        connection: The connection's entry in the registry; kept up to date here.
        broker: Who the broker is; its cluster id is learned here.
        upstream: What the broker speaks; kept up to date here.
        telemetry: The telemetry core.
        events: Told of every request that is answered or edited here.
        clock: The time.
        random_bits: Returns a non-negative int of that many unpredictable bits.
        max_frame_bytes: Longest request that may be announced.
        max_push_bytes: Longest compressed push that the core takes; more of it is not kept.

    Attributes:
        requests: What becomes of the client's bytes; for a hot loop, else :meth:`from_client`.
        responses: What becomes of the broker's bytes; for a hot loop, else :meth:`from_broker`.
        closing: Set once the connection has to be closed after what was returned so far has been sent.
    """

    __slots__ = (
        "_answered_here",
        "_answers",
        "_broker",
        "_can_expire",
        "_clock",
        "_connection",
        "_events",
        "_held_bytes",
        "_max_held_bytes",
        "_max_push_bytes",
        "_opaque",
        "_pending",
        "_random_bits",
        "_telemetry",
        "_upstream",
        "_vouched",
        "closing",
        "requests",
        "responses",
    )

    def __init__(
        self,
        *,
        connection: Connection,
        broker: Broker,
        upstream: Upstream,
        telemetry: ClientTelemetry,
        events: SessionEvents,
        clock: Clock,
        random_bits: Callable[[int], int],
        max_frame_bytes: int,
        max_push_bytes: int,
    ) -> None:
        self._connection = connection
        self._broker = broker
        self._upstream = upstream
        self._telemetry = telemetry
        self._events = events
        self._clock = clock
        self._random_bits = random_bits
        self.requests = RequestRewriter(
            self._replace_request,
            watched=WATCHED_KEYS,
            max_frame_bytes=max_frame_bytes,
            max_watched_bytes=max_push_bytes + _MAX_AROUND_METRICS,
        )
        self.responses = ResponseRewriter(
            self._replace_response, max_frame_bytes=_GREATEST_INT32, max_watched_bytes=_MAX_ANSWER_BYTES
        )
        self._pending: list[_Pending] = []
        self._held_bytes = 0
        self._max_push_bytes = max_push_bytes
        self._max_held_bytes = 2 * max_push_bytes
        self._opaque = False
        self._vouched = False  # whether the broker has answered a marker
        self._can_expire = connection.security_protocol != "PLAINTEXT"  # whether it might not do so again
        self._answered_here = 0  # requests that the broker has never heard of
        self._answers: list[bytes] = []
        self.closing = False

    def from_client(self, chunk: memoryview) -> memoryview | bytes:
        """Take what the client sent; return what goes to the broker (``chunk`` itself where all passes).

        Raises:
            WireError: The client sent what no broker would read on from; the connection has to be closed.
        """
        return self.requests.feed(chunk)

    def from_broker(self, chunk: memoryview) -> memoryview | bytes:
        """Take what the broker sent; return what goes to the client (``chunk`` itself where all passes).

        Raises:
            WireError: The broker sent what is no answer; the connection has to be closed.
        """
        return self.responses.feed(chunk)

    def take_answers(self) -> bytes:
        """Return what goes to the client at once, behind everything that :meth:`from_broker` has returned.

        To be asked after each :meth:`from_client` that returned something else than what it was given.
        """
        if not self._answers:
            return b""
        answers = b"".join(self._answers)
        self._answers.clear()
        return answers

    @property
    def congested(self) -> bool:
        """Whether so many answers are outstanding that the client should not be read from for now."""
        return len(self._pending) >= _MAX_PENDING or self._held_bytes > self._max_held_bytes

    @property
    def due(self) -> int:
        """How many more bytes the client has to send to end the request at hand; 0 between two requests."""
        return self.requests.due

    @property
    def in_flight(self) -> bool:
        """Whether the broker may owe an answer: for good, once there was a Produce with acks=0."""
        return self._unanswered != 0

    @property
    def awaiting(self) -> bool:
        """Whether an answer of ours is still outstanding."""
        return bool(self._pending)

    # -- requests -------------------------------------------------------------------------------------

    def _replace_request(self, request: bytes, length: int) -> bytes:
        if len(self._pending) + len(self._answers) >= _MAX_OUTSTANDING:
            raise WireError(
                expected=f"at most {_MAX_OUTSTANDING} requests for the receiver before an answer",
                offset=0,
                found="one more",
            )
        api_key, api_version, _ = _REQUEST_START.unpack_from(request)
        if length > len(request) and api_key != api_keys.PUSH_TELEMETRY:
            raise WireError(
                expected=f"at most {len(request)} bytes of {api_keys.api_name(api_key)}",
                offset=0,
                found=str(length),
            )
        if api_key == api_keys.SASL_HANDSHAKE:
            self._can_expire = True
            if api_version == 0:
                self._watch_no_longer()
            return frame(request)
        if api_key == api_keys.API_VERSIONS:
            return self._replace_api_versions(request)
        return self._replace_telemetry(request, cut=length > len(request))

    def _replace_api_versions(self, request: bytes) -> bytes:
        reader = Reader(request)
        header = decode_request_header(reader)
        self._learn_client_id(header)
        version = header.api_version
        body = None
        if version in k18_api_versions.SUPPORTED_VERSIONS:
            body = k18_api_versions.decode_request(reader, version)
        decision = decide(body, version, broker=self._broker, upstream=self._upstream)
        if isinstance(decision, Answer):
            refusal = decision
            if refusal.close:
                # A broker reads no further either, so nothing behind this request may have an effect.
                self.requests.stop_passing()

            def refuse(_: bytes) -> bytes:
                if refusal.close:
                    self.responses.stop_passing()
                    self.closing = True
                self._events.api_versions_answered(self._connection, header, refusal.error_code)
                return frame(response_header(header), refusal.body)

            return frame(unknown_version_request(header, self._expect(refuse, len(request))))

        asked = body if body is not None else ApiVersionsRequest()
        forwarded = decision.version
        correlation_id = self._expect(
            lambda answer: self._edit_api_versions(header, asked, forwarded, answer), len(request)
        )
        if forwarded == version:
            return frame(under(correlation_id, request))
        return api_versions_request(header, correlation_id, forwarded, asked)

    def _replace_telemetry(self, request: bytes, *, cut: bool) -> bytes:
        reader = Reader(request)
        header = decode_request_header(reader)
        self._learn_client_id(header)
        telemetry_request = decode_telemetry(header, reader, cut_beyond=self._max_push_bytes if cut else None)
        if self._may_answer_now():
            self._answered_here += 1
            self._answers.append(self._decide_telemetry(header, telemetry_request))
            return b""
        version = self._upstream.metadata_version()
        correlation_id = self._expect(
            lambda answer: self._answer_telemetry(header, telemetry_request, answer, version), len(request)
        )
        return marker(header.client_id, version, correlation_id)

    def _may_answer_now(self) -> bool:
        """Whether the short cut is open: only the request at hand, already counted, has no answer yet."""
        return self._vouched and not self._can_expire and self._unanswered == 1 and not self.responses.due

    @property
    def _unanswered(self) -> int:
        """How many requests, of those that are the broker's to answer, have no answer yet."""
        return self.requests.frames - self._answered_here - self.responses.frames

    def _expect(self, answer: Callable[[bytes], bytes], held_bytes: int) -> int:
        correlation_id = -1 - self._random_bits(31)
        self._pending.append(_Pending(correlation_id=correlation_id, held_bytes=held_bytes, answer=answer))
        self._held_bytes += held_bytes
        self.responses.awaited = self._pending[0].correlation_id
        return correlation_id

    def _watch_no_longer(self) -> None:
        self.requests.stop_watching()
        self._opaque = True
        if not self._pending:
            self.responses.stop_watching()

    def _learn_client_id(self, header: RequestHeader) -> None:
        if header.client_id is not None:
            self._connection.client_id = header.client_id

    def _learn_software(self, request: ApiVersionsRequest) -> None:
        # Not before the broker took it: Kafka 4.4 refuses names that KIP-511 allows.
        if request.client_software_name:
            self._connection.client_software_name = request.client_software_name
            self._connection.client_software_version = request.client_software_version

    # -- answers --------------------------------------------------------------------------------------

    def _replace_response(self, response: bytes, length: int) -> bytes:
        if length > len(response):
            raise WireError(
                expected=f"an answer of at most {_MAX_ANSWER_BYTES} bytes", offset=0, found=f"{length} bytes"
            )
        pending = self._pending.pop(0)
        self._held_bytes -= pending.held_bytes
        self.responses.awaited = self._pending[0].correlation_id if self._pending else None
        if self._opaque and not self._pending:
            self.responses.stop_watching()
        return pending.answer(response)

    def _edit_api_versions(
        self, header: RequestHeader, asked: ApiVersionsRequest, forwarded: int, response: bytes
    ) -> bytes:
        body = response[_CORRELATION_ID.size :]
        error_code = k18_api_versions.read_error_code(body)
        if error_code == ErrorCode.UNSUPPORTED_VERSION:
            # The broker was rolled back: the client falls back by this answer (KIP-511), and the next
            # request is asked in a version that the broker has.
            self._upstream.learn(k18_api_versions.read_ranges(body, 0, (api_keys.API_VERSIONS,)))
        else:
            if error_code == ErrorCode.NONE:
                self._upstream.learn(k18_api_versions.read_ranges(body, forwarded, LEARNED_KEYS))
                self._learn_software(asked)
            body = answer_body(body, asked=header.api_version, forwarded=forwarded)
        self._events.api_versions_answered(self._connection, header, error_code)
        return frame(response_header(header), body)

    def _answer_telemetry(
        self,
        header: RequestHeader,
        request: GetTelemetrySubscriptionsRequest | PushTelemetryRequest,
        response: bytes,
        version: int,
    ) -> bytes:
        if k03_metadata.is_error(_at_body(response, version), version):
            self._events.unauthenticated_telemetry(self._connection, header)
            return frame(response_header(header), telemetry_error(header, ErrorCode.ILLEGAL_SASL_STATE))
        self._learn_cluster_id(response, version)
        self._vouched = True
        return self._decide_telemetry(header, request)

    def _decide_telemetry(
        self, header: RequestHeader, request: GetTelemetrySubscriptionsRequest | PushTelemetryRequest
    ) -> bytes:
        started = self._clock.monotonic()
        if isinstance(request, PushTelemetryRequest):
            pushed = self._telemetry.push_telemetry(
                self._connection, request, now=started, received_at_ns=self._clock.wall_ns()
            )
            self._events.push_answered(self._connection, header, pushed, self._clock.monotonic() - started)
            body = k72_push_telemetry.encode_response(pushed.response, header.api_version)
        else:
            subscribed = self._telemetry.get_telemetry_subscriptions(self._connection, request, now=started)
            self._events.subscriptions_answered(
                self._connection, header, subscribed, self._clock.monotonic() - started
            )
            body = k71_get_telemetry_subscriptions.encode_response(subscribed.response, header.api_version)
        return frame(response_header(header), body)

    def _learn_cluster_id(self, response: bytes, version: int) -> None:
        if self._broker.cluster_id is None:
            self._broker.cluster_id = k03_metadata.decode_cluster_id(_at_body(response, version), version)


def _at_body(response: bytes, version: int) -> Reader:
    """Return a reader at the body of an answer to Metadata."""
    reader = Reader(response)
    decode_response_header(reader, response_header_version(api_keys.METADATA, version))
    return reader
