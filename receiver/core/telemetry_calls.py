"""Answers the telemetry calls of sessions (KIP-714).

Applies the limits, asks the telemetry core, offers an accepted push to the plugins, counts and logs
the outcome, and encodes the answer. The answer to a push that a plugin must store on disk
(``spool_always``) waits until it is stored. If that takes too long, or fails, the push is not
accepted: the client gets THROTTLING_QUOTA_EXCEEDED and goes on with its next push, although the
plugin may still deliver this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import Final

from receiver.clock import Clock
from receiver.core.answering import Reply
from receiver.link.messages import Answer, Call
from receiver.metrics import ReceiverMetrics
from receiver.plugin import Push
from receiver.request_log import RequestLog
from receiver.session.exchanges.telemetry import KIND
from receiver.session.messages import answer_frame, telemetry_error
from receiver.telemetry.control.limits import Exceeded, LimitName, Limits
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.outcomes import PushOutcome, SubscriptionsOutcome
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire import k71_get_telemetry_subscriptions, k72_push_telemetry
from receiver.wire.error_codes import ErrorCode
from receiver.wire.headers import RequestHeader
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.k72_push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from receiver.wire.telemetry_requests import TelemetryRequest, decode_telemetry_request

#: Seconds for which the answer to a push waits until the push is safe. A slower disk must not hold
#: up the client.
_STORED_S: Final = 0.5


class TelemetryCalls:
    """Answers telemetry calls. Not thread-safe; runs on the event loop.

    Args:
        deliver: Offers an accepted push to the plugins; must neither block nor raise. Returns
            whether the answer waits until the callback beside the push is called, which must come
            later, once, and on the event loop.
        instance_learned: Called with the identity of a client whose request has another client
            instance id than the identity that came with the call.
    """

    keys = KIND.keys

    def __init__(
        self,
        *,
        telemetry: ClientTelemetry,
        limits: Limits,
        metrics: ReceiverMetrics,
        log: RequestLog,
        clock: Clock,
        deliver: Callable[[Push, Callable[[bool], None]], bool],
        instance_learned: Callable[[ClientIdentity], None],
    ) -> None:
        self._telemetry = telemetry
        self._limits = limits
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._deliver = deliver
        self._instance_learned = instance_learned
        self._overdue = 0  # pushes that were refused because they were not stored, and still are not

    def call(self, identity: ClientIdentity, call: Call, reply: Reply) -> None:
        """Decide a call of an authenticated connection.

        Its peers are charged the CPU time.

        Raises:
            WireError: The request is malformed.
        """
        now, started = self._clock.monotonic(), self._clock.cpu()
        header = call.header
        request = decode_telemetry_request(header, call.body, cut_beyond=call.cut_beyond)
        exceeded = self._limits.telemetry_request(identity, now)
        waiting = instance = None
        outcome: SubscriptionsOutcome | PushOutcome
        if exceeded is not None:
            frame_ = self._throttle(identity, header, request, exceeded)
        else:
            if isinstance(request, PushTelemetryRequest):
                outcome, frame_, waiting = self._push(identity, header, request, now, reply)
            else:
                outcome, frame_ = self._get(identity, header, request, now)
            exceeded = outcome.exceeded
            if outcome.identity is not identity:
                self._instance_learned(outcome.identity)
                instance = outcome.identity.client_instance_id
        now = self._clock.monotonic()
        self._limits.spent(identity, self._clock.cpu() - started, now)
        if exceeded is None:
            exceeded = self._limits.over(LimitName.CORE_TIME, identity, now)
            if exceeded is not None:
                self._log.limit_exceeded(identity, exceeded)
        answer = Answer(call.token, frame_, throttled=exceeded is not None, instance=instance)
        if waiting is None:
            reply(answer)
        else:
            waiting.wait(answer)

    def not_stored(self, identity: ClientIdentity, *, overdue: bool) -> None:
        """Count and log a push that is refused because it was not stored."""
        self._overdue += overdue
        self._metrics.push_not_stored()
        self._log.warning(
            "push refused because it is not on disk", identity, kind="slow" if overdue else "dropped"
        )

    def stored_late(self) -> None:
        """Take back an overdue push of :meth:`not_stored`."""
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
    ) -> tuple[SubscriptionsOutcome, bytes]:
        started = self._clock.cpu()
        outcome = self._telemetry.get_telemetry_subscriptions(identity, request, now=now)
        return outcome, self._subscriptions(header, outcome, self._clock.cpu() - started)

    def _push(
        self,
        identity: ClientIdentity,
        header: RequestHeader,
        request: PushTelemetryRequest,
        now: float,
        reply: Reply,
    ) -> tuple[PushOutcome, bytes, _StoredReply | None]:
        started = self._clock.cpu()
        outcome = self._telemetry.push_telemetry(
            identity, request, now=now, received_at_ns=self._clock.wall_ns(), header=header
        )
        cpu_s = self._clock.cpu() - started
        waiting = None
        if outcome.push is not None:
            report = partial(self._report_stored, header, outcome, cpu_s)
            waiting = _StoredReply(self, reply, header, report)
            if not self._deliver(outcome.push, waiting.stored):
                waiting = None
        if waiting is None:
            self._report_push(header, outcome, cpu_s)
        body = k72_push_telemetry.encode_response(outcome.response, header.api_version)
        return outcome, answer_frame(header, body), waiting

    def _report_stored(
        self, header: RequestHeader, outcome: PushOutcome, cpu_s: float, state: _Stored
    ) -> None:
        """Count and log a push once it is known whether it is stored."""
        if state is not _Stored.SAFE:
            self.not_stored(outcome.identity, overdue=state is _Stored.OVERDUE)
            refused = PushTelemetryResponse(error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            outcome = replace(outcome, response=refused, push=None, problem="it is not on disk")
        self._report_push(header, outcome, cpu_s)

    def _throttle(
        self,
        identity: ClientIdentity,
        header: RequestHeader,
        request: TelemetryRequest,
        exceeded: Exceeded,
    ) -> bytes:
        """Answer a push with an error, a get with an empty subscription to renew.

        A client whose push fails waits for its push interval. A get is not answered with an error,
        because a Java client would wait five minutes after its first one.
        """
        if isinstance(request, PushTelemetryRequest):
            self._log.limit_exceeded(identity, exceeded)
            return telemetry_error(header, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        outcome = self._telemetry.ask_again(identity, request, exceeded)
        return self._subscriptions(header, outcome, 0.0)

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
        return answer_frame(header, body)

    def _report_push(self, header: RequestHeader, outcome: PushOutcome, cpu_s: float) -> None:
        identity = outcome.identity
        self._metrics.push_answered(outcome, identity.client_software_name, cpu_s)
        for exceeded in (outcome.exceeded, outcome.new_series_over):
            if exceeded is not None:
                self._log.limit_exceeded(identity, exceeded)
        self._log.answered(
            identity,
            header,
            outcome.response.error_code,
            bytes=outcome.wire_bytes,
            inflated_bytes=outcome.inflated_bytes,
            problem=outcome.problem,
            core_us=round(cpu_s * 1e6),
        )


class _Stored(Enum):
    """What became of a push that a plugin must store."""

    SAFE = auto()
    DROPPED = auto()
    OVERDUE = auto()


class _StoredReply:
    """Replies once a push is safe.

    Refuses it when it is dropped, or after :data:`_STORED_S`.
    """

    __slots__ = ("_answer", "_calls", "_header", "_reply", "_report", "_timer")

    def __init__(
        self,
        calls: TelemetryCalls,
        reply: Reply,
        header: RequestHeader,
        report: Callable[[_Stored], None],
    ) -> None:
        self._calls = calls
        self._reply = reply
        self._header = header
        self._report = report
        self._answer: Answer | None = None
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, answer: Answer) -> None:
        self._answer = answer
        if self._calls.disk_is_slow:
            self._end(_Stored.OVERDUE)
        else:
            self._timer = asyncio.get_running_loop().call_later(_STORED_S, self._end, _Stored.OVERDUE)

    def stored(self, is_safe: bool) -> None:  # noqa: FBT001 - the host's callback
        if self._answer is None:
            self._calls.stored_late()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._end(_Stored.SAFE if is_safe else _Stored.DROPPED)

    def _end(self, state: _Stored) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        self._report(state)
        if state is not _Stored.SAFE:
            refused = telemetry_error(self._header, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            answer = Answer(answer.token, refused, answer.throttled, instance=answer.instance)
        self._reply(answer)
