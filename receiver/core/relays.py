"""The core's end of the links to the relays.

Knows the open connections of all relays (KIP-511, "Connection registry"), has their telemetry calls
answered, and enforces the limits of the whole receiver. A relay that comes or comes back tells its
connections, so nothing here outlives the core.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import structlog

from receiver.brokers.listener_broker import KnownBroker
from receiver.core.answering import Answering
from receiver.core.registry import ConnectionRegistry
from receiver.event_loop import running_loop
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
    Report,
    ReportTaken,
    Statistics,
    StatisticsRequest,
    TokenOwner,
    decode_relay_message,
    encode,
)
from receiver.link.stream import CLOSED, LinkStream
from receiver.log import RateLimitedLog
from receiver.metrics import ReceiverMetrics, replay
from receiver.peers.peers import Scope
from receiver.request_log import RequestLog, connection_fields
from receiver.settings.listeners import ListenerSettings
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.identity import Broker, ClientIdentity, port_name
from receiver.traffic.traffic import Traffic
from receiver.wire.errors import WireError

#: Seconds that a relay has to send its statistics. If it is late, its last ones are shown.
_STATISTICS_WITHIN_S: Final = 0.25

#: Most owners of delegation tokens that a new relay gets.
_MAX_TOKENS: Final = 16_384

#: Most relays whose latest report is known; more than ever run at once.
_MAX_COUNTED: Final = 1_024

#: The reason in ``kafka_telemetry_connections_refused_total``.
_REASONS: Final[Mapping[Scope, str]] = {
    "source_address": "limit_source_address",
    "address_block": "limit_source_address",
    "principal": "limit_principal",
}

_log = structlog.get_logger("receiver.core")


class Relays:
    """The relays that are linked to this core.

    Args:
        monotonic: Monotonic seconds.

    Attributes:
        expected: As given; a reload may change it.
        max_connections: The most connections by listener, on all relays together.
        registry: Who is connected to all relays.
        open: The number of connections by listener.
    """

    def __init__(
        self,
        *,
        expected: int,
        calls: Iterable[Answering],
        limits: Limits,
        metrics: ReceiverMetrics,
        log: RequestLog,
        monotonic: Callable[[], float],
        traffic: Traffic,
        on_identity: Callable[[ClientIdentity], None],
        on_close: Callable[[str], None],
        on_broker: Callable[[], None],
    ) -> None:
        self.expected = expected
        self.calls = {key: answering for answering in calls for key in answering.keys}
        self.limits = limits
        self.metrics = metrics
        self.log = log
        self.monotonic = monotonic
        self.traffic = traffic
        self.on_identity = on_identity
        self.on_close = on_close
        self._on_broker = on_broker
        self.max_connections: Mapping[str, int] = {}
        self.brokers: dict[str, KnownBroker] = {}
        self.registry = ConnectionRegistry()
        self.open: Counter[str] = Counter()
        self._warnings = RateLimitedLog("receiver.gateway")
        self.token_owners: dict[str, str] = {}
        self._links: dict[str, _RelayLink] = {}
        self._requests = itertools.count(1)
        self._counted: dict[str, int] = {}  # the latest report by relay, least recent first

    def attach(self, relay_id: str, end: socket.socket, table: int | None = None) -> None:
        """Use a new link to a relay; it replaces an earlier one.

        Args:
            table: The descriptor of the relay's table of traffic; None: there is none.
        """
        self.traffic.attach(relay_id, table)
        if (earlier := self._links.pop(relay_id, None)) is not None:
            earlier.close()
        self._links[relay_id] = _RelayLink(self, relay_id, end)

    def is_linked(self, relay_id: str) -> bool:
        """Return whether a relay has a link."""
        return relay_id in self._links

    def close(self) -> None:
        """Close all links."""
        for link in list(self._links.values()):
            link.close()
        self._links.clear()

    @property
    def connected(self) -> int:
        """The number of relays that are linked and have said so."""
        return sum(link.greeted for link in self._links.values())

    def listener_is_full(self, listener: str) -> bool:
        """Return whether a listener has more connections than it may, and log it."""
        most = self.max_connections.get(listener)
        if most is None or self.open[listener] <= most:
            return False
        problem = f"listeners[].max_connections ({most}) connections are open"
        self._warnings.warning(
            "connection refused", kind=f"limit {listener}", listener=listener, reason="limit", problem=problem
        )
        return True

    def problems(self) -> list[str]:
        """Return why the relays together do not accept clients, a line for each reason."""
        lines = dict.fromkeys(line for link in self._links.values() for line in link.problems)
        if self.connected < self.expected:
            lines[f"{self.connected} of {self.expected} relays are running"] = None
        return list(lines)

    def accept_somewhere(self, listeners: int) -> bool:
        """Whether at least one relay has no problem with one of its listeners."""
        # A relay reports one line for each listener that has a problem.
        return any(link.greeted and len(link.problems) < listeners for link in self._links.values())

    def statistics(self) -> list[tuple[str, Statistics]]:
        """Return the last statistics of each relay, with the name of its process."""
        return [
            (link.process, link.statistics) for link in self._links.values() if link.statistics is not None
        ]

    async def refresh_statistics(self) -> None:
        """Ask all relays for their statistics, and wait for those that answer in time."""
        request = next(self._requests)
        waiting = [link.ask(request) for link in self._to_send() if link.greeted]
        if waiting:
            await asyncio.wait(waiting, timeout=_STATISTICS_WITHIN_S)

    def ended(self, link: _RelayLink, reason: str) -> None:
        """Forget a link that has ended."""
        if self._links.get(link.relay_id) is link:
            del self._links[link.relay_id]
        if reason != CLOSED:  # the supervisor logs a relay that has died
            _log.warning("a relay's link ended", relay=link.relay_id, problem=reason)

    def learned_token(self, link: _RelayLink, message: TokenOwner) -> None:
        """Hand the owner of a delegation token on to the other relays."""
        if self.token_owners.get(message.token_id) == message.owner:
            return
        self.token_owners[message.token_id] = message.owner
        if len(self.token_owners) > _MAX_TOKENS:
            del self.token_owners[next(iter(self.token_owners))]
        for other in self._others(link):
            other.send(message)

    def known_broker(self, listener: str) -> KnownBroker:
        """Return what is known of the broker behind a listener."""
        return self.brokers.get(listener) or KnownBroker(broker=Broker())

    def known_nodes(self, listener: ListenerSettings) -> dict[int, KnownBroker]:
        """Return what is known of the nodes of a rewriting listener, by node id."""
        ports = {node_id: port_name(listener.name, node_id) for node_id in listener.node_ids}
        return {node_id: self.brokers[name] for node_id, name in ports.items() if name in self.brokers}

    def keep_brokers(self, listeners: Iterable[ListenerSettings]) -> None:
        """Forget the brokers of other listeners than these."""
        kept = {
            port_name(listener.name, node_id)
            for listener in listeners
            for node_id in (None, *listener.node_ids)
        }
        self.brokers = {name: known for name, known in self.brokers.items() if name in kept}

    def learned_broker(self, link: _RelayLink, message: BrokerKnown) -> None:
        """Label a listener's clients with its broker.

        Tell the other relays if it is proven.
        """
        if self.brokers.get(message.listener) == message.known:
            return
        before = self.known_broker(message.listener).broker
        self.brokers[message.listener] = message.known
        self._on_broker()
        if message.known.proven:
            for other in self._others(link):
                other.send(message)
        if message.known.broker == before:
            return
        for identity in self.registry.snapshot():
            if identity.port_name == message.listener:
                identity = replace(identity, broker=message.known.broker)
                self.registry.changed(identity)
                self.on_identity(identity)

    def report(self, link: _RelayLink, message: Report) -> None:
        """Add what a relay has used, and tell all relays which peers come near a limit."""
        now = self.monotonic()
        if message.number and message.number == self._counted.get(link.relay_id):
            link.send(ReportTaken())  # an earlier link broke before the answer arrived
            return
        try:
            levels = self.limits.add_usage(message.usage, now)
            replay(self.metrics, message.events)
        except ValueError as error:
            raise LinkError(f"a report can't be counted: {error}") from None
        self._counted.pop(link.relay_id, None)  # the latest is the last
        self._counted[link.relay_id] = message.number
        if len(self._counted) > _MAX_COUNTED:
            del self._counted[next(iter(self._counted))]
        link.send(ReportTaken(tuple(levels)))
        self.send_levels()

    def send_levels(self) -> None:
        """Tell all relays which peers come near a limit."""
        if levels := self.limits.take_levels(self.monotonic()):
            for link in self._to_send():
                link.send(Levels(tuple(levels)))

    def _others(self, link: _RelayLink) -> Iterator[_RelayLink]:
        return (other for other in self._to_send() if other is not link)

    def _to_send(self) -> tuple[_RelayLink, ...]:
        """The links that there are now. Sending ends the link of a relay that has died."""
        return tuple(self._links.values())


class _RelayLink:
    """The link to one relay process."""

    def __init__(self, relays: Relays, relay_id: str, end: socket.socket) -> None:
        loop = running_loop()
        self._relays = relays
        self.relay_id = relay_id
        self.greeted = False
        self.process = ""
        self.ids: dict[int, str] = {}
        self.problems: Collection[str] = ()
        self.statistics: Statistics | None = None
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._stream = LinkStream(
            end,
            loop.set_direct_reader,
            loop.set_direct_writer,
            on_message=self._received,
            on_end=self._ended,
        )

    def send(self, message: CoreMessage) -> None:
        self._stream.send(encode(message))

    def close(self) -> None:
        self._stream.close()
        for connection_id in self.ids.values():
            self._forget(connection_id)
        self.ids.clear()
        relays = self._relays
        relays.traffic.lost(
            self.relay_id, relays.is_linked, lambda known: relays.registry.find(known) is not None
        )
        for waiting in self._waiting.values():
            waiting.cancel()

    def ask(self, request: int) -> asyncio.Future[None]:
        """Ask for statistics; the result is set when they have come."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[request] = waiting
        waiting.add_done_callback(lambda _: self._waiting.pop(request, None))
        self.send(StatisticsRequest(request))
        return waiting

    def _ended(self, reason: str) -> None:
        self.close()
        self._relays.ended(self, reason)

    def _received(self, message: memoryview) -> None:
        received = decode_relay_message(message)
        match received:
            case Call():
                self._call(received)
            case Report():
                self._relays.report(self, received)
            case Identity():
                self._identify(received)
            case Closed(number, reason):
                if (closed := self.ids.pop(number, None)) is not None:
                    self._relays.traffic.ended(closed, reason, self._forget(closed))
            case Statistics():
                self.statistics = received
                if (waiting := self._waiting.get(received.request)) is not None and not waiting.done():
                    waiting.set_result(None)
            case Problems(lines):
                self.problems = lines
            case BrokerKnown():
                self._relays.learned_broker(self, received)
            case TokenOwner():
                self._relays.learned_token(self, received)
            case Hello():
                self._greet(received)

    def _greet(self, hello: Hello) -> None:
        if hello.version != PROTOCOL_VERSION:
            raise LinkError(f"the relay speaks version {hello.version}, the core {PROTOCOL_VERSION}")
        self.greeted = True
        self.process = hello.process
        for token_id, owner in self._relays.token_owners.items():
            self.send(TokenOwner(token_id, owner))
        for listener, known in self._relays.brokers.items():
            if known.proven:
                self.send(BrokerKnown(listener, known))

    def _identify(self, message: Identity) -> None:
        number, identity = message.number, message.identity
        if identity.id != f"{self.relay_id}-{number}":
            raise LinkError(f"connection {number} has the id of another one")
        limits, is_new = self._relays.limits, number not in self.ids
        known = self._relays.registry.find(identity.id)
        if known is not None and (known.listener, known.source_address) != (
            identity.listener,
            identity.source_address,
        ):
            raise LinkError(f"connection {number} can't change its listener or its source")
        identity = replace(identity, broker=self._relays.known_broker(identity.port_name).broker)
        exceeded = None
        if is_new:
            self.ids[number] = identity.id
            self._relays.registry.add(identity)
            exceeded = limits.admitted(identity)
            self._relays.open[identity.listener] += 1
        else:
            self._relays.registry.changed(identity)
        self._relays.traffic.opened(identity, self.relay_id, self.process, number, message.slot)
        self._relays.on_identity(identity)
        exceeded = limits.identified(identity) or exceeded
        full = is_new and self._relays.listener_is_full(identity.listener)
        if message.resumed or not (exceeded or full):
            return
        if exceeded is not None:
            self._relays.log.limit_exceeded(identity, exceeded)
        reason = "limit" if exceeded is None else _REASONS[exceeded.scope]
        self._relays.metrics.connections_refused[identity.listener, reason].inc()
        self.send(EndConnection(number, "limit"))

    def _forget(self, connection_id: str) -> ClientIdentity | None:
        identity = self._relays.registry.remove(connection_id)
        if identity is not None:
            self._relays.limits.connection_closed(identity)
            self._relays.open[identity.listener] -= 1
            self._relays.on_close(identity.id)
        return identity

    def _call(self, call: Call) -> None:
        identity = self._relays.registry.find(self.ids.get(call.number, ""))
        if identity is None:
            raise LinkError(f"a call on connection {call.number}, which is not open")
        answering = self._relays.calls.get(call.header.api_key)
        if answering is None:
            raise LinkError(f"a call of connection {call.number} that nobody answers")
        try:
            answering.call(identity, call, self.send)
        except WireError as error:
            self.send(Answer(call.token, b"", malformed=(error.expected, error.offset, error.found)))
        except Exception as error:  # a bug must end this connection only
            fields = connection_fields(identity)
            _log.error("internal error, connection closed", exc_info=error, **fields)
            self.send(EndConnection(call.number, "internal_error"))
            self.send(Answer(call.token, b""))
        self._relays.send_levels()
