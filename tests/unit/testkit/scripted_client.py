"""A scripted client of the test kit, in simulated time and without sockets.

It does everything right. A test overrides one method to get a client that does one thing wrong.
"""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import cramjam
import lz4.frame
import zstandard
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from receiver.testkit.data_path import Node
from receiver.testkit.judge import ClientJudgement, judge
from receiver.testkit.kit import Kit
from receiver.testkit.recording import KIT, Connection
from receiver.testkit.script import Script, load_script
from receiver.wire import api_keys, k18_api_versions, k71_get_telemetry_subscriptions, k72_push_telemetry
from receiver.wire.headers import RequestHeader, at_body, encode_request_header
from receiver.wire.k18_api_versions import ApiVersionsRequest
from receiver.wire.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import ZERO_UUID, Uuid

CLUSTER = "testkit-cluster-AAAAAA"
NODES = (Node(1, "127.0.0.1", 9091), Node(2, "127.0.0.1", 9092))
#: The time at simulated second 0, in nanoseconds since the epoch.
WALL_NS = 1_800_000_000 * 10**9
PREFIX = "org.apache.kafka.producer."

GET, PUSH = api_keys.GET_TELEMETRY_SUBSCRIPTIONS, api_keys.PUSH_TELEMETRY

Told = GetTelemetrySubscriptionsResponse


@dataclass(frozen=True)
class Value:
    """One metric of the client."""

    name: str
    value: float
    total: bool = False
    node: bool = False


class ScriptedClient:
    """A producer without faults.

    Args:
        kit: The kit.
        now: When it starts, in simulated seconds.
    """

    software_name = "scripted"
    software_version = "1.0"
    client_id = "scripted-client"
    rpc_version = 0
    #: ApiVersions of a newer Kafka comes first.
    hello_versions: tuple[int, ...] = (6, 5)

    def __init__(self, kit: Kit, now: float = 0.0) -> None:
        self.kit = kit
        self.now = now
        self.id = ZERO_UUID
        self.told: Told | None = None
        self.stopped = False
        self.connection: Connection | None = None
        self.node = 1
        self.next_at = now
        self.next_push: bool = False
        self.last_push = now
        self.pushes = 0
        self.quiet_until = now
        self.last_ns = WALL_NS
        self._correlations = itertools.count()
        self._jitter = itertools.cycle((0.7, 1.2, 0.9, 1.4, 0.55))

    # What bad clients do otherwise.

    def jitter(self) -> float:
        return next(self._jitter)

    def interval(self, told: Told) -> float:
        return told.push_interval_ms / 1000

    def after_nothing(self, told: Told) -> tuple[float, bool]:
        """Seconds until the request after a subscription without metrics; whether it pushes."""
        return self.interval(told), False

    def after_error(self, error: int, told: Told) -> tuple[float, bool] | None:
        """Seconds until the request after a refused push, and whether it pushes; None to stop."""
        if error in {117, 76}:
            return 0.01, False
        return None if error in {42, 87, 35} else (self.interval(told), True)

    def after_refused_get(self) -> float | None:
        return 1.0

    def after_loss(self) -> float | None:
        """Seconds until a lost connection is replaced; None to stop."""
        return 0.2

    def get_id(self) -> Uuid:
        return self.id

    def push_id(self) -> Uuid:
        return self.id

    def header_id(self) -> Uuid | None:
        return None

    def subscription_id(self, told: Told) -> int:
        return told.subscription_id

    def codec(self, told: Told, data: bytes) -> int:
        return told.accepted_compression_types[0] if told.accepted_compression_types and data else 0

    def wants(self, told: Told, name: str) -> bool:
        return "*" in told.requested_metrics or name.startswith(told.requested_metrics)

    def values(self) -> list[Value]:
        """The metrics, whether requested or not."""
        n = self.pushes
        return [
            Value("connection.creation.rate", 2 / (1 + n)),
            Value(
                "connection.creation.total",
                1.0 if self.told and self.told.delta_temporality else 1.0 + n,
                total=True,
            ),
            Value("node.request.latency.avg", 2.0, node=True),
            Value("node.request.latency.max", 3.0, node=True),
            Value("produce.throttle.time.avg", 0.0),
            Value("produce.throttle.time.max", 0.0),
            Value("record.queue.time.avg", 1.0),
            Value("record.queue.time.max", 4.0),
        ]

    def edit(self, data: MetricsData) -> None:
        """Change the metrics before they are sent."""

    def metrics(self, told: Told) -> bytes | None:
        """The metrics of a push without compression."""
        wanted = [v for v in self.values() if self.wants(told, PREFIX + v.name)]
        data = MetricsData()
        if wanted:
            metrics = data.resource_metrics.add().scope_metrics.add().metrics
            metrics.extend(self._metric(value, told) for value in wanted)
        self.edit(data)
        return data.SerializeToString()

    def fit(self, encoded: bytes, told: Told) -> bytes:
        """Reduce a push to the byte limit."""
        return encoded if len(encoded) <= told.telemetry_max_bytes else b""

    def goodbye(self, told: Told) -> bool:
        """Whether to end with a terminating push."""
        return not self.stopped

    def after_goodbye(self) -> None:
        """What comes after the terminating push."""

    def hello(self) -> None:
        """Send ApiVersions on a new connection."""
        for version in self.hello_versions:
            known = self.told is not None
            request = ApiVersionsRequest(
                client_software_name=self.software_name,
                client_software_version=self.software_version,
                cluster_id=CLUSTER if known else None,
                node_id=self.node if known else -1,
            )
            body = k18_api_versions.encode_request(request, min(version, 5))
            answer = self.send(api_keys.API_VERSIONS, version, body)
            if answer is not None and answer[4:6] == b"\0\0":
                return

    # The client.

    def send(self, key: int, version: int, body: bytes) -> bytes | None:
        """Send a request and wait for the answer; None if the connection ended instead."""
        assert self.connection is not None
        header = RequestHeader(key, version, next(self._correlations), self.client_id, self.header_id())
        frame = encode_request_header(header) + body
        reply = self.kit.take(self.now, self.connection, frame, NODES)
        self.now += 0.002 + reply.delay_s
        if reply.data is not None and reply.request is not None:
            reply.request.answered = self.now
        if reply.close:
            self.kit.close(self.now, self.connection, KIT)
            self.connection = None
        return reply.data

    def run(self, seconds: float) -> None:
        """Live for so many simulated seconds, then close."""
        end = self.now + seconds
        while not self.stopped:
            at = max(self.now, self.next_at, self.quiet_until)
            if at >= end:
                break
            self.now = at
            if self.connection is None:
                self.connect()
            if self.next_push:
                self.push()
            else:
                self.get()
        self.now = max(self.now, end)
        self.close()

    def connect(self) -> None:
        self.connection = self.kit.open(self.now, self.node)
        self.hello()

    def get(self) -> None:
        body = k71_get_telemetry_subscriptions.encode_request(
            GetTelemetrySubscriptionsRequest(client_instance_id=self.get_id()), self.rpc_version
        )
        answer = self.send(GET, self.rpc_version, body)
        if answer is None:
            self._lost()
            return
        told = k71_get_telemetry_subscriptions.decode_response(
            at_body(answer, GET, self.rpc_version), self.rpc_version
        )
        self._throttled(told.throttle_time_ms)
        if told.error_code:
            wait = self.after_refused_get()
            self._then(wait, push=False)
            return
        self.told = told
        self.id = told.client_instance_id if self.id == ZERO_UUID else self.id
        if told.requested_metrics:
            self._then(self.jitter() * self.interval(told), push=True)
        else:
            wait, push = self.after_nothing(told)
            self._then(wait, push=push)
        self._check_connection()

    def push(self, *, terminating: bool = False) -> None:
        assert self.told is not None
        told, began = self.told, self.now
        metrics = self.metrics(told)
        codec = self.codec(told, metrics or b"")
        encoded = None if metrics is None else self.fit(compressed(codec, metrics), told)
        request = PushTelemetryRequest(
            client_instance_id=self.push_id(),
            subscription_id=self.subscription_id(told),
            terminating=terminating,
            compression_type=codec if encoded else self.codec_of_nothing(),
            metrics=encoded,
        )
        body = k72_push_telemetry.encode_request(request, self.rpc_version)
        answer = self.send(PUSH, self.rpc_version, body)
        self.pushes += 1
        if answer is None:
            self._lost()
            return
        response = k72_push_telemetry.decode_response(
            at_body(answer, PUSH, self.rpc_version), self.rpc_version
        )
        self._throttled(response.throttle_time_ms)
        if response.error_code:
            after = self.after_error(response.error_code, told)
            if after is None:
                self.stopped = True
            else:
                self._then(after[0], push=after[1])
        else:
            self._then(began + self.interval(told) - self.now, push=True)
        self._check_connection()

    def codec_of_nothing(self) -> int:
        return 0

    def close(self) -> None:
        if self.told is not None and self.connection is not None and self.goodbye(self.told):
            self.push(terminating=True)
            self.after_goodbye()
        if self.connection is not None:
            self.kit.close(self.now, self.connection)

    def _throttled(self, milliseconds: int) -> None:
        self.quiet_until = self.now + milliseconds / 1000

    def _then(self, wait: float | None, *, push: bool) -> None:
        if wait is None:
            self.stopped = True
            return
        self.next_at, self.next_push = self.now + wait, push

    def _check_connection(self) -> None:
        if self.connection is None and not self.stopped:
            self._lost()

    def _lost(self) -> None:
        wait = self.after_loss()
        if wait is None:
            self.stopped = True
            return
        self.node = 3 - self.node
        self.next_at = max(self.next_at, self.now + wait)

    def start_ns(self, now_ns: int, told: Told) -> int:
        return self.last_ns if told.delta_temporality else WALL_NS

    def _metric(self, value: Value, told: Told) -> Metric:
        now_ns = WALL_NS + round(self.now * 1e9)
        metric = Metric(name=PREFIX + value.name)
        data = metric.sum if value.total else metric.gauge
        point = data.data_points.add(as_double=value.value, time_unix_nano=now_ns)
        if value.total:
            metric.sum.is_monotonic = True
            metric.sum.aggregation_temporality = 1 if told.delta_temporality else 2  # type: ignore[assignment]
            point.start_time_unix_nano = self.start_ns(now_ns, told)
            self.last_ns = now_ns
        if value.node:
            point.attributes.add(key="node_id").value.string_value = "node-1"
        return metric


def compressed(codec: int, data: bytes) -> bytes:
    """Return the data in one of KIP-714's codecs."""
    if codec == 1:
        return gzip.compress(data, mtime=0)
    if codec == 2:
        return bytes(cramjam.snappy.compress_raw(data))
    if codec == 3:
        return bytes(lz4.frame.compress(data))
    return zstandard.ZstdCompressor().compress(data) if codec == 4 else data


def kit_with(script: Script) -> Kit:
    """Return a kit in simulated time."""
    ids = itertools.count(1)
    return Kit(
        script,
        cluster_id=CLUSTER,
        random_bytes=lambda size: next(ids).to_bytes(size, "big"),
        wall_ns=WALL_NS,
    )


def verdicts(
    client: Callable[[Kit], ScriptedClient], *, script: str = "default", seconds: float = 110.0
) -> ClientJudgement:
    """Run one client against a script, and return the verdicts on it."""
    kit = kit_with(load_script(script))
    scripted = client(kit)
    scripted.run(seconds)
    (judged,) = judge(kit.connections, ended=scripted.now + 1, brokers=2)
    return judged
