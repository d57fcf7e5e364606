"""Every check passes a good client, and fails the one that does exactly this wrong."""

from __future__ import annotations

import math
import re

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from receiver.testkit.checks.table import CHECKS
from receiver.testkit.judge import ClientJudgement
from receiver.testkit.kit import Kit
from receiver.wire.uuid import ONE_UUID, ZERO_UUID, Uuid
from tests.unit.testkit.scripted_client import (
    PREFIX,
    PUSH,
    ScriptedClient,
    Told,
    Value,
    verdicts,
)

OWN_ID = Uuid(bytes(range(16)))


class Kip1313(ScriptedClient):
    """A client that speaks version 1 of the telemetry requests, with an id of its own."""

    rpc_version = 1
    hello_versions = (5,)

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit)
        self.id = OWN_ID

    def header_id(self) -> Uuid | None:
        return OWN_ID


def found(judged: ClientJudgement, outcome: bool | None) -> set[str]:
    """The ids of the checks with an outcome."""
    return {j.check.id for j in judged.judgements if j.verdict.passed is outcome}


def test_a_good_client_passes_what_the_default_script_tries() -> None:
    judged = verdicts(ScriptedClient)
    assert {j.check.id: j.verdict.seen for j in judged.judgements if j.verdict.passed is False} == {}
    assert [j.verdict.seen for j in judged.judgements if re.match(r"1 (\w+ )?\w+s\b", j.verdict.seen)] == []
    assert found(judged, None) == {"TK-013", "TK-035", "TK-036", "TK-043"}


def test_a_good_client_with_kip_1313_passes() -> None:
    judged = verdicts(Kip1313)
    assert found(judged, False) == set()
    assert "TK-013" in found(judged, True)


@pytest.mark.parametrize(
    ("script", "check"),
    [("invalid-record", "TK-035"), ("invalid-request", "TK-036"), ("lost-push", "TK-043")],
)
def test_the_other_scripts_try_what_the_default_one_leaves_out(script: str, check: str) -> None:
    judged = verdicts(ScriptedClient, script=script, seconds=20)
    assert check in found(judged, True)
    assert found(judged, False) == set()


class NeverAsks(ScriptedClient):
    def get(self) -> None:
        self.stopped = True


class PushesFirst(ScriptedClient):
    def get(self) -> None:
        if self.told is None:
            self.told, asked = Told(subscription_id=1), self.told
            self.id = OWN_ID
            self.push()
            self.told = asked
            self.next_push = False
        super().get()


class AsksWithoutIdAgain(ScriptedClient):
    def get_id(self) -> Uuid:
        return ZERO_UUID

    def get(self) -> None:
        kept = self.id
        super().get()
        if kept != ZERO_UUID:
            self.id = kept


class ChangesItsId(ScriptedClient):
    def push_id(self) -> Uuid:
        return self.id if self.pushes < 2 else OWN_ID


class ForgetsItsIdWhenLost(ScriptedClient):
    def after_loss(self) -> float | None:
        self.id = OWN_ID
        return 0.2


class AnotherSubscription(ScriptedClient):
    def subscription_id(self, told: Told) -> int:
        return told.subscription_id + (self.pushes == 1)


class Malformed(ScriptedClient):
    def push(self, *, terminating: bool = False) -> None:
        if self.pushes == 1:
            self.pushes += 1
            self.send(72, 0, b"short")
            self._lost()
        else:
            super().push(terminating=terminating)


class NullMetrics(ScriptedClient):
    def metrics(self, told: Told) -> bytes | None:
        return super().metrics(told) or None


class OldApiVersions(ScriptedClient):
    hello_versions = (2,)


class BadName(ScriptedClient):
    software_name = "my client"


class NodeOnly(ScriptedClient):
    def hello(self) -> None:
        super().hello()
        if self.told is not None:
            self.send(18, 5, b"\x09scripted\x041.0\0" + b"\0\0\0\1\0")


class HeaderIdChanges(Kip1313):
    def header_id(self) -> Uuid | None:
        return Uuid(bytes(16)) if self.pushes == 2 else OWN_ID


class NoFallback(ScriptedClient):
    hello_versions = (6,)


class PushesAtOnce(ScriptedClient):
    times = 0

    def jitter(self) -> float:
        self.times += 1
        return 0.01 if self.times == 2 else super().jitter()


class NoJitter(ScriptedClient):
    def jitter(self) -> float:
        return 1.0


class TooOften(ScriptedClient):
    def interval(self, told: Told) -> float:
        return super().interval(told) * 0.8


class TooRare(ScriptedClient):
    def jitter(self) -> float:
        return super().jitter() / 2.5

    def interval(self, told: Told) -> float:
        return super().interval(told) * 2.5


class StopsAfterNewSubscription(ScriptedClient):
    gets = 0

    def get(self) -> None:
        super().get()
        self.gets += 1
        self.stopped = self.stopped or self.gets == 5

    def goodbye(self, told: Told) -> bool:
        return False


class PushesUnasked(ScriptedClient):
    def after_nothing(self, told: Told) -> tuple[float, bool]:
        return self.interval(told), True


class NeverAsksAgain(ScriptedClient):
    def after_nothing(self, told: Told) -> tuple[float, bool]:
        return 50.0, False


class Floods(ScriptedClient):
    def after_refused_get(self) -> float | None:
        for _ in range(30):
            self.get_once()
        return 1.0

    def get_once(self) -> None:
        self.send(71, 0, self.id + b"\0")


class OverflowsInterval(ScriptedClient):
    def interval(self, told: Told) -> float:
        return 0.5 if told.push_interval_ms > 1_500_000 else super().interval(told)


class PushesAgainInsteadOfAsking(ScriptedClient):
    code = 117

    def after_error(self, error: int, told: Told) -> tuple[float, bool] | None:
        again = error == self.code and not self.again
        self.again = self.again or again
        return (1.0, True) if again else super().after_error(error, told)

    again = False


class PushesAgainWithTheCodec(PushesAgainInsteadOfAsking):
    code = 76


class StopsWhenThrottled(ScriptedClient):
    def after_error(self, error: int, told: Told) -> tuple[float, bool] | None:
        return None if error == 89 else super().after_error(error, told)

    def goodbye(self, told: Told) -> bool:
        return False


class StopsWhenRefused(ScriptedClient):
    def after_refused_get(self) -> float | None:
        return None


class StopsWhenTooLarge(ScriptedClient):
    def after_error(self, error: int, told: Told) -> tuple[float, bool] | None:
        return None if error == 118 else super().after_error(error, told)

    def goodbye(self, told: Told) -> bool:
        return False


class StopsWhenLost(ScriptedClient):
    def after_loss(self) -> float | None:
        return None


class IgnoresThrottle(ScriptedClient):
    def _throttled(self, milliseconds: int) -> None:
        pass


class EndsWithoutMatches(ScriptedClient):
    def metrics(self, told: Told) -> bytes | None:
        return super().metrics(told) or self.die()

    def die(self) -> bytes:
        raise SystemExit

    def run(self, seconds: float) -> None:
        try:
            super().run(seconds)
        except SystemExit:
            assert self.connection is not None
            self.kit.close(self.now, self.connection)


class NoGoodbye(ScriptedClient):
    def goodbye(self, told: Told) -> bool:
        return False


class PushesAfterTheEnd(ScriptedClient):
    def after_goodbye(self) -> None:
        self.now += 1
        self.push()


class AsksLate(ScriptedClient):
    def after_error(self, error: int, told: Told) -> tuple[float, bool] | None:
        return (0.9, False) if error == 117 else super().after_error(error, told)


class OneCodecOnly(ScriptedClient):
    def codec(self, told: Told, data: bytes) -> int:
        return 4 if data and told.accepted_compression_types == (3,) else super().codec(told, data)


class LastCodec(ScriptedClient):
    def codec(self, told: Told, data: bytes) -> int:
        return told.accepted_compression_types[-1] if told.accepted_compression_types and data else 0


class NoCompression(ScriptedClient):
    def codec(self, told: Told, data: bytes) -> int:
        return 0


class Damaged(ScriptedClient):
    def fit(self, encoded: bytes, told: Told) -> bytes:
        return encoded[:-3] if self.pushes == 1 else super().fit(encoded, told)


class NamesCodecOfNothing(ScriptedClient):
    def codec_of_nothing(self) -> int:
        return 4


class TooLarge(ScriptedClient):
    def fit(self, encoded: bytes, told: Told) -> bytes:
        return encoded

    def codec(self, told: Told, data: bytes) -> int:
        return 0 if told.telemetry_max_bytes < 1000 else super().codec(told, data)


class EverythingAlways(ScriptedClient):
    def wants(self, told: Told, name: str) -> bool:
        return len(told.requested_metrics) > 1 or super().wants(told, name)


class NoEmptyString(ScriptedClient):
    def wants(self, told: Told, name: str) -> bool:
        return "" not in told.requested_metrics and super().wants(told, name)


class NoStar(ScriptedClient):
    def wants(self, told: Told, name: str) -> bool:
        return "*" not in told.requested_metrics and super().wants(told, name)


class LastPrefixOnly(ScriptedClient):
    def wants(self, told: Told, name: str) -> bool:
        return "*" in told.requested_metrics or name.startswith(told.requested_metrics[-2:])


class Twice(ScriptedClient):
    def edit(self, data: MetricsData) -> None:
        if self.pushes == 1:
            metrics = data.resource_metrics[0].scope_metrics[0].metrics
            metrics.add().CopyFrom(metrics[0])


class AlwaysDelta(ScriptedClient):
    def edit(self, data: MetricsData) -> None:
        for metric in metrics_of(data, "creation.total"):
            metric.sum.aggregation_temporality = 1  # type: ignore[assignment]


class TotalIsGauge(ScriptedClient):
    def values(self) -> list[Value]:
        # Not one of the KIP's metrics, whose types another check has.
        return [*super().values(), Value("record.send.total", 1.0)]


class Falls(ScriptedClient):
    def edit(self, data: MetricsData) -> None:
        for metric in metrics_of(data, "creation.total"):
            if metric.sum.aggregation_temporality == 2:
                metric.sum.data_points[0].as_double = 1000.0 - self.pushes


class NoStart(ScriptedClient):
    def start_ns(self, now_ns: int, told: Told) -> int:
        return 0


class StartMoves(ScriptedClient):
    def start_ns(self, now_ns: int, told: Told) -> int:
        return self.last_ns


class SendsNaN(ScriptedClient):
    def edit(self, data: MetricsData) -> None:
        for metric in metrics_of(data, "queue.time.avg"):
            metric.gauge.data_points[0].as_double = math.nan


class NoValue(ScriptedClient):
    def edit(self, data: MetricsData) -> None:
        for metric in metrics_of(data, "queue.time.avg"):
            metric.gauge.data_points[0].ClearField("as_double")


class OldTimes(ScriptedClient):
    def edit(self, data: MetricsData) -> None:
        for metric in metrics_of(data, "queue.time.avg"):
            metric.gauge.data_points[0].time_unix_nano //= 1000


class LacksMetrics(ScriptedClient):
    def values(self) -> list[Value]:
        return super().values()[:6]


class WrongType(ScriptedClient):
    def edit(self, data: MetricsData) -> None:
        for metric in metrics_of(data, "queue.time.avg"):
            point = metric.gauge.data_points[0]
            copy = metric.sum.data_points.add()
            copy.as_double, copy.time_unix_nano, copy.start_time_unix_nano = 1.0, point.time_unix_nano, 1
            metric.sum.aggregation_temporality = 1 if self.told and self.told.delta_temporality else 2  # type: ignore[assignment]


class UnknownName(ScriptedClient):
    def values(self) -> list[Value]:
        return [*super().values(), Value("made.up", 1.0)]


class DottedNode(ScriptedClient):
    def edit(self, data: MetricsData) -> None:
        for metric in metrics_of(data, "node.request.latency.max"):
            metric.gauge.data_points[0].attributes[0].key = "node.id"


class ProcessId(ScriptedClient):
    """As Kafka Streams 4.1."""

    def edit(self, data: MetricsData) -> None:
        for metric in metrics_of(data, "node.request.latency.max"):
            metric.gauge.data_points[0].attributes.add(key="process-id").value.string_value = "x"


def test_a_process_id_is_in_no_kip() -> None:
    assert found(verdicts(ProcessId, seconds=20), False) == {"TK-076"}


class ForeignResource(ScriptedClient):
    key = "member_id"

    def edit(self, data: MetricsData) -> None:
        for resource in data.resource_metrics:
            resource.resource.attributes.add(key=self.key).value.string_value = "x"


class OwnedLabel(ForeignResource):
    key = "principal"


class ManyResources(ScriptedClient):
    def edit(self, data: MetricsData) -> None:
        if data.resource_metrics:
            metrics = data.resource_metrics[0].scope_metrics[0].metrics
            data.resource_metrics.add().scope_metrics.add().metrics.append(metrics.pop())


class AverageOverMaximum(ScriptedClient):
    def values(self) -> list[Value]:
        return [
            *super().values()[:6],
            Value("record.queue.time.avg", 5.0),
            Value("record.queue.time.max", 4.0),
        ]


class ConstantRate(ScriptedClient):
    def values(self) -> list[Value]:
        return [Value("connection.creation.rate", 2.0), *super().values()[1:]]


class AverageOverTime(ScriptedClient):
    """As franz-go before 1.21.4, which divides by milliseconds."""

    def values(self) -> list[Value]:
        values = super().values()
        values[2:4] = [
            Value("node.request.latency.avg", 0.03, node=True),
            Value("node.request.latency.max", 30.0, node=True),
        ]
        return values


class Waitless(ScriptedClient):
    """Sends the next push before a slow answer."""

    def send(self, key: int, version: int, body: bytes) -> bytes | None:
        before = self.now
        answer = super().send(key, version, body)
        if key == 72 and self.now - before > 1 and self.connection is not None:
            late, self.now = self.now, before + 0.99
            super().send(key, version, body)
            self.now = late
        return answer


def metrics_of(data: MetricsData, end: str) -> list[Metric]:
    """The metrics whose name ends so."""
    return [
        metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name.startswith(PREFIX) and metric.name.endswith(end)
    ]


#: A client for each check, and the checks that it can't help to fail too.
BAD: dict[str, tuple[type[ScriptedClient], set[str]]] = {
    "TK-001": (NeverAsks, set()),
    "TK-002": (PushesFirst, set()),
    "TK-003": (AsksWithoutIdAgain, set()),
    "TK-004": (ChangesItsId, set()),
    "TK-005": (ForgetsItsIdWhenLost, {"TK-004", "TK-006"}),
    "TK-007": (AnotherSubscription, set()),
    "TK-008": (Malformed, set()),
    "TK-009": (NullMetrics, set()),
    "TK-010": (OldApiVersions, set()),
    "TK-011": (BadName, set()),
    "TK-012": (NodeOnly, set()),
    "TK-013": (HeaderIdChanges, {"TK-004"}),
    "TK-014": (NoFallback, set()),
    "TK-020": (PushesAtOnce, set()),
    "TK-021": (NoJitter, set()),
    "TK-022": (TooOften, set()),
    "TK-023": (TooRare, set()),
    "TK-024": (StopsAfterNewSubscription, {"TK-040"}),
    "TK-025": (PushesUnasked, set()),
    "TK-026": (NeverAsksAgain, set()),
    "TK-027": (Floods, {"TK-033"}),
    "TK-028": (OverflowsInterval, set()),
    "TK-029": (Waitless, {"TK-022"}),
    "TK-030": (PushesAgainInsteadOfAsking, set()),
    "TK-031": (PushesAgainWithTheCodec, set()),
    "TK-032": (StopsWhenThrottled, {"TK-040"}),
    "TK-033": (StopsWhenRefused, {"TK-040"}),
    "TK-034": (StopsWhenTooLarge, {"TK-040"}),
    "TK-037": (StopsWhenLost, set()),
    "TK-038": (IgnoresThrottle, set()),
    "TK-039": (EndsWithoutMatches, {"TK-040"}),
    "TK-040": (NoGoodbye, set()),
    "TK-041": (PushesAfterTheEnd, set()),
    "TK-042": (AsksLate, set()),
    "TK-050": (OneCodecOnly, set()),
    "TK-051": (LastCodec, set()),
    "TK-052": (NoCompression, set()),
    "TK-053": (Damaged, set()),
    "TK-054": (NamesCodecOfNothing, set()),
    "TK-055": (TooLarge, {"TK-051", "TK-052"}),
    "TK-060": (EverythingAlways, set()),
    "TK-061": (NoEmptyString, set()),
    "TK-062": (NoStar, set()),
    "TK-063": (LastPrefixOnly, set()),
    "TK-064": (Twice, set()),
    "TK-065": (AlwaysDelta, set()),
    "TK-066": (TotalIsGauge, set()),
    "TK-067": (Falls, set()),
    "TK-068": (NoStart, set()),
    "TK-069": (StartMoves, set()),
    "TK-070": (SendsNaN, set()),
    "TK-071": (NoValue, set()),
    "TK-072": (OldTimes, set()),
    "TK-073": (LacksMetrics, set()),
    "TK-074": (WrongType, set()),
    "TK-075": (UnknownName, set()),
    "TK-076": (DottedNode, set()),
    "TK-077": (ForeignResource, set()),
    "TK-078": (OwnedLabel, set()),
    "TK-079": (ManyResources, set()),
    "TK-080": (AverageOverMaximum, set()),
    "TK-081": (ConstantRate, set()),
    "TK-082": (AverageOverTime, set()),
}


@pytest.mark.parametrize("check", BAD)
def test_a_client_with_one_fault_fails_the_check_of_it(check: str) -> None:
    client, also = BAD[check]
    judged = verdicts(client)
    failures = {j.check.id: j.verdict.seen for j in judged.judgements if j.verdict.passed is False}
    assert set(failures) == {check} | also, failures


class IsReadLate(ScriptedClient):
    """The kit is busy when its second push comes, and says so or does not."""

    said = True

    def send(self, key: int, version: int, body: bytes) -> bytes | None:
        late = 0.3 if key == PUSH and self.pushes == 1 else 0.0
        self.now += late
        answer = super().send(key, version, body)
        self.now -= late
        if self.connection is not None and self.said:
            self.connection.requests[-1].late = late
        return answer


class IsReadLateInSilence(IsReadLate):
    said = False


def test_a_client_is_not_early_because_the_kit_was_late() -> None:
    assert found(verdicts(IsReadLate, seconds=20), False) == set()
    assert found(verdicts(IsReadLateInSilence, seconds=20), False) == {"TK-022"}


class OnceOverMaximum(AverageOverMaximum):
    """Its window moved between the average and the maximum of one push."""

    def values(self) -> list[Value]:
        return super().values() if self.pushes == 1 else ScriptedClient.values(self)


def test_one_average_over_its_maximum_is_no_proof() -> None:
    assert found(verdicts(OnceOverMaximum), False) == set()


class CompressesNothing(ScriptedClient):
    """As Java clients when no metric matched."""

    def codec(self, told: Told, data: bytes) -> int:
        return told.accepted_compression_types[0] if told.accepted_compression_types else 0


def test_compressed_empty_metrics_are_found() -> None:
    assert found(verdicts(CompressesNothing), False) == {"TK-054"}


class GoesOnAnyway(ScriptedClient):
    def after_error(self, error: int, told: Told) -> tuple[float, bool] | None:
        return 1.0, True


class ForgetsLostPushes(ScriptedClient):
    def after_loss(self) -> float | None:
        return None


class AnotherIdElsewhere(ScriptedClient):
    def push_id(self) -> Uuid:
        return self.id if self.node == 1 else ONE_UUID


OF_OTHER_SCRIPTS = {
    "TK-035": (GoesOnAnyway, "invalid-record", set[str]()),
    "TK-036": (GoesOnAnyway, "invalid-request", set[str]()),
    "TK-043": (ForgetsLostPushes, "lost-push", set[str]()),
    "TK-006": (AnotherIdElsewhere, "default", {"TK-004", "TK-005"}),
}


@pytest.mark.parametrize("check", OF_OTHER_SCRIPTS)
def test_a_client_with_a_fault_that_another_script_shows(check: str) -> None:
    client, script, also = OF_OTHER_SCRIPTS[check]
    judged = verdicts(client, script=script, seconds=40)
    failures = {j.check.id: j.verdict.seen for j in judged.judgements if j.verdict.passed is False}
    assert set(failures) == {check} | also, failures


def test_every_check_has_its_bad_client() -> None:
    assert {check.id for check in CHECKS} == set(BAD) | set(OF_OTHER_SCRIPTS)


def test_ids_are_unique_and_in_order() -> None:
    ids = [check.id for check in CHECKS]
    assert ids == sorted(set(ids))
