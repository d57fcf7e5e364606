"""Telemetry calls: the limits of peers, CPU time, and answers that wait for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from receiver.core import telemetry_calls
from receiver.core.telemetry_calls import TelemetryCalls
from receiver.link.messages import Answer, Call
from receiver.metrics import ReceiverMetrics
from receiver.plugin import Push
from receiver.request_log import RequestLog
from receiver.settings.limits import LimitsSettings, PeerLimitsSettings
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.identity import ClientIdentity
from receiver.wire import api_keys, k71_get_telemetry_subscriptions, k72_push_telemetry
from receiver.wire.error_codes import ErrorCode
from receiver.wire.headers import RequestHeader
from receiver.wire.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.telemetry_requests import TelemetryRequest
from receiver.wire.uuid import ZERO_UUID, Uuid
from tests.unit.session.support import Clock, connection, read_push, read_subscriptions, telemetry_core

OTLP = (Path(__file__).parents[2] / "data" / "payloads" / "franz-producer-okprefix-02.bin").read_bytes()
INSTANCE = Uuid(bytes(15) + b"\x09")
ANOTHER = Uuid(bytes(15) + b"\x0a")
#: What a limit of one a second lets through at once.
BURST = 10


class Processor(Clock):
    """A clock whose CPU time advances with each reading."""

    step_s = 0.0
    used_s = 0.0

    def cpu(self) -> float:
        self.used_s += self.step_s
        return self.used_s


class Core:
    """The calls of one connection to a real core.

    Attributes:
        storing: The callbacks of pushes that wait for the disk; None if no plugin stores pushes.
    """

    def __init__(self, **peer: int) -> None:
        self.clock = Processor()
        self.limits = Limits(LimitsSettings(source_address=PeerLimitsSettings(**peer)))
        self.metrics = ReceiverMetrics(version="0")
        self.identity = connection()
        self.learned: list[ClientIdentity] = []
        self.answers: list[Answer] = []
        self.storing: list[Callable[[bool], None]] | None = None
        self._tokens = 0
        self._calls = TelemetryCalls(
            telemetry=telemetry_core(self.limits, max_push_bytes=1 << 20),
            limits=self.limits,
            metrics=self.metrics,
            log=RequestLog(self.metrics.limit_exceeded, log_requests=False),
            clock=self.clock,
            deliver=self._deliver,
            instance_learned=self.learned.append,
        )

    def _deliver(self, push: Push, stored: Callable[[bool], None]) -> bool:
        if self.storing is None:
            return False
        self.storing.append(stored)
        return True

    def call(self, request: TelemetryRequest) -> None:
        self._tokens += 1
        if isinstance(request, PushTelemetryRequest):
            key, body = api_keys.PUSH_TELEMETRY, k72_push_telemetry.encode_request(request, 0)
        else:
            key = api_keys.GET_TELEMETRY_SUBSCRIPTIONS
            body = k71_get_telemetry_subscriptions.encode_request(request, 0)
        header = RequestHeader(api_key=key, api_version=0, correlation_id=self._tokens)
        sent = Call(1, self._tokens, header, body)
        self._calls.call(self.identity, sent, self.answers.append)

    def get(self, instance: Uuid = ZERO_UUID) -> tuple[GetTelemetrySubscriptionsResponse, bool]:
        """Return the answer to a get, and whether the client is throttled."""
        self.call(GetTelemetrySubscriptionsRequest(client_instance_id=instance))
        answer = self.answers.pop()
        assert answer.token == self._tokens
        return read_subscriptions(answer.frame[4:], self._tokens), answer.throttled

    def push(self, metrics: bytes = b"x", subscription_id: int = 1) -> tuple[int, bool]:
        """Return the error code of a push, and whether the client is throttled."""
        self.call(
            PushTelemetryRequest(
                client_instance_id=INSTANCE, subscription_id=subscription_id, metrics=metrics
            )
        )
        answer = self.answers.pop()
        return read_push(answer.frame[4:], self._tokens), answer.throttled

    def counted(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"kafka_telemetry_{name}", labels) or 0.0


def test_a_get_over_the_limit_of_requests_asks_for_nothing_yet() -> None:
    core = Core(telemetry_requests_per_second=1)
    assert [core.get()[1] for _ in range(BURST)] == [False] * BURST
    answer, throttled = core.get()
    assert throttled
    # After an error, a Java client that has no subscription yet would wait for five minutes.
    assert answer.error_code == ErrorCode.NONE
    assert answer.requested_metrics == ()
    assert answer.push_interval_ms >= 1_000


def test_an_instance_id_is_told_when_it_is_new_for_the_connection() -> None:
    core = Core()
    core.get(INSTANCE)
    (learned,) = core.learned
    assert learned == replace(core.identity, client_instance_id=INSTANCE)
    core.identity = learned
    core.get(INSTANCE)
    core.push()
    assert core.learned == [learned]
    core.get()
    assert len(core.learned) == 2


def test_a_throttled_call_tells_no_instance_id() -> None:
    core = Core(new_instances_per_minute=1)
    core.get(INSTANCE)
    core.get(ANOTHER)
    assert [learned.client_instance_id for learned in core.learned] == [INSTANCE]


def test_a_push_over_the_limit_of_requests_is_an_error() -> None:
    core = Core(telemetry_requests_per_second=1)
    for _ in range(BURST):
        core.get()
    assert core.push() == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, True)
    assert core.counted("limit_exceeded_total", limit="telemetry_requests", scope="source_address") == 1


def test_only_cpu_time_is_charged() -> None:
    """On a busy machine a decision takes much wall time."""
    core = Core(core_ms_per_second=10)
    for _ in range(50):
        core.clock.now += 10.0
        instance = Uuid(core.clock.now.hex().encode()[:16].ljust(16, b"-"))
        answer, throttled = core.get(instance)
        assert (answer.error_code, throttled) == (0, False)


def test_calls_are_charged_one_by_one() -> None:
    core = Core(core_ms_per_second=10)
    core.get(INSTANCE)
    core.clock.step_s = 1.0
    error, throttled = core.push()
    assert error != ErrorCode.THROTTLING_QUOTA_EXCEEDED, "it was within the limit before"
    assert throttled
    assert core.push() == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, True)


def test_each_answer_counts_the_cpu_time_of_its_decision() -> None:
    core = Core()
    core.clock.step_s = 2**-10
    core.get(INSTANCE)
    core.push()
    assert core.counted("get_seconds_sum") == 2**-10
    assert core.counted("push_seconds_sum") == 2**-10


class Disk:
    """Pushes of one client after the other that wait until the test says that they are stored."""

    def __init__(self) -> None:
        self.core = Core()
        self.storing = self.core.storing = []
        self._instances = 0

    def push(self) -> None:
        self._instances += 1
        instance = Uuid(bytes(15) + bytes([100 + self._instances]))
        subscription_id = self.core.get(instance)[0].subscription_id
        self.core.call(
            PushTelemetryRequest(client_instance_id=instance, subscription_id=subscription_id, metrics=OTLP)
        )

    @property
    def answered(self) -> int:
        return len(self.core.answers)

    @property
    def errors(self) -> list[int]:
        return [read_push(answer.frame[4:], answer.token) for answer in self.core.answers]


def test_an_answer_waits_until_the_push_is_stored() -> None:
    async def main() -> None:
        disk = Disk()
        disk.push()
        assert disk.answered == 0
        disk.storing[0](True)
        assert disk.errors == [ErrorCode.NONE]
        assert disk.core.counted("pushes_not_stored_total") == 0

    asyncio.run(main())


def test_a_push_that_is_dropped_is_refused() -> None:
    async def main() -> None:
        disk = Disk()
        disk.push()
        disk.storing[0](False)
        assert disk.errors == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        assert disk.core.counted("pushes_not_stored_total") == 1
        disk.push()
        disk.storing[1](True)
        assert disk.errors[1:] == [ErrorCode.NONE]

    asyncio.run(main())


def test_while_the_disk_is_slow_pushes_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_calls, "_STORED_S", 0.0)

    async def main() -> None:
        disk = Disk()
        disk.push()
        while not disk.answered:  # noqa: ASYNC110 # nobody tells the test
            await asyncio.sleep(0)
        monkeypatch.setattr(telemetry_calls, "_STORED_S", 3600.0)
        disk.push()
        assert disk.errors == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2
        assert disk.core.counted("pushes_not_stored_total") == 2
        for stored in disk.storing:
            stored(True)
        assert disk.answered == 2
        disk.push()
        assert disk.answered == 2, "the disk is well again"
        disk.storing[-1](True)
        assert disk.errors[2:] == [ErrorCode.NONE]
        assert disk.core.counted("pushes_not_stored_total") == 2

    asyncio.run(main())
