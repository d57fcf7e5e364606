"""Takes the pushes that brokers accepted, and that came by a bridge.

They go through the same intake as those of the gateway. Who the client is, the broker says: its
identity is made of the request's context alone. The broker has answered the client already, so a
refusal here reaches the bridge's counters and the log, and no client. A push that a plugin must
store is acknowledged when it is stored, however long that takes: until then it is safe in the
broker.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from receiver.bridge.frames import BridgedPush, Hello, Result
from receiver.bridge.taken import Done
from receiver.clock import Clock
from receiver.metrics import ReceiverMetrics
from receiver.plugin import Push
from receiver.principal.sasl import UNKNOWN_PRINCIPAL
from receiver.request_log import RequestLog
from receiver.telemetry.compression import CODECS, sniff
from receiver.telemetry.control.limits import Exceeded, Limits
from receiver.telemetry.control.plugin_time import PluginTime
from receiver.telemetry.errors import InvalidInstanceError, TooLargeError
from receiver.telemetry.identity import MAX_TEXT_CHARS, UNKNOWN, Broker, ClientIdentity, Via
from receiver.telemetry.outcomes import PushOutcome, refused
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire.k72_push_telemetry import PushTelemetryRequest

#: Most connections of clients whose identity is remembered.
_MAX_IDENTITIES: Final = 16_384
_ID_DIGITS: Final = 32
#: Values of ``result`` in ``kafka_telemetry_bridge_pushes_total``.
_ACCEPTED: Final = "accepted"
_LIMITED: Final = "over_limit"
_NOT_STORED: Final = "not_stored"


class BridgePushes:
    """Takes pushes from bridges. Not thread-safe; runs on the event loop.

    Args:
        plugin_time: Charges the CPU time of plugins to peers.
        deliver: Offers an accepted push to the plugins, as for
            :class:`~receiver.core.telemetry_calls.TelemetryCalls`.
    """

    def __init__(
        self,
        *,
        telemetry: ClientTelemetry,
        limits: Limits,
        plugin_time: PluginTime,
        metrics: ReceiverMetrics,
        log: RequestLog,
        clock: Clock,
        deliver: Callable[[Push, Callable[[bool], None]], bool],
    ) -> None:
        self._telemetry = telemetry
        self._limits = limits
        self._plugin_time = plugin_time
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._deliver = deliver
        self._identities: OrderedDict[tuple[object, ...], ClientIdentity] = OrderedDict()

    def take(self, hello: Hello, push: BridgedPush, done: Done) -> None:
        """Put a push through the intake.

        ``done`` gets the result when plugins have stored it.
        """

        def stored(is_safe: bool) -> None:  # noqa: FBT001 - the host's callback
            self._metrics.bridges.push(hello.node_id, _ACCEPTED if is_safe else _NOT_STORED)
            done(Result.ACCEPTED if is_safe else Result.REFUSED)

        now, started = self._clock.monotonic(), self._clock.cpu()
        identity = self._identity(hello, push)
        request = PushTelemetryRequest(
            client_instance_id=push.client_instance_id,
            terminating=push.terminating,
            compression_type=sniff(push.metrics) if push.codec_unknown and push.metrics else CODECS["none"],
            metrics=push.metrics,
        )
        exceeded = self._limits.telemetry_request(identity, now)
        if exceeded is not None:
            outcome = refused(identity, request, exceeded)
        else:
            outcome = self._telemetry.accept(
                identity,
                request,
                now=now,
                # A broker's clock may be ahead. A push is not from the future.
                received_at_ns=min(push.received_at_ns, self._clock.wall_ns()),
                empty_push_id=_empty_push_id(hello.bridge_id, push.sequence),
                interval_ms=push.interval_ms if push.interval_ms > 0 else None,
                correlation_id=push.correlation_id,
            )
        cpu_s = self._clock.cpu() - started
        self._limits.spent(identity, cpu_s, now)
        self._metrics.push_taken(outcome, cpu_s)
        if outcome.new_series_over is not None:
            self._log.limit_exceeded(identity, outcome.new_series_over)
        if outcome.push is None:
            self._metrics.bridges.push(hello.node_id, _refusal_of(outcome))
            self._refused(identity, outcome)
            done(Result.REFUSED)
        elif not self._deliver(outcome.push, stored):
            stored(is_safe=True)

    def _identity(self, hello: Hello, push: BridgedPush) -> ClientIdentity:
        """Return who the client is: the same object for each push of a connection."""
        key = (
            hello.node_id,
            hello.cluster_id,
            push.connection_id,
            push.client_id,
            push.principal,
            push.source_address,
            push.source_port,
            push.listener,
            push.security_protocol,
            push.client_software_name,
            push.client_software_version,
        )
        known = self._identities.get(key)
        if known is not None:
            self._identities.move_to_end(key)
            return known
        identity = ClientIdentity(
            id=_connection_id(hello, push),
            listener=_cut(push.listener),
            security_protocol=_cut(push.security_protocol),
            source_address=_address(push.source_address),
            source_port=push.source_port,
            since=push.received_at_ns / 1e9,
            client_id=_cut(push.client_id),
            client_software_name=_cut(push.client_software_name) or UNKNOWN,
            client_software_version=_cut(push.client_software_version) or UNKNOWN,
            principal=push.principal or UNKNOWN_PRINCIPAL,
            broker=Broker(
                id=hello.node_id if hello.node_id >= 0 else None, cluster_id=hello.cluster_id or None
            ),
            via=Via.BRIDGE,
        )
        self._identities[key] = identity
        self._plugin_time.identified(identity)
        if len(self._identities) > _MAX_IDENTITIES:
            _, oldest = self._identities.popitem(last=False)
            self._plugin_time.closed(oldest.id)
        return identity

    def _refused(self, identity: ClientIdentity, outcome: PushOutcome) -> None:
        if outcome.exceeded is not None:
            self._log.limit_exceeded(identity, outcome.exceeded)
        else:
            self._log.warning("push of a bridge refused", identity, problem=outcome.problem)


def _refusal_of(outcome: PushOutcome) -> str:
    match outcome.refusal:
        case Exceeded():
            return _LIMITED
        case TooLargeError():
            return "too_large"
        case InvalidInstanceError():
            return "invalid_instance"
        case _:
            return "invalid"


def _connection_id(hello: Hello, push: BridgedPush) -> str:
    """Return an id of the client's connection to its broker, unique among all brokers."""
    connection = push.connection_id or f"{push.source_address}:{push.source_port} {push.client_id}"
    return f"broker-{hello.node_id}/{_cut(connection)}"


def _empty_push_id(bridge_id: bytes, sequence: int) -> str:
    """Return the id of a push without data points: the same when it is sent again."""
    return hashlib.sha256(b"bridge" + bridge_id + sequence.to_bytes(8, "big")).hexdigest()[:_ID_DIGITS]


def _cut(text: str) -> str:
    return text[:MAX_TEXT_CHARS]


@lru_cache(maxsize=8192)
def _address(text: str) -> str:
    """Return a source address as the gateway writes it.

    Java writes IPv6 in another way.
    """
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return _cut(text)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
