"""Answers the telemetry calls of sessions (KIP-714).

Applies the limits, asks the telemetry core, offers an accepted push to the plugins, counts and logs
the outcome, and encodes the answer. The answer to a push that a plugin stores on disk waits until
it is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from receiver.clock import Clock
from receiver.core.call_answer import CallAnswer, Reply
from receiver.metrics import ReceiverMetrics
from receiver.plugin import Push
from receiver.request_log import RequestLog
from receiver.session.effects import TelemetryCall
from receiver.session.messages import response_header, telemetry_error
from receiver.telemetry.control.limits import Exceeded, Limits
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.outcomes import PushOutcome, SubscriptionsOutcome
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire import k71_get_telemetry_subscriptions, k72_push_telemetry
from receiver.wire.error_codes import ErrorCode
from receiver.wire.framing import frame
from receiver.wire.headers import RequestHeader
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.k72_push_telemetry import PushTelemetryRequest

__all__ = ["TelemetryCalls"]

#: Seconds for which the answer to a push waits until the push is on disk. A slower disk must not
#: hold up the client.
_STORED_S: Final = 0.5


class TelemetryCalls:
    """Answers telemetry calls. Not thread-safe; runs on the event loop.

    Args:
        telemetry: The telemetry core.
        limits: The limits of each peer.
        metrics: The receiver's own metrics.
        log: The request log.
        clock: Source of time.
        deliver: Offers an accepted push to the plugins; must neither block nor raise. Returns
            whether the answer waits until the callback beside the push is called, which must come
            later, once, and on the event loop.
        instance_learned: Called with the identity of a client whose request has another client
            instance id than the identity that came with the call.
    """

    def __init__(
        self,
        *,
        telemetry: ClientTelemetry,
        limits: Limits,
        metrics: ReceiverMetrics,
        log: RequestLog,
        clock: Clock,
        deliver: Callable[[Push, Callable[[], None]], bool],
        instance_learned: Callable[[ClientIdentity], None],
    ) -> None:
        self._telemetry = telemetry
        self._limits = limits
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._deliver = deliver
        self._instance_learned = instance_learned
        self._overdue = 0  # pushes that were answered before they were stored, and still are not

    def call(self, identity: ClientIdentity, call: TelemetryCall, reply: Reply) -> None:
        """Decide a call of an authenticated connection, and charge the CPU time to its peers."""
        now, started = self._clock.monotonic(), self._clock.cpu()
        exceeded = self._limits.telemetry_request(identity, now)
        waiting = None
        if exceeded is not None:
            answer = self._throttle(identity, call, exceeded)
        elif isinstance(call.request, PushTelemetryRequest):
            waiting = _StoredReply(self, identity, reply)
            exceeded, answer, waits = self._push(identity, call.header, call.request, now, waiting.stored)
            if not waits:
                waiting = None
        else:
            exceeded, answer = self._get(identity, call.header, call.request, now)
        now = self._clock.monotonic()
        self._limits.spent(identity, self._clock.cpu() - started, now)
        if exceeded is None and (exceeded := self._limits.overspent(identity, now)) is not None:
            self._log.limit_exceeded(identity, exceeded)
        answered = CallAnswer(call.token, answer, exceeded is not None)
        if waiting is None:
            reply(answered)
        else:
            waiting.wait(answered)

    def answered_before_stored(self, identity: ClientIdentity) -> None:
        """Count and log a push whose answer did not wait any longer for the disk."""
        self._overdue += 1
        self._metrics.push_answered_before_stored()
        self._log.warning("push answered before it is on disk", identity)

    def stored_late(self) -> None:
        """Take back a push of :meth:`answered_before_stored`."""
        self._overdue -= 1

    @property
    def disk_is_slow(self) -> bool:
        """Whether a push is overdue on disk, so that further answers do not wait."""
        return self._overdue > 0

    def _get(
        self,
        identity: ClientIdentity,
        header: RequestHeader,
        request: GetTelemetrySubscriptionsRequest,
        now: float,
    ) -> tuple[Exceeded | None, bytes]:
        started = self._clock.cpu()
        outcome = self._telemetry.get_telemetry_subscriptions(identity, request, now=now)
        self._learn(outcome, identity)
        return outcome.exceeded, self._subscriptions(header, outcome, self._clock.cpu() - started)

    def _push(
        self,
        identity: ClientIdentity,
        header: RequestHeader,
        request: PushTelemetryRequest,
        now: float,
        stored: Callable[[], None],
    ) -> tuple[Exceeded | None, bytes, bool]:
        started = self._clock.cpu()
        outcome = self._telemetry.push_telemetry(
            identity, request, now=now, received_at_ns=self._clock.wall_ns()
        )
        self._learn(outcome, identity)
        self._report_push(header, outcome, self._clock.cpu() - started)
        waits = outcome.push is not None and self._deliver(outcome.push, stored)
        body = k72_push_telemetry.encode_response(outcome.response, header.api_version)
        return outcome.exceeded, frame(response_header(header), body), waits

    def _throttle(self, identity: ClientIdentity, call: TelemetryCall, exceeded: Exceeded) -> bytes:
        """Answer a push with an error, a get with an empty subscription to renew.

        A client whose push fails waits for its push interval. A get is not answered with an error,
        because a Java client would wait five minutes after its first one.
        """
        if isinstance(call.request, PushTelemetryRequest):
            self._log.limit_exceeded(identity, exceeded)
            return telemetry_error(call.header, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        outcome = self._telemetry.ask_again(identity, call.request, exceeded)
        return self._subscriptions(call.header, outcome, 0.0)

    def _learn(self, outcome: SubscriptionsOutcome | PushOutcome, identity: ClientIdentity) -> None:
        if outcome.identity is not identity:
            self._instance_learned(outcome.identity)

    def _subscriptions(self, header: RequestHeader, outcome: SubscriptionsOutcome, cpu_s: float) -> bytes:
        response, identity = outcome.response, outcome.identity
        self._metrics.subscriptions_answered(outcome, identity.client_software_name, cpu_s)
        if outcome.exceeded is not None:
            self._log.limit_exceeded(identity, outcome.exceeded)
        self._log.answered(
            identity,
            header,
            response.error_code,
            subscription_id=response.subscription_id,
            core_us=round(cpu_s * 1e6),
        )
        body = k71_get_telemetry_subscriptions.encode_response(response, header.api_version)
        return frame(response_header(header), body)

    def _report_push(self, header: RequestHeader, outcome: PushOutcome, cpu_s: float) -> None:
        identity = outcome.identity
        self._metrics.push_answered(outcome, identity.client_software_name, cpu_s)
        if outcome.exceeded is not None:
            self._log.limit_exceeded(identity, outcome.exceeded)
        self._log.answered(
            identity,
            header,
            outcome.response.error_code,
            bytes=outcome.wire_bytes,
            inflated_bytes=outcome.inflated_bytes,
            problem=outcome.problem,
            core_us=round(cpu_s * 1e6),
        )


class _StoredReply:
    """Replies once a push is stored, or after :data:`_STORED_S` seconds."""

    __slots__ = ("_answer", "_calls", "_identity", "_reply", "_timer")

    def __init__(self, calls: TelemetryCalls, identity: ClientIdentity, reply: Reply) -> None:
        self._calls = calls
        self._identity = identity
        self._reply = reply
        self._answer: CallAnswer | None = None
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, answer: CallAnswer) -> None:
        self._answer = answer
        if self._calls.disk_is_slow:
            self._time_out()
        else:
            self._timer = asyncio.get_running_loop().call_later(_STORED_S, self._time_out)

    def stored(self) -> None:
        if self._answer is None:
            self._calls.stored_late()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._send(self._answer)

    def _time_out(self) -> None:
        if self._answer is not None:
            self._calls.answered_before_stored(self._identity)
            self._send(self._answer)

    def _send(self, answer: CallAnswer) -> None:
        self._answer = None
        self._reply(answer)
