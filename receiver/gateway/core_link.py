"""The relay's end of the link to the core.

Tells the core which connections are open and what they used, passes telemetry calls on, and hands
their answers back. The traffic of clients never waits for the core: without a core, or when it does
not answer in time, a call is answered THROTTLING_QUOTA_EXCEEDED, from which clients recover by
themselves (KIP-714, "Throttling and rate-limiting"). A new core learns everything again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from receiver.brokers.delegation_tokens import DelegationTokens
from receiver.brokers.listener_broker import KnownBroker, ListenerBroker
from receiver.clock import Clock
from receiver.event_loop import running_loop
from receiver.link.messages import (
    PROTOCOL_VERSION,
    Answer,
    BrokerKnown,
    Call,
    Closed,
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
    encode,
)
from receiver.link.stream import LinkStream
from receiver.metrics import RelayMetrics
from receiver.session.call import OpenCall
from receiver.telemetry.control.limits import Level, Limits
from receiver.telemetry.identity import ClientIdentity
from receiver.traffic.table import MAX_SLOTS, RelayTable, Slot

#: Seconds that the core has to count a report.
_COUNTED_WITHIN_S: Final = 0.8

#: Seconds that a call waits at most for the answers to those before it. A call leaves at once while
#: the core has no other one of this relay, and else with those behind it when the core has answered
#: (as in Nagle's algorithm, RFC 896). So the core is woken once for many calls when it is busy, and
#: an answer that waits for a disk holds up no other call.
_CALLS_WINDOW_S: Final = 0.002

#: Bytes that wait for the core at which further calls are not passed on.
_MAX_CALL_BACKLOG_BYTES: Final = 8_388_608

#: Seconds between two reports of what was used and counted.
_REPORT_EVERY_S: Final = 0.1

#: Seconds after which a relay asks for another link.
_ASK_AFTER_S: Final = 0.5

#: Receives the answer to a call, once: before :meth:`CoreLink.call` returns or later.
Reply = Callable[[Answer], None]

_log = structlog.get_logger("receiver.gateway")


class Linked(Protocol):
    """An open connection, which the core may end."""

    @property
    def slot(self) -> Slot:
        """Its counters."""

    def ended_by_core(self, reason: str) -> None:
        """Close the connection for the reason of an EndConnection."""


@dataclass(slots=True)
class _Open:
    identity: ClientIdentity
    connection: Linked


@dataclass(frozen=True, slots=True)
class _Ended:
    """A closed connection whose traffic the core has perhaps not settled."""

    identity: ClientIdentity
    slot: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Pending:
    """A call without an answer."""

    number: int  # of the connection
    deadline: float
    call: OpenCall
    reply: Reply


class CoreLink:
    """Connects this relay with the core process.

    Args:
        process: The name of this relay.
        brokers: Returns what is known of the broker behind each listener, by the listener's name.
        problems: Returns why the relay does not accept clients, a line for each listener.
        statistics: Returns the statistics for the request of this number.
        count_traffic: Counts the bytes since the last call in the metrics.
    """

    def __init__(
        self,
        relay_id: str,
        *,
        process: str,
        brokers: Callable[[], Mapping[str, ListenerBroker]],
        limits: Limits,
        metrics: RelayMetrics,
        tokens: DelegationTokens,
        clock: Clock,
        problems: Callable[[], Sequence[str]],
        traffic: RelayTable,
        statistics: Callable[[int], Statistics],
        count_traffic: Callable[[], None],
        ask_for_link: Callable[[], None],
    ) -> None:
        self._relay_id = relay_id
        self._process = process
        self._brokers = brokers
        self._limits = limits
        self._metrics = metrics
        self._tokens = tokens
        self._clock = clock
        self._problems = problems
        self._traffic = traffic
        self._statistics = statistics
        self._count_traffic = count_traffic
        self._ask_for_link = ask_for_link
        self._connections = 0
        self._open: dict[int, _Open] = {}
        self._ended_connections: dict[int, _Ended] = {}  # by number, the earliest first
        self._calls = 0
        self._pending: dict[int, _Pending] = {}
        self._timer: asyncio.TimerHandle | None = None  # of the next deadline
        self._prompt = 0  # calls without an answer that wait for nothing but the core
        self._held = 0  # those that have not left, or left with another message
        self._calls_timer: asyncio.TimerHandle | None = None
        self._report_timer: asyncio.TimerHandle | None = None
        self._stream: LinkStream | None = None
        self._late: set[int] = set()  # tokens of calls that the core has not answered in time
        self._reports = 0
        self._untaken: Report | None = None  # sent, and perhaps not counted
        self._untaken_since = 0.0
        self._statistics_due: int | None = None
        self._sent_problems: tuple[str, ...] | None = None
        self._sent_brokers: dict[str, KnownBroker] = {}
        tokens.on_learned = self._learned_token
        metrics.on_event = self.report_soon

    # -- the link ----------------------------------------------------------------------------------

    def attach(self, end: socket.socket) -> None:
        """Use a new link from now on; the link owns the socket."""
        self._detach()
        loop = running_loop()
        self._stream = LinkStream(
            end,
            loop.set_direct_reader,
            loop.set_direct_writer,
            on_message=self._received,
            on_end=self._ended,
        )
        self._late.clear()
        self._statistics_due = None
        self._limits.alone = False
        self._untaken_since = self._clock.monotonic()
        self._sent_problems = None
        self._sent_brokers.clear()
        self._send(Hello(PROTOCOL_VERSION, self._process))
        self._forget_settled()
        for number, ended in self._ended_connections.items():
            self._send(Identity(number, ended.identity, resumed=True, slot=ended.slot))
            self._send(Closed(number, ended.reason))
        for number, entry in self._open.items():
            self._identify(number, entry, resumed=True)
        for token_id, owner in self._tokens.owners():
            self._send(TokenOwner(token_id, owner))
        self.problems_changed()
        if self._untaken is not None:
            self._send(self._untaken)
        self.report_soon()

    def close(self) -> None:
        """Send the last report and close the link."""
        self._count_traffic()
        self._untaken = None  # this link has it, and there is no other one after it
        self._report()
        self._detach()

    def _detach(self) -> None:
        stream, self._stream = self._stream, None
        self._limits.alone = True
        if stream is not None:
            stream.close()
        self._fail_overdue(float("inf"))
        self._late.clear()

    def _ended(self, reason: str) -> None:
        event = "the link to the core ended, telemetry is throttled until it is back"
        _log.warning(event, once="link", problem=reason)
        self._detach()
        # Later, because a core that refuses the link would be asked in a loop.
        running_loop().call_later(_ASK_AFTER_S, self._ask_if_needed)

    def _ask_if_needed(self) -> None:
        if self._stream is None:
            self._ask_for_link()

    def _send(self, message: RelayMessage) -> None:
        if self._stream is not None:
            self._stream.send(encode(message))

    # -- what the core has to know -----------------------------------------------------------------

    def new_connection(self) -> tuple[int, str]:
        """Return the number of a new connection on this relay, and its id in the receiver."""
        self._connections += 1
        return self._connections, f"{self._relay_id}-{self._connections}"

    def opened(self, number: int, identity: ClientIdentity, connection: Linked) -> None:
        """Report an open connection."""
        self._open[number] = entry = _Open(identity, connection)
        self._identify(number, entry)

    def changed(self, number: int, identity: ClientIdentity) -> None:
        """Report that the identity of an open connection has changed."""
        if (entry := self._open.get(number)) is not None:
            entry.identity = identity
            self._identify(number, entry)

    def _identify(self, number: int, entry: _Open, *, resumed: bool = False) -> None:
        self._send(Identity(number, entry.identity, resumed=resumed, slot=entry.connection.slot.index))

    def closed(self, number: int, reason: str) -> None:
        """Report that a connection has closed."""
        entry = self._open.pop(number, None)
        if entry is None:
            return
        slot = entry.connection.slot
        self._traffic.close(slot)
        self._send(Closed(number, reason))
        if slot.index >= 0:
            self._forget_settled()
            self._ended_connections[number] = _Ended(entry.identity, slot.index, reason)

    def _forget_settled(self) -> None:
        """Forget closed connections whose traffic is settled, the earliest first."""
        while self._ended_connections:
            number, ended = next(iter(self._ended_connections.items()))
            if len(self._ended_connections) < MAX_SLOTS and not self._traffic.is_settled(ended.slot, number):
                return
            del self._ended_connections[number]

    def problems_changed(self) -> None:
        """Report why the relay accepts no clients, and its brokers, if that changed."""
        lines = tuple(self._problems())
        if lines != self._sent_problems:
            self._sent_problems = lines
            self._send(Problems(lines))
        for listener, broker in self._brokers().items():
            if self._sent_brokers.get(listener) != broker.known:
                self._sent_brokers[listener] = broker.known
                self._send(BrokerKnown(listener, broker.known))

    def report_soon(self) -> None:
        """Report what was used and counted, within a tenth of a second.

        At once if it is urgent.
        """
        if self._stream is None:
            return
        if self._report_timer is None:
            self._report_timer = running_loop().call_later(_REPORT_EVERY_S, self._report)
        if self._limits.urgent:
            self._report()

    def _report(self) -> None:
        if self._report_timer is not None:
            self._report_timer.cancel()
            self._report_timer = None
        if self._stream is None:
            return
        now = self._clock.monotonic()
        if self._untaken is not None:  # the next one leaves when the core has counted this one
            if now - self._untaken_since > _COUNTED_WITHIN_S and not self._limits.alone:
                self._limits.alone = True
            return
        usage, events = self._limits.take_usage(), self._metrics.take()
        if usage or events:
            self._reports += 1
            self._untaken = Report(tuple(usage), tuple(events), self._reports)
            self._untaken_since = now
            self._send(self._untaken)

    def _send_statistics(self, request: int) -> None:
        """Answer a request for statistics, after a report of everything up to now."""
        if self._untaken is not None:
            self._statistics_due = request
            return
        self._statistics_due = None
        self._count_traffic()
        self._report()
        self._send(self._statistics(request))

    def _learned_token(self, token_id: str, owner: str) -> None:
        self._send(TokenOwner(token_id, owner))

    # -- calls -------------------------------------------------------------------------------------

    def call(self, number: int, call: OpenCall, reply: Reply) -> None:
        """Have the core answer a call.

        ``reply`` gets the answer, or the one that stands for it.
        """
        stream, patient = self._stream, call.waits_for_others
        # A core that is late gets no further call until it has answered those that it has.
        late = self._late and not patient
        now = self._clock.monotonic()
        pending = _Pending(number, now + call.answer_within_s, call, reply)
        if stream is None or late or stream.backlog_bytes > _MAX_CALL_BACKLOG_BYTES:
            self._answer(pending, None)
            return
        self._calls += 1
        token = self._calls
        self._pending[token] = pending
        if self._timer is None:
            self._check_after(call.answer_within_s)
        stream.hold(encode(Call(number, token, call.header, call.body, call.cut_beyond)))
        if not patient:
            self._prompt += 1
            self._held += 1
        if patient or self._prompt == self._held:
            self._send_calls()
        elif self._calls_timer is None:
            self._calls_timer = running_loop().call_later(_CALLS_WINDOW_S, self._send_calls)

    def _answer(self, pending: _Pending, answer: Answer | None) -> None:
        """Hand over the answer to a call; None: the core does not answer.

        A connection whose answer fails ends, because the link belongs to all of them.
        """
        if answer is None:
            self._metrics.core_unavailable()
        try:
            pending.reply(Answer(0, pending.call.unanswered()) if answer is None else answer)
        except Exception:
            _log.exception("internal error, a call to the core is not answered", connection=pending.number)
            if (one := self._open.get(pending.number)) is not None:
                one.connection.ended_by_core("internal_error")

    def _send_calls(self) -> None:
        self._held = 0
        if self._calls_timer is not None:
            self._calls_timer.cancel()
            self._calls_timer = None
        if self._stream is not None:
            self._stream.flush()

    def _check_after(self, seconds: float) -> None:
        self._timer = running_loop().call_later(seconds, self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        if self._fail_overdue(now):
            _log.warning("the core does not answer, its calls are answered without it", once="core")
        if self._pending:
            deadline = min(pending.deadline for pending in self._pending.values())
            self._check_after(max(0.0, deadline - now))

    def _fail_overdue(self, now: float) -> bool:
        """Answer the calls whose deadline has passed; return whether there were any."""
        overdue = [token for token, pending in self._pending.items() if pending.deadline <= now]
        for token in overdue:
            pending = self._pending.pop(token)
            if not pending.call.waits_for_others:
                self._prompt -= 1
                self._late.add(token)
            self._answer(pending, None)
        return bool(overdue)

    # -- what the core sends -----------------------------------------------------------------------

    def _raise_levels(self, levels: Iterable[Level]) -> None:
        try:
            self._limits.raise_levels(levels)
        except ValueError as error:
            raise LinkError(f"levels can't be used: {error}") from None

    def _received(self, message: memoryview) -> None:
        received = decode_core_message(message)
        match received:
            case Answer():
                pending = self._pending.pop(received.token, None)
                if pending is None:
                    self._late.discard(received.token)
                    return
                self._prompt -= not pending.call.waits_for_others
                self._answer(pending, received)
                if self._held and self._prompt == self._held:
                    self._send_calls()
            case ReportTaken(levels):
                self._untaken = None
                self._limits.alone = False
                self._raise_levels(levels)
                self._limits.usage_counted()
                if self._statistics_due is None:
                    self.report_soon()
                else:
                    self._send_statistics(self._statistics_due)
            case Levels(levels):
                self._raise_levels(levels)
            case StatisticsRequest(request):
                self._send_statistics(request)
            case EndConnection(number, reason):
                if (one := self._open.get(number)) is not None:
                    one.connection.ended_by_core(reason)
            case TokenOwner(token_id, owner):
                self._tokens.keep(token_id, owner)
            case BrokerKnown(listener, known):
                if (broker := self._brokers().get(listener)) is not None:
                    broker.adopt(known)
            case _:
                raise LinkError(f"unexpected message {type(received).__name__}")
