"""Judges a broker, or what stands in front of one, by a scripted client.

A subscription must match the scripted client: software name ``kafka-telemetry-testkit``, an
interval of at most ten seconds. Each check is a client instance of its own.
"""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.settings.hostport import HostPort
from receiver.testkit.broker_client import Access, BrokerClient, GetAnswer, connected
from receiver.testkit.checks.check import CheckText, Severity, Verdict, failed, passed, untried
from receiver.testkit.checks.compression import codec_names
from receiver.testkit.checks.judged import Judged, Judgement
from receiver.wire import api_keys
from receiver.wire.error_codes import ErrorCode, error_name
from receiver.wire.errors import WireError
from receiver.wire.uuid import RESERVED_UUIDS, Uuid, random_uuid

_MUST, _SHOULD, _INFO = Severity.MUST, Severity.SHOULD, Severity.INFORMATIVE
_MAX_INTERVAL_S: Final = 10.0
_GZIP: Final = 1
_UNKNOWN_CODEC: Final = 99
_TELEMETRY: Final = frozenset({api_keys.GET_TELEMETRY_SUBSCRIPTIONS, api_keys.PUSH_TELEMETRY})
_NO_SUBSCRIPTION: Final = "no subscription matches software name kafka-telemetry-testkit"

_Try = Callable[[BrokerClient], Verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCheck(CheckText):
    """A check of a broker."""

    judge: _Try


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerJudgement(Judged):
    """The verdicts on one broker."""

    address: HostPort

    @property
    def title(self) -> str:
        """The address."""
        return str(self.address)

    def description(self) -> dict[str, Any]:
        """Return the address."""
        return {"address": str(self.address)}


class _NotToldError(Exception):
    """A check can't ask for its metrics."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.seen)
        self.verdict = verdict


def judge_broker(address: HostPort, access: Access = Access()) -> BrokerJudgement:  # noqa: B008 # frozen
    """Run every check on a broker, in less than a minute.

    Raises:
        OSError: It does not accept connections, or does not answer.
        EOFError: It ends the connection.
        WireError: It does not answer as a broker does.
        BrokerLoginError: It refuses the login.
    """
    with connected(address, access):
        pass
    return BrokerJudgement(
        address=address,
        judgements=tuple(Judgement(check, _verdict(check, address, access)) for check in BROKER_CHECKS),
    )


def _verdict(check: BrokerCheck, address: HostPort, access: Access) -> Verdict:
    try:
        with connected(address, access) as client:
            return check.judge(client)
    except _NotToldError as problem:
        return problem.verdict
    except (OSError, EOFError, WireError) as error:
        return failed(f"{type(error).__name__}: {error}")


def sample() -> bytes:
    """Return the metrics that the scripted client pushes."""
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.name = "org.apache.kafka.producer.connection.creation.rate"
    metric.gauge.data_points.add(as_double=1.0, time_unix_nano=time.time_ns())
    return data.SerializeToString()


def _offers(client: BrokerClient) -> Verdict:
    if {entry.api_key for entry in client.api_versions().api_keys} >= _TELEMETRY:
        return passed("both telemetry requests")
    return failed("ApiVersions lacks GetTelemetrySubscriptions or PushTelemetry")


def _unknown_version(client: BrokerClient) -> Verdict:
    answer = client.api_versions(99)
    own = [entry for entry in answer.api_keys if entry.api_key == api_keys.API_VERSIONS]
    if answer.error_code != ErrorCode.UNSUPPORTED_VERSION or not own:
        return failed(f"{error_name(answer.error_code)} with {len(answer.api_keys)} API keys")
    return passed(f"versions {own[0].min_version} to {own[0].max_version}")


def _half_identity(client: BrokerClient) -> Verdict:
    if _latest(client, api_keys.API_VERSIONS) < 5:
        return untried("the broker lacks ApiVersions version 5")
    answer = client.api_versions(5, node_id=1)
    return _expect(answer.error_code, ErrorCode.INVALID_REQUEST)


def _invalid_name(client: BrokerClient) -> Verdict:
    return _expect(client.api_versions(name="my client").error_code, ErrorCode.INVALID_REQUEST)


def _foreign_cluster(client: BrokerClient) -> Verdict:
    if _latest(client, api_keys.API_VERSIONS) < 5:
        return untried("the broker lacks ApiVersions version 5")
    answer = client.api_versions(5, cluster_id="not-this-cluster", node_id=1)
    return _expect(answer.error_code, ErrorCode.REBOOTSTRAP_REQUIRED)


def _version_1(client: BrokerClient) -> Verdict:
    if min(_latest(client, key) for key in _TELEMETRY) < 1:
        return untried("the broker lacks version 1 of the telemetry requests")
    instance = random_uuid(os.urandom)
    told = client.get(instance, version=1)
    if told.error:
        return failed(f"GetTelemetrySubscriptions was answered {error_name(told.error)}")
    if not told.subscription.metrics:
        return untried(_NO_SUBSCRIPTION)
    answer = client.push(instance, told.subscription.id, sample(), version=1)
    return _expect(answer.error, ErrorCode.NONE)


def _latest(client: BrokerClient, key: int) -> int:
    """Return the latest version of a key at the broker; -1 for none."""
    return next((e.max_version for e in client.api_versions().api_keys if e.api_key == key), -1)


def _assigns(client: BrokerClient) -> Verdict:
    answer = client.get()
    if answer.error or answer.instance_id in RESERVED_UUIDS:
        return failed(f"{error_name(answer.error)}, id {answer.instance_id.hex()}")
    return passed("a new id")


def _keeps(client: BrokerClient) -> Verdict:
    own = random_uuid(os.urandom)
    answer = client.get(own)
    if answer.error or answer.instance_id not in {own, *RESERVED_UUIDS}:
        return failed(f"{error_name(answer.error)}, id {answer.instance_id.hex()}")
    return passed("the given id" if answer.instance_id == own else "no id, which means the given one")


def _codecs(client: BrokerClient) -> Verdict:
    codecs = client.get().subscription.codecs
    if not codecs or 0 in codecs or len(set(codecs)) < len(codecs):
        return failed(f"codecs: {codec_names(codecs) or 'none'}")
    return passed(f"codecs: {codec_names(codecs)}")


def _same_for_all(client: BrokerClient) -> Verdict:
    instance = random_uuid(os.urandom)
    first = client.get(instance).subscription
    client.push(instance, first.id + 1, b"")  # so that the next request is not throttled
    second = client.get(instance)
    if second.error:
        return untried(f"the second request was answered {error_name(second.error)}")
    if first.id != second.subscription.id:
        return failed(f"subscription ids {first.id} and {second.subscription.id} for equal subscriptions")
    return passed("the same id for the same subscriptions")


def _early_get(client: BrokerClient) -> Verdict:
    told = _told(client)
    return _expect(client.get(told.instance_id).error, ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def _too_large(client: BrokerClient) -> Verdict:
    told = _told(client)
    limit = told.subscription.max_bytes
    if limit > 8 << 20:
        return untried(f"the limit is {limit} bytes")
    answer = client.push(told.instance_id, told.subscription.id, bytes(limit + 1))
    return _expect(answer.error, ErrorCode.TELEMETRY_TOO_LARGE)


def _unknown_subscription(client: BrokerClient) -> Verdict:
    told = _told(client)
    answer = client.push(told.instance_id, told.subscription.id ^ 1, sample())
    return _expect(answer.error, ErrorCode.UNKNOWN_SUBSCRIPTION_ID)


def _at_once_after_unknown(client: BrokerClient) -> Verdict:
    told = _told(client)
    client.push(told.instance_id, told.subscription.id ^ 1, sample())
    return _expect(client.get(told.instance_id).error, ErrorCode.NONE)


def _no_id(client: BrokerClient) -> Verdict:
    answer = client.push(Uuid(bytes(16)), 1, sample())
    return _expect(answer.error, ErrorCode.INVALID_REQUEST)


def _early_push(client: BrokerClient) -> Verdict:
    told = _told(client)
    client.push(told.instance_id, told.subscription.id, sample())
    answer = client.push(told.instance_id, told.subscription.id, sample())
    return _expect(answer.error, ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def _after_interval(client: BrokerClient) -> Verdict:
    told = _told(client)
    client.push(told.instance_id, told.subscription.id, sample())
    time.sleep(told.subscription.interval_s * 1.02 + 0.02)
    answer = client.push(told.instance_id, told.subscription.id, sample())
    return _expect(answer.error, ErrorCode.NONE)


def _terminating(client: BrokerClient) -> Verdict:
    told = _told(client)
    client.push(told.instance_id, told.subscription.id, sample())
    answer = client.push(told.instance_id, told.subscription.id, sample(), terminating=True)
    return _expect(answer.error, ErrorCode.NONE)


def _after_the_end(client: BrokerClient) -> Verdict:
    told = _told(client)
    client.push(told.instance_id, told.subscription.id, sample(), terminating=True)
    answer = client.push(told.instance_id, told.subscription.id, sample())
    return _expect(answer.error, ErrorCode.INVALID_REQUEST)


def _no_throttle_time(client: BrokerClient) -> Verdict:
    told = client.get()
    answer = client.push(told.instance_id, told.subscription.id, sample())
    again = client.push(told.instance_id, told.subscription.id, sample())
    if told.throttle_ms or answer.throttle_ms or again.throttle_ms:
        return failed(f"throttle times {told.throttle_ms}, {answer.throttle_ms}, {again.throttle_ms} ms")
    return passed("no throttle time")


def _told(client: BrokerClient) -> GetAnswer:
    """Ask as a new instance.

    Raises:
        _NotToldError: No subscription matches; it has the verdict.
    """
    answer = client.get()
    if answer.error:
        raise _NotToldError(failed(f"GetTelemetrySubscriptions was answered {error_name(answer.error)}"))
    if not answer.subscription.metrics:
        raise _NotToldError(untried(_NO_SUBSCRIPTION))
    if answer.subscription.interval_s > _MAX_INTERVAL_S:
        problem = f"the interval is {answer.subscription.interval_s:g} s, more than 10 s"
        raise _NotToldError(untried(problem))
    return answer


def _pushed(expected: ErrorCode, metrics: Callable[[], bytes | None], codec: int = 0) -> _Try:
    def judge(client: BrokerClient) -> Verdict:
        told = _told(client)
        answer = client.push(told.instance_id, told.subscription.id, metrics(), codec=codec)
        return _expect(answer.error, expected)

    return judge


def _compressed() -> bytes:
    return gzip.compress(sample())


def _expect(error: int | None, expected: ErrorCode) -> Verdict:
    if error is None:
        return failed(f"the connection was closed, not answered {expected.name}")
    if error != expected:
        return failed(f"{error_name(error)}, not {expected.name}")
    return passed(expected.name)


_GET: Final = "KIP-714, GetTelemetrySubscriptionsResponse"
_BROKER: Final = "KIP-714, Receiving broker behavior"
_ERRORS: Final = "KIP-714, Error handling"

# Number, severity, title, function, source, sentence.
_TABLE: Final[tuple[tuple[int, Severity, str, _Try, str, str], ...]] = (
    (1, _MUST, "offers telemetry", _offers, _BROKER, "ApiVersions lists both telemetry requests."),
    (2, _MUST, "answers an unknown ApiVersions version", _unknown_version,
     "KIP-511, ApiVersions Request/Response Handling", "UNSUPPORTED_VERSION with the range of ApiVersions."),
    (3, _MUST, "refuses a node id without cluster id", _half_identity,
     "KIP-1242, ApiVersions", "With just one of ClusterId and NodeId the request fails: INVALID_REQUEST."),
    (4, _MUST, "refuses an invalid software name", _invalid_name,
     "KIP-511, ApiVersions Request/Response Handling", "A name outside the pattern is INVALID_REQUEST."),
    (5, _MUST, "sends a client of another cluster back", _foreign_cluster,
     "KIP-1242, ApiVersions", "With another ClusterId or NodeId the answer is REBOOTSTRAP_REQUIRED."),
    (10, _MUST, "assigns a client instance id", _assigns, _GET, "Assigned if ClientInstanceId was null."),
    (11, _MUST, "accepts the id of another broker", _keeps, _BROKER, "A client keeps its id at any broker."),
    (12, _MUST, "offers codecs, and not none", _codecs, _GET, "NONE is not in the array."),
    (13, _MUST, "keeps the subscription id", _same_for_all, _GET, "Identifies the current subscription set."),
    (14, _SHOULD, "sets no throttle time", _no_throttle_time, _BROKER, "Telemetry has errors of its own."),
    (20, _MUST, "throttles an early request for subscriptions", _early_get, _BROKER, "Once an interval."),
    (21, _MUST, "throttles an early push", _early_push, _BROKER, "THROTTLING_QUOTA_EXCEEDED."),
    (22, _MUST, "accepts a push after the interval", _after_interval, _BROKER, "Once an interval."),
    (23, _MUST, "accepts a terminating push at once", _terminating,
     "KIP-714, Client termination", "One such push is not throttled."),
    (24, _MUST, "refuses a push after the terminating one", _after_the_end, _ERRORS, "INVALID_REQUEST."),
    (30, _MUST, "accepts a push", _pushed(ErrorCode.NONE, sample), _BROKER, "The metrics are exported."),
    (31, _MUST, "accepts a compressed push", _pushed(ErrorCode.NONE, _compressed, _GZIP),
     _BROKER, "The broker decompresses."),
    (32, _MUST, "accepts empty metrics", _pushed(ErrorCode.NONE, bytes), _BROKER, "Nothing is exported."),
    (33, _SHOULD, "accepts empty metrics in a codec",
     _pushed(ErrorCode.NONE, lambda: gzip.compress(b""), _GZIP), _BROKER, "Java clients send them."),
    (34, _INFO, "accepts null metrics", _pushed(ErrorCode.NONE, lambda: None),
     _BROKER, "librdkafka before 2.10.1 sends them."),
    (40, _MUST, "refuses an unknown subscription id", _unknown_subscription,
     _ERRORS, "UNKNOWN_SUBSCRIPTION_ID."),
    (41, _MUST, "answers at once after UNKNOWN_SUBSCRIPTION_ID", _at_once_after_unknown,
     _ERRORS, "The client immediately sends a GetTelemetrySubscriptionsRequest."),
    (42, _MUST, "refuses an unknown codec",
     _pushed(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, sample, _UNKNOWN_CODEC),
     _ERRORS, "UNSUPPORTED_COMPRESSION_TYPE."),
    (43, _MUST, "refuses a push that is too large", _too_large, _ERRORS, "TELEMETRY_TOO_LARGE."),
    (44, _MUST, "refuses damaged metrics",
     _pushed(ErrorCode.INVALID_RECORD, lambda: _compressed()[:-9], _GZIP),
     _ERRORS, "INVALID_RECORD: failed to decode."),
    (45, _SHOULD, "refuses what is no OTLP", _pushed(ErrorCode.INVALID_RECORD, lambda: b"\xff" * 40),
     _ERRORS, "INVALID_RECORD: failed to validate."),
    (46, _MUST, "refuses a push without an id", _no_id, _ERRORS, "INVALID_REQUEST."),
    (47, _MUST, "takes version 1 of both requests", _version_1,
     "KIP-1313, Client Instance ID", "The request header has the client instance id."),
)  # fmt: skip

#: Every check of a broker, by id.
BROKER_CHECKS: Final[tuple[BrokerCheck, ...]] = tuple(
    BrokerCheck(
        id=f"BK-{number:03}",
        title=title,
        sentence=sentence,
        source=source,
        severity=severity,
        judge=judge,
        repeat="kafka-telemetry testkit --against HOST:PORT",
    )
    for number, severity, title, judge, source, sentence in _TABLE
)
