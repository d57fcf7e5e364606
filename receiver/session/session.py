"""One proxied connection: keeps the order of requests, and gives out turns.

All bytes pass unchanged, except those of the requests that the session reads. What becomes of such
a request is its *exchange*: one module for each kind in :mod:`receiver.session.exchanges`. The
session knows nothing of any one kind.

**Order.** Kafka answers the requests of a connection in order. Counting responses cannot reproduce
that order, because Produce with acks=0 has no response. Therefore each request that is answered
here is replaced by a *marker*: a tiny request whose response is replaced by our answer. The order
is then the broker's own.

The marker of a telemetry request is Metadata for no topics
(:mod:`receiver.session.exchanges.telemetry`). The marker of an ApiVersions request is ApiVersions
in a version that no broker has. A broker answers it on any connection. It must not be a version
that the broker has: the broker takes only one such request before SaslHandshake, so a client that
falls back from a newer version could not log in.

**The shortcut.** When nothing is in flight there is no order to keep, so no marker is needed.
Nothing is in flight when as many responses as requests have passed. A Produce with acks=0 makes the
two counts differ for good, and the connection then always uses markers. The shortcut also needs a
marker that the broker has answered on this connection, and it is never used with SASL, where a
login can expire.

**Effects.** The session does no I/O, reads no clock and calls nobody. The caller gives it bytes,
sends the bytes that it returns, and then executes its effects (:mod:`receiver.session.effects`).
Until the answer to a call comes (:meth:`Session.answered`), the caller must not read from the
broker (:attr:`Session.calling`), so the answer keeps its place. At most one call is open.

**Turns.** A client's requests must not delay other clients. In one turn of the event loop a
connection opens at most one call and reads at most 43 headers; see
:meth:`Session.bytes_in_a_turn` and :meth:`Session.response_bytes_in_a_turn`. The caller charges the
CPU time to the client (:meth:`Session.take_worked`), also before its login.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from struct import Struct
from typing import Final

from receiver.brokers.delegation_tokens import DelegationTokens
from receiver.brokers.listener_broker import ListenerBroker
from receiver.brokers.upstream import Upstream
from receiver.peers.pending_work import PendingWork
from receiver.session.call import OpenCall
from receiver.session.effects import Effect, Flooded, IdentityChanged
from receiver.session.exchange import GREATEST_INT32, Exchange, Request, SessionEnd
from receiver.session.exchanges import BY_KEY, LONGEST, watched_keys
from receiver.session.exchanges.addresses import COSTLY, KeptAddresses, NamingRequest, ReplacedAddresses
from receiver.session.exchanges.refusal import must_be_read, refuse
from receiver.session.kip1313.request_headers import RequestHeaders
from receiver.session.login import Login
from receiver.session.messages import with_correlation_id, without_tagged_fields
from receiver.session.pending import Pending, PendingRequest, PendingRequests
from receiver.telemetry.identity import MAX_TEXT_CHARS, ClientIdentity
from receiver.wire import api_keys
from receiver.wire.addressed_framing import LongResponse
from receiver.wire.broker_addresses import ReplaceAddress
from receiver.wire.errors import WireError
from receiver.wire.frame_rewriter import frame_start
from receiver.wire.headers import RequestHeader
from receiver.wire.k10_find_coordinator import CoordinatorsEdit

#: Most bytes of a watched request besides a push's metrics. A client id, a software name and a
#: software version have at most 32,767 bytes each.
_MAX_AROUND_METRICS: Final = 131_072

#: Pending requests at which the client is no longer read from. Those whose responses the session
#: decodes or writes anew are costly. A well-behaved client has one or two of them pending.
_MAX_COSTLY: Final = 16

#: The same limit on the work for all pending responses: some three milliseconds. Where addresses
#: are replaced, a client may have many Produce and Fetch requests pending, or ask for many
#: coordinators.
_MAX_WORK: Final = 512

#: Work that may be pending for all connections of a source, and the limit of each once it is. The
#: limit leaves a client that shares its source with a busy one as many requests as it needs.
_MAX_SOURCE_WORK: Final = 8_192
_MAX_WORK_OF_A_BUSY_SOURCE: Final = 32

#: Costly requests at which the connection is closed. One chunk holds thousands of small requests,
#: and all clients wait while they are answered.
_MAX_COSTLY_OUTSTANDING: Final = 32

#: The same limit for all pending requests.
_MAX_OUTSTANDING: Final = 8_192

#: So many requests or responses pass without a word to the caller, who counts their memory.
_MAX_UNCOUNTED: Final = 64

#: Bytes of requests to take in one turn while each header is read: at most 43 headers of twelve
#: bytes, which take less than a millisecond.
HEADER_BYTES_IN_A_TURN: Final = 512

#: Bytes of a response that hold its length and its correlation id.
_RESPONSE_HEAD_BYTES: Final = 8

_KEY = Struct(">h")


class Session:
    """Decides what happens to each frame of one connection, in each direction.

    It is the :class:`~receiver.session.exchange.Connection` of its exchanges.

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
        pending_work: What is pending for the client's source, over all of its connections.
        replace_address: Gives the host and port to write for a broker that a response names; None
            if addresses are kept.

    Attributes:
        requests: Rewrites the bytes from the client to the broker.
        responses: Rewrites the bytes from the broker to the client.
        identity: Who the client is, as far as the session knows. It does not have the client
            instance id of telemetry requests, because the telemetry core gives ids.
        calling: Whether a call is open: nothing may be read from the broker until it is answered.
        closing: Set when the connection has to be closed after all returned bytes have been sent.
    """

    __slots__ = (
        "_added",
        "_addresses",
        "_answered_here",
        "_call",
        "_call_bytes",
        "_client_is_gone",
        "_edit",
        "_effects",
        "_headers",
        "_marker_answered",
        "_opaque",
        "_pending",
        "_worked",
        "broker",
        "calling",
        "closing",
        "identity",
        "login",
        "max_push_bytes",
        "requests",
        "responses",
        "upstream",
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
        pending_work: PendingWork,
        replace_address: ReplaceAddress | None = None,
    ) -> None:
        self.identity = identity
        self.broker = broker
        self.upstream = upstream
        self.max_push_bytes = max_push_bytes
        self.login = Login(
            required=identity.security_protocol.startswith("SASL_"),
            principal=identity.principal,
            principal_claim=principal_claim,
            delegation_tokens=delegation_tokens,
        )
        self.closing: SessionEnd | None = None
        self._headers = RequestHeaders(upstream)
        self._addresses = KeptAddresses() if replace_address is None else ReplacedAddresses(replace_address)
        self.requests = self._addresses.requests(
            self._replace_request,
            track=self._track_in_place,
            replace_head=self._replace_head,
            header_version=self._headers.version,
            watched=watched_keys(upstream),
            longest_watched=LONGEST,
            max_frame_bytes=max_frame_bytes,
            max_watched_bytes=max_push_bytes + _MAX_AROUND_METRICS,
        )
        self.requests.reads_all_headers = True  # until the first request has decided (KIP-1313)
        self.responses = self._addresses.responses(
            self._replace_response,
            take_plain=self._take_plain,
            take_long=self._take_long,
            edit=self._edit_response,
        )
        self._pending = PendingRequests(
            random_number, pending_work, self._addresses.naming, max_held_bytes=2 * max_push_bytes
        )
        self._addresses.share(self._pending, self.requests, self.responses)
        self._client_is_gone = False
        self._effects: list[Effect] = []
        self._worked = False
        self._opaque = False
        self._marker_answered = False  # whether the broker has answered a marker on this connection
        self._answered_here = 0  # requests that were answered without a marker
        self._added = 0  # further requests that the broker got
        self._call: OpenCall | None = None
        self.calling = False
        self._call_bytes = 0
        self._edit: CoordinatorsEdit | None = None  # edits the response that arrives

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

    def answered(self, answer: bytes | None) -> bytes:
        """Take the answer to the open call, once.

        Return the bytes to send to the client now.

        Args:
            answer: The answer as a frame; None if the request is malformed. The connection has to
                be closed then.
        """
        call, self._call, self._call_bytes, self.calling = self._call, None, 0, False
        return b"" if call is None or answer is None else call.answered(answer)

    def close(self) -> None:
        """Break the reference cycles of the session, so that its memory is freed at once.

        The session must not be used afterwards.
        """
        self._pending.forget()
        del self.requests, self.responses, self._pending, self._call

    @property
    def held_bytes(self) -> int:
        """Bytes held by incomplete frames, by pending requests and by the open call."""
        return self.requests.held + self.waiting_bytes

    @property
    def waiting_bytes(self) -> int:
        """Bytes held by anything but incomplete requests."""
        held = self._pending.held_bytes + self._call_bytes
        if self.responses.awaited is not None:
            held += self.responses.held
        return held if self._edit is None else held + self._edit.held_bytes

    @property
    def congested(self) -> bool:
        """Whether too many requests are pending to read more from the client now.

        It can end with each chunk of responses.
        """
        pending = self._pending
        is_busy = pending.source.units[0] >= _MAX_SOURCE_WORK
        return (
            pending.costly >= _MAX_COSTLY
            or pending.work >= (_MAX_WORK_OF_A_BUSY_SOURCE if is_busy else _MAX_WORK)
            or pending.held_bytes > pending.max_held_bytes
        )

    def client_is_gone(self) -> None:
        """Expect no response any more, because nobody would get it.

        The client's last requests still pass. Those whose responses would name brokers pass like
        any other.
        """
        self._client_is_gone = True
        self._addresses.stop_tracking(self.requests)
        self._pending.forget()
        self.responses.awaited = None

    def take_tracked(self) -> bool:
        """Return whether the caller has to look at the session after bytes that passed.

        That is so when requests or responses have changed what the session holds, or when it is
        congested.
        """
        pending = self._pending
        if abs(pending.count - pending.counted) < _MAX_UNCOUNTED and not self.congested:
            return False
        pending.counted = pending.count
        return True

    @property
    def rewrites_addresses(self) -> bool:
        """Whether the addresses of brokers are replaced, so that passing may be costly."""
        return isinstance(self._addresses, ReplacedAddresses)

    @property
    def due(self) -> int:
        """Bytes still to come of the client's current request; 0 between two."""
        return self.requests.due

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
        """Whether the broker owes only the response to a Fetch.

        It may be waiting for records.
        """
        return self._unanswered == 1 and self.requests.last_key == api_keys.FETCH and not self.calling

    @property
    def awaiting(self) -> bool:
        """Whether an answer is pending, of the core or one of the broker that is read."""
        return self._pending.count > 0 or self.calling

    # -- what exchanges do to the connection (see the protocol) --------------------------------

    def emit(self, effect: Effect) -> None:
        """See :class:`~receiver.session.exchange.Connection`."""
        self._effects.append(effect)

    def identify(self, identity: ClientIdentity) -> None:
        """See :class:`~receiver.session.exchange.Connection`."""
        if identity != self.identity:
            self.identity = identity
            self._worked = True  # whoever keeps identities has work too
            self._effects.append(IdentityChanged(identity))

    def expect(
        self,
        exchange: Exchange,
        *,
        held_bytes: int,
        max_read_bytes: int = GREATEST_INT32,
        client_correlation_id: int = 0,
        decides: bool = False,
        further: bool = False,
    ) -> int:
        """See :class:`~receiver.session.exchange.Connection`."""
        correlation_id = self._pending.new_correlation_id()
        self._add(
            PendingRequest(
                correlation_id, exchange, held_bytes, max_read_bytes, client_correlation_id, decides
            )
        )
        self._added += further
        return correlation_id

    def open_call(self, call: OpenCall, held_bytes: int) -> None:
        """See :class:`~receiver.session.exchange.Connection`."""
        self._call = call
        self._call_bytes = held_bytes
        self.calling = True
        self._effects.append(call)

    def answer_at_once(self) -> bool:
        """See :class:`~receiver.session.exchange.Connection`; this is the shortcut."""
        may = (
            self._marker_answered
            and not self.calling
            and not self.login.can_expire
            and self._unanswered == 1
            and not self.responses.due
        )
        self._answered_here += may
        return may

    def marker_answered(self) -> None:
        """See :class:`~receiver.session.exchange.Connection`."""
        self._marker_answered = True

    def end_after_answer(self) -> None:
        """See :class:`~receiver.session.exchange.Connection`."""
        self.requests.stop_passing()

    def end(self, end: SessionEnd) -> None:
        """Close the connection after what has been returned so far."""
        self.requests.stop_passing()
        self.responses.stop_passing()
        self.closing = end

    def stop_watching(self) -> None:
        """See :class:`~receiver.session.exchange.Connection`."""
        self.requests.stop_watching()
        self._opaque = True
        if not self._pending.count:
            self.responses.stop_watching()

    # -- requests ------------------------------------------------------------------------------

    def _replace_request(self, request: bytes, length: int) -> bytes:
        self._worked = True
        self._check_outstanding()
        (api_key,) = _KEY.unpack_from(request)
        cut = length > len(request)
        if cut and api_key != api_keys.PUSH_TELEMETRY:
            raise WireError(
                expected=f"at most {len(request)} bytes of {api_keys.api_name(api_key)}",
                offset=0,
                found=str(length),
            )
        headers = self._headers
        header, reader = headers.read(request)
        if not self._admits(header):
            return refuse(without_tagged_fields(header), self, reader)
        kind = BY_KEY[api_key]
        translated = None
        if header.client_instance_id is not None and headers.is_translated(header):
            translated = without_tagged_fields(header)
            request = headers.translated(header) + request[reader.offset :]
            header, reader = headers.read(request)
        if header.tagged_fields:
            header = without_tagged_fields(header)
        if not kind.answered_here:
            self._addresses.check(header)
        client_id = headers.client_id(header)
        return kind.begin(
            Request(
                header=header,
                client_id=client_id,
                data=request,
                reader=reader,
                cut=cut,
                translated=translated,
            ),
            self,
        )

    def _replace_head(self, head: bytes, length: int) -> tuple[bytes, bool] | None:
        headers, rest = self._headers, length - len(head)
        self._worked |= not headers.binding_decided
        header, body = headers.read(head)
        # Else it depends on how the bytes were cut whether a header is read, so nothing is noted.
        if self.requests.reads_all_headers and not self._admits(header):
            if must_be_read(header):
                return None
            self._check_outstanding()
            return refuse(without_tagged_fields(header), self), False
        version = header.api_version
        if headers.is_translated(header):
            head = headers.translated(header) + head[body.offset :]
            version -= 1
        if work := self._addresses.work(header.api_key, version, body):
            self._check_outstanding()
            own = self._track(header.api_key, version, header.correlation_id, work)
            head = with_correlation_id(own, head)
        return frame_start(head, rest), True

    def _admits(self, header: RequestHeader) -> bool:
        headers, identity = self._headers, self.identity
        admitted = headers.admit(header)
        self.requests.reads_all_headers = headers.must_read_all
        client_id = headers.client_id(header)
        client_id = identity.client_id if client_id is None else client_id[:MAX_TEXT_CHARS]
        if client_id != identity.client_id or headers.bound_to != identity.client_instance_id:
            self.identify(replace(identity, client_id=client_id, client_instance_id=headers.bound_to))
        return admitted

    @property
    def extra_requests(self) -> int:
        """Requests that the broker got besides the client's, without those answered here."""
        return self._added - self._answered_here

    @property
    def _unanswered(self) -> int:
        """Number of requests that the broker got and has not answered."""
        return self.requests.frames + self._added - self._answered_here - self.responses.frames

    @property
    def _most_outstanding(self) -> int:
        """The number of requests that are too many now; 0 if there is room for one more."""
        pending = self._pending
        if pending.costly + self.calling >= _MAX_COSTLY_OUTSTANDING:
            return _MAX_COSTLY_OUTSTANDING
        return _MAX_OUTSTANDING if pending.count >= _MAX_OUTSTANDING else 0

    def _check_outstanding(self) -> None:
        if most := self._most_outstanding:
            self._effects.append(Flooded())
            raise WireError(
                expected=f"at most {most} requests for the receiver before an answer",
                offset=0,
                found="one more",
            )

    def _track(self, api_key: int, version: int, correlation_id: int, work: int = 0) -> int:
        """Expect a response that names brokers; return the correlation id for the broker."""
        if self._client_is_gone:
            return correlation_id
        forwarded = self._pending.new_correlation_id()
        self._add(self._addresses.naming(forwarded, api_key, version, correlation_id, work))
        return forwarded

    def _track_in_place(self, api_key: int, version: int, correlation_id: int) -> int | None:
        # None: the request is read, and refused.
        return None if self._most_outstanding else self._track(api_key, version, correlation_id)

    def _add(self, pending: Pending) -> None:
        self._pending.add(pending)
        if self.responses.awaited is None:
            self._await_next()

    # -- responses -----------------------------------------------------------------------------

    def _replace_response(self, response: bytes, length: int) -> bytes:
        if length > len(response):
            raise WireError(
                expected=f"a response of at most {len(response)} bytes",
                offset=0,
                found=f"{length} bytes",
            )
        pending = self._take_pending()
        self._worked |= pending.work >= COSTLY
        edit, self._edit = self._edit, None
        if edit is not None and isinstance(pending, NamingRequest):
            return pending.edited(edit, response)
        return pending.responded(response, self)

    def _edit_response(self, response: memoryview) -> bool:
        """Edit what has arrived of the first response; return whether that was work."""
        if self._edit is None:
            first = self._pending.first
            self._edit = first.edit(response) if isinstance(first, NamingRequest) else None
        if self._edit is None:
            return False
        self._worked = True
        self._edit.feed(response)
        return True

    def _take_plain(self, chunk: memoryview, begin: int, end: int) -> int | None:
        """Take the pending request of a response that passes unread; see the framing."""
        first = self._pending.first
        if first is None or not first.is_plain(chunk, begin, end):
            return None
        return self._take_pending().client_correlation_id

    def _take_long(self) -> LongResponse | int:
        return self._take_pending().long_response()

    def _take_pending(self) -> Pending:
        pending = self._pending.take()
        self._await_next()
        if self._opaque and not self._pending.count:
            self.responses.stop_watching()
        return pending

    def _await_next(self) -> None:
        first, responses = self._pending.first, self.responses
        if first is None:
            responses.awaited = None
        else:
            responses.awaited, responses.max_replaced_bytes = first.correlation_id, first.max_read_bytes
