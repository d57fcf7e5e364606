"""Generates hours of pushes of a made-up fleet as spool files, for the pictures.

What a push looks like is captured from real clients (``tests/data/payloads``); who pushed it, when,
and how much went on is made up, the same for the same end. Test what it has in
``tests/integration/rollup/test_clicks.py``.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, NumberDataPoint

from plugins.spool_files.columns import SCHEMA
from receiver.wire.uuid import Uuid, uuid_to_text

_PAYLOADS = Path(__file__).parents[1] / "data" / "payloads"
_PREFIX = "org.apache.kafka."
#: Kafka's default.
_INTERVAL_S = 300
#: Seconds between the captured pushes, which their sums cover.
_CAPTURED_S = 10
_MINUTES = 400
_NEVER = _MINUTES + 1
_CLUSTER = "Zk1nb1ctUxKfp2cVhPqb2g"
_SEED = 714
_RECORD_BYTES = 640
_RECORDS_A_REQUEST = 24

_JAVA, _LIBRDKAFKA, _FRANZ = "apache-kafka-java", "librdkafka", "kgo"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Client:
    """A made-up client instance. Its times are minutes after the start.

    Attributes:
        template: The captured push that its own are made of.
        client_id: What it calls itself.
        software: Name and version of its software.
        principal: Who it logs in as.
        topics: What it writes to or reads.
        group: Its consumer group, empty for a producer.
        address: Where it comes from.
        records_s: How many records a second it handles on the average.
        latency_ms: Mean time of its requests.
        idle: Which share of its time a consumer waits in poll.
        first: Its first push.
        last: Its last one.
        terminates: Whether its last push is terminating.
        throttled_from: From when on brokers throttle it.
        churns_from: From when on it opens connections all the time.
        behind: How many records its partition is behind at the end, growing from zero.
        storm: When its group rebalances all the time.
    """

    template: str
    client_id: str
    software: tuple[str, str]
    principal: str
    topics: tuple[str, ...]
    group: str = ""
    address: str = ""
    records_s: float = 50
    latency_ms: float = 6
    idle: float = 0.6
    first: int = 0
    last: int = _MINUTES
    terminates: bool = False
    throttled_from: int = _NEVER
    churns_from: int = _NEVER
    behind: float = 0
    storm: range = range(0)


def _fleet() -> list[_Client]:
    java_producer = _Client(
        template="java44-producer-star-03",
        client_id="",
        software=(_JAVA, "4.4.0"),
        principal="User:orders",
        topics=("orders", "order-events"),
        latency_ms=7,
    )
    java_consumer = replace(
        java_producer,
        template="java44-consumer-star-03",
        principal="User:warehouse",
        topics=("orders",),
        latency_ms=180,
    )
    librdkafka = replace(
        java_producer,
        template="ck-producer-star-03",
        software=(_LIBRDKAFKA, "2.16.0"),
        principal="User:billing",
        topics=("invoices",),
        latency_ms=4,
    )
    clients = [replace(java_producer, client_id=f"orders-{n}", records_s=60 + 9 * n) for n in range(1, 7)]
    for n in range(1, 5):
        # A rolling upgrade: the old instance terminates, the new one starts a minute later.
        payments = replace(
            java_producer, client_id=f"payments-{n}", principal="User:payments", topics=("payments",)
        )
        moved = 180 + 15 * n
        clients += [
            replace(payments, software=(_JAVA, "4.1.1"), last=moved, terminates=True, records_s=35),
            replace(payments, first=moved + 1, records_s=35, latency_ms=5),
        ]
    clients += [
        replace(librdkafka, client_id=f"billing-{n}", records_s=20, churns_from=300 if n == 2 else _NEVER)
        for n in range(1, 6)
    ]
    clients += [
        replace(
            java_producer,
            template="franz-producer-okprefix-02",
            client_id=f"clickstream-{n}",
            software=(_FRANZ, "1.22.2"),
            principal="User:web",
            topics=("clicks",),
            latency_ms=45 if n == 3 else 3,
        )
        for n in range(1, 5)
    ]
    clients += [
        replace(
            java_producer,
            client_id=f"export-{n}",
            software=(_JAVA, "3.9.1"),
            principal="User:export",
            topics=("exports",),
            records_s=300,
            throttled_from=310 if n == 1 else _NEVER,
            last=_MINUTES - 30 if n == 2 else _MINUTES,
        )
        for n in range(1, 4)
    ]
    clients += [
        replace(
            java_consumer,
            client_id=f"warehouse-{n}",
            group="warehouse",
            records_s=70,
            idle=0.05 if n == 4 else 0.45,
            storm=range(355, 395),
        )
        for n in range(1, 7)
    ]
    clients += [
        replace(
            java_consumer,
            template="ck-consumer-star-03",
            client_id=f"fraud-{n}",
            software=(_LIBRDKAFKA, "2.8.0"),
            principal="User:fraud",
            group="fraud-detection",
            topics=("payments",),
            idle=0.8,
        )
        for n in range(1, 5)
    ]
    clients += [
        replace(
            java_consumer,
            client_id=f"search-{n}",
            software=(_JAVA, "4.1.1"),
            principal="User:search",
            group="search-indexer",
            topics=("orders", "clicks"),
            records_s=120,
            behind=85_000 if n == 2 else 0,
            storm=range(200, 206),
        )
        for n in range(1, 6)
    ]
    return [replace(client, address=f"10.20.{n // 8}.{10 + n}") for n, client in enumerate(clients)]


class _Instance:
    """Generates the pushes of one client.

    Args:
        client: What it is.
        chance: Its own source of chance.
    """

    def __init__(self, client: _Client, chance: random.Random) -> None:
        self._client = client
        self._chance = chance
        self._phase = chance.random()
        self._id = uuid_to_text(Uuid(chance.randbytes(16)))
        self._port = chance.randrange(33_000, 60_000)
        captured = MetricsData.FromString((_PAYLOADS / f"{client.template}.bin").read_bytes())
        self._metrics = [
            metric
            for resource in captured.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]

    def pushes(self, begin: datetime) -> Iterator[dict[str, object]]:
        """Return its rows of the spool, by time."""
        client = self._client
        jitter = timedelta(seconds=self._chance.uniform(0, _INTERVAL_S))
        for sequence, minute in enumerate(self._minutes(), start=1):
            at = begin + timedelta(minutes=minute) + jitter
            yield {
                "push_id": f"{self._chance.getrandbits(128):032x}",
                "client_instance_id": self._id,
                "received_at": at,
                "received_at_ns": _ns(at),
                "sequence": sequence,
                "terminating": client.terminates and minute == self._minutes()[-1],
                "client_id": client.client_id,
                "client_software_name": client.software[0],
                "client_software_version": client.software[1],
                "principal": client.principal,
                "client_source_address": client.address,
                "client_source_port": self._port,
                "broker_id": 1 + self._port % 3,
                "cluster_id": _CLUSTER,
                "listener": "CLIENT",
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "SCRAM-SHA-256",
                "subscription_id": 1,
                "push_interval_ms": _INTERVAL_S * 1000,
                "otlp": self._payload(at, minute, is_first=sequence == 1),
            }

    def _minutes(self) -> range:
        return range(self._client.first, self._client.last + 1, _INTERVAL_S // 60)

    def _payload(self, at: datetime, minute: int, *, is_first: bool) -> bytes:
        client = self._client
        data = MetricsData()
        resource = data.resource_metrics.add()
        labels = {
            "client_id": client.client_id,
            "client_instance_id": self._id,
            "client_software_name": client.software[0],
            "client_software_version": client.software[1],
            "client_source_address": client.address,
            "principal": client.principal,
            "broker_id": str(1 + self._port % 3),
            "cluster_id": _CLUSTER,
        } | ({"group_id": client.group} if client.group else {})
        resource.resource.attributes.extend(_attribute(key, value) for key, value in labels.items())
        scope = resource.scope_metrics.add()
        load = self._load(minute)
        for captured in self._metrics:
            by_topic = any(attribute.key == "topic" for attribute in _points(captured)[0].attributes)
            for topic in client.topics if by_topic else ("",):
                metric = scope.metrics.add()
                metric.CopyFrom(captured)
                share = 1 / len(client.topics) if by_topic else 1
                for point in _points(metric):
                    _place(point, topic)
                    point.time_unix_nano = _ns(at)
                    point.start_time_unix_nano = _ns(at) - _INTERVAL_S * 10**9
                    value = self._value(
                        metric.name, _value_of(point), load * share, minute, is_first=is_first
                    )
                    if metric.HasField("sum"):
                        value = float(round(value))
                    point.as_double = value
        return data.SerializeToString()

    def _load(self, minute: int) -> float:
        wave = math.sin(2 * math.pi * (minute / 240 + 0.1 * self._phase))
        return self._client.records_s * (1 + 0.35 * wave) * self._chance.uniform(0.9, 1.1)

    def _value(self, name: str, captured: float, load: float, minute: int, *, is_first: bool) -> float:
        client, chance = self._client, self._chance
        short = name.removeprefix(_PREFIX).partition(".")[2]
        storm = minute in client.storm
        throttle = chance.uniform(400, 1800) if minute >= client.throttled_from else 0.0
        churn = chance.randint(40, 70) if minute >= client.churns_from else 0
        slow = client.latency_ms * chance.uniform(0.8, 1.25) * (1.6 if storm else 1)
        lag = load * (60 if client.idle < 0.1 else chance.uniform(0, 2)) + client.behind * minute / _MINUTES
        known = {
            "connection.creation.total": 3.0 if is_first else float(churn or (chance.random() < 0.1)),
            "connection.creation.rate": churn / _INTERVAL_S,
            "produce.throttle.time.avg": throttle / 3,
            "produce.throttle.time.max": throttle,
            "node.request.latency.avg": slow,
            "node.request.latency.max": slow * chance.uniform(2, 5),
            "request.latency.avg": slow,
            "request.latency.max": slow * chance.uniform(2, 5),
            "record.queue.time.avg": chance.uniform(1, 4) + throttle / 10,
            "record.queue.time.max": chance.uniform(8, 30) + throttle,
            "batch.size.avg": chance.uniform(11e3, 15e3),
            "batch.size.max": 16e3,
            "topic.compression.rate": chance.uniform(0.3, 0.5),
            "compression.rate.avg": chance.uniform(0.3, 0.5),
            "record.error.total": float(chance.random() < 0.04),
            "poll.idle.ratio.avg": min(1.0, client.idle * chance.uniform(0.85, 1.1)),
            "coordinator.assigned.partitions": 0.0 if storm and chance.random() < 0.4 else 4.0,
            "coordinator.rebalance.total": float(chance.randint(2, 4) if storm else is_first),
            "coordinator.rebalance.latency.total": chance.uniform(40e3, 125e3) if storm else 90.0 * is_first,
            "coordinator.rebalance.latency.avg": chance.uniform(8e3, 15e3) if storm else 0.0,
            "coordinator.rebalance.latency.max": chance.uniform(15e3, 25e3) if storm else 0.0,
            "coordinator.commit.latency.avg": chance.uniform(4, 9),
            "coordinator.commit.latency.max": chance.uniform(10, 40),
            "fetch.manager.records.lag.max": lag,
            "fetch.manager.records.lag": lag,
        }
        if short in known:
            return known[short]
        per_second = _per_second(short, load)
        if per_second is not None:
            return per_second * (_INTERVAL_S if short.endswith(".total") else 1)
        if short.endswith(".total"):
            return captured * _INTERVAL_S / _CAPTURED_S * load / 50
        return captured * chance.uniform(0.9, 1.1)


def _per_second(short: str, load: float) -> float | None:
    what = short.removeprefix("topic.").removeprefix("fetch.manager.").removeprefix("node.")
    what = what.removesuffix(".total").removesuffix(".rate")
    requests = load / _RECORDS_A_REQUEST
    return {
        "record.send": load,
        "records.consumed": load,
        "bytes.consumed": load * _RECORD_BYTES,
        "byte": load * _RECORD_BYTES,
        "outgoing.byte": load * _RECORD_BYTES,
        "incoming.byte": requests * 80,
        "request": requests,
        "response": requests,
        "fetch": requests,
        "network.io": requests * 2,
        "coordinator.commit": 0.2,
        "coordinator.heartbeat": 0.33,
    }.get(what)


def _points(metric: Metric) -> list[NumberDataPoint]:
    return list(metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points)


def _value_of(point: NumberDataPoint) -> float:
    return point.as_double if point.HasField("as_double") else float(point.as_int)


def _place(point: NumberDataPoint, topic: str) -> None:
    for attribute in point.attributes:
        if attribute.key == "topic":
            attribute.value.string_value = topic
        # The receiver corrects these values too.
        if attribute.key == "node.id":
            attribute.key = "node_id"


def _attribute(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def _ns(at: datetime) -> int:
    return round(at.timestamp() * 1000) * 10**6


def write_spool(folder: Path, *, end: datetime, last: timedelta | None = None) -> int:
    """Write some seven hours of pushes in the format of the plugin ``spool_files``.

    Args:
        folder: Where.
        end: The time of the newest push, about.
        last: Only the pushes of this time before the end; None: all.

    Returns:
        How many pushes there are.
    """
    begin = end.astimezone(UTC).replace(second=0, microsecond=0) - timedelta(
        minutes=_MINUTES, seconds=_INTERVAL_S
    )
    hours: dict[datetime, list[dict[str, object]]] = defaultdict(list)
    for number, client in enumerate(_fleet()):
        for row in _Instance(client, random.Random(_SEED + number)).pushes(begin):
            at = row["received_at"]
            assert isinstance(at, datetime)
            if last is not None and at < end - last:
                continue
            hours[at.replace(minute=0, second=0, microsecond=0)].append(row)
    for number, (hour, rows) in enumerate(sorted(hours.items()), start=1):
        rows.sort(key=lambda row: str(row["received_at"]))
        place = folder / f"date={hour:%Y-%m-%d}" / f"hour={hour:%H}"
        place.mkdir(parents=True)
        pq.write_table(
            pa.Table.from_pylist(rows, schema=SCHEMA),
            place / f"{hour:%Y%m%dT%H%M%S%f}Z-pictures-{_SEED:08x}-{number:08d}.parquet",
            compression="zstd",
        )
    return sum(len(rows) for rows in hours.values())
