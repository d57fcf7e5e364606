"""A folder as spool_files writes it, of a made-up fleet whose pushes are made of captured ones.

Owns the fleet's shape and the patching of pushes: what the receiver hands over once for each kind
of client, then only bytes of ids, times and values, so that millions of points take seconds. It
measures nothing.
"""

from __future__ import annotations

import itertools
import re
import statistics
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks.captured import (
    FRANZ_GO_PRODUCER,
    JAVA_CONSUMER,
    JAVA_PRODUCER,
    LIBRDKAFKA_CONSUMER,
    LIBRDKAFKA_PRODUCER,
    Captured,
    push_of,
)
from plugins.spool_files.columns import SCHEMA
from receiver.settings.limits import LimitsSettings
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.connection import Broker, Connection
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.subscription import SubscriptionSet
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire.uuid import Uuid, uuid_to_text

CLIENT_IDS: Final = 500
INSTANCES: Final = 10_000
#: KIP-714's default.
INTERVAL_S: Final = 300
#: The plugin's default ``roll_seconds``.
ROLL_S: Final = 30
FILE_PUSHES: Final = INSTANCES * ROLL_S // INTERVAL_S

_SECOND_NS: Final = 1_000_000_000
#: From a client's metrics to the receiver's clock.
_UNDERWAY_NS: Final = 20_000_000
_CLUSTER: Final = "kafka-telemetry-testQQ"
_SEED: Final = 714
#: What stands for a label in a template, as long as all that take its place.
_INSTANCE: Final = Uuid(b"\xa5" * 16)
_CLIENT_ID: Final = "client-000"
_PRINCIPAL: Final = "User:team-00"
_ADDRESS: Final = "10.100.100.100"
_FIRST_MARK: Final = 0x7A11_0000_0000_0001
_MARKS_APART: Final = 0x1_0000_0001

_Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of pushes.

    Attributes:
        path: Where it is.
        pushes: How many there are.
        points: Their data points.
        otlp_bytes: Their payloads, as the receiver hands them over.
    """

    path: Path
    pushes: int
    points: int
    otlp_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    captured: Captured
    software: str
    versions: tuple[str, ...]
    share: int


#: Kinds of clients, and how many of twenty client ids are of each: most of a fleet is Java.
_KINDS: Final = (
    _Kind(captured=JAVA_PRODUCER, software="apache-kafka-java", versions=("4.1.1", "4.4.0"), share=7),
    _Kind(captured=JAVA_CONSUMER, software="apache-kafka-java", versions=("4.1.1", "4.4.0"), share=7),
    _Kind(captured=LIBRDKAFKA_PRODUCER, software="librdkafka", versions=("2.11.1", "2.16.0"), share=2),
    _Kind(captured=LIBRDKAFKA_CONSUMER, software="librdkafka", versions=("2.11.1", "2.16.0"), share=2),
    _Kind(captured=FRANZ_GO_PRODUCER, software="kgo", versions=("1.19.0", "1.22.2"), share=2),
)


class _Places:
    """Eight-byte numbers that differ between pushes: their offsets and the template's values."""

    def __init__(self, data: bytes, found: Sequence[tuple[bytes, float]]) -> None:
        self._at = np.array([data.index(mark) for mark, _ in found], np.int64)
        self.values = np.array([value for _, value in found])

    def put(self, rows: npt.NDArray[np.uint8], values: npt.NDArray[Any]) -> None:
        """Write numbers of eight bytes into all rows: a row of them for each."""
        spread = np.ascontiguousarray(np.broadcast_to(values, (len(rows), len(self._at))))
        rows[:, self._at[:, None] + np.arange(8)] = spread.view(np.uint8).reshape(*spread.shape, 8)


class _Template:
    """A captured push from which pushes of other instances and times are made."""

    def __init__(self, kind: _Kind, version: str) -> None:
        data = MetricsData.FromString(_labelled(kind, version))
        metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
        points = [(m, p) for m in metrics for p in (m.sum if m.HasField("sum") else m.gauge).data_points]
        self.points = len(points)
        newest = max(point.time_unix_nano for _, point in points)
        found: dict[str, list[tuple[bytes, float]]] = {
            name: [] for name in ("time", "start", "gauge", "sum", "int")
        }
        # Each place gets a number of its own, by which it is found in the serialised bytes.
        marks = (number.to_bytes(8, "little") for number in itertools.count(_FIRST_MARK, _MARKS_APART))
        for metric, point in points:
            mark = next(marks)
            found["time"].append((mark, point.time_unix_nano - newest))
            point.time_unix_nano = int.from_bytes(mark, "little")
            if point.start_time_unix_nano:
                mark = next(marks)
                found["start"].append((mark, 0))
                point.start_time_unix_nano = int.from_bytes(mark, "little")
            mark = next(marks)
            if point.HasField("as_int"):
                found["int"].append((mark, point.as_int))
                point.as_int = int.from_bytes(mark, "little")
            else:
                found["sum" if metric.HasField("sum") else "gauge"].append((mark, point.as_double))
                (point.as_double,) = struct.unpack("<d", mark)
        self._data = data.SerializeToString()
        self._places = {name: _Places(self._data, of) for name, of in found.items()}

    def pushes(
        self, labels: Mapping[str, Sequence[str]], received_at_ns: _Integers, chance: np.random.Generator
    ) -> list[bytes]:
        """Make payloads.

        Args:
            labels: By what stands in the template, what each push has there.
            received_at_ns: When each was received.
            chance: By which values differ.
        """
        rows = np.tile(np.frombuffer(self._data, np.uint8), (len(received_at_ns), 1))
        for placeholder, texts in labels.items():
            encoded = np.array([text.encode() for text in texts], f"S{len(placeholder)}")
            for found in re.finditer(re.escape(placeholder.encode()), self._data):
                rows[:, found.start() : found.end()] = encoded.view(np.uint8).reshape(len(rows), -1)
        collected = received_at_ns[:, None] - _UNDERWAY_NS
        for name, places in self._places.items():
            varied = places.values * chance.uniform(0.5, 1.5, (len(rows), len(places.values)))
            match name:
                case "time":
                    places.put(rows, collected + places.values.astype(np.int64))
                case "start":
                    places.put(rows, collected - INTERVAL_S * _SECOND_NS)
                case "int":
                    places.put(rows, varied.astype(np.int64))
                case "sum":
                    # So sums of any number of them are exact.
                    places.put(rows, np.rint(varied))
                case _:
                    places.put(rows, varied)
        return [row.tobytes() for row in rows]


class Fleet:
    """10,000 instances of 500 client ids, each pushing every five minutes."""

    def __init__(self) -> None:
        self._chance = np.random.default_rng(_SEED)
        kinds = itertools.cycle([kind for kind in _KINDS for _ in range(kind.share)])
        versions = {kind: itertools.cycle(kind.versions) for kind in _KINDS}
        self._kinds = [(kind, next(versions[kind])) for kind in itertools.islice(kinds, CLIENT_IDS)]
        self._templates = {kind: _Template(*kind) for kind in dict.fromkeys(self._kinds)}
        self._ids = [uuid_to_text(Uuid(self._chance.bytes(16))) for _ in range(INSTANCES)]
        # A client's turn comes every five minutes, after the same others each time.
        self._turns = self._chance.permutation(INSTANCES)
        self._written = 0

    @property
    def points_a_push(self) -> float:
        """Data points of a push in the mean over the fleet."""
        return statistics.fmean(self._templates[kind].points for kind in self._kinds)

    def write(self, folder: Path, *, points: int, end_ns: int) -> list[File]:
        """Write files of half a minute each until they have so many points, from the oldest on.

        Args:
            folder: Where.
            points: About so many, as files are whole.
            end_ns: All were received before.
        """
        count = round(points / (self.points_a_push * FILE_PUSHES))
        begins = [end_ns - ago * ROLL_S * _SECOND_NS for ago in range(count, 0, -1)]
        return [self.write_file(folder, pushes=FILE_PUSHES, begin_ns=begin) for begin in begins]

    def write_file(self, folder: Path, *, pushes: int, begin_ns: int) -> File:
        """Write one file: the next clients in turn, over half a minute."""
        turns = np.arange(self._written, self._written + pushes) % INSTANCES
        self._written += pushes
        instances = self._turns[turns]
        received = begin_ns + np.arange(pushes) * (ROLL_S * _SECOND_NS // pushes)
        clients = instances % CLIENT_IDS
        labels = {
            _CLIENT_ID: [f"client-{client:03d}" for client in clients],
            _PRINCIPAL: [f"User:team-{client % 40:02d}" for client in clients],
            _ADDRESS: [f"10.100.{100 + i // 100}.{100 + i % 100}" for i in instances],
            uuid_to_text(_INSTANCE): [self._ids[instance] for instance in instances],
        }
        payloads: list[bytes] = [b""] * pushes
        points = 0
        for kind, template in self._templates.items():
            mine = [at for at, client in enumerate(clients) if self._kinds[client] == kind]
            points += template.points * len(mine)
            made = template.pushes(
                {name: [texts[at] for at in mine] for name, texts in labels.items()},
                received[mine],
                self._chance,
            )
            for at, payload in zip(mine, made, strict=True):
                payloads[at] = payload
        columns: dict[str, Any] = {
            "push_id": [self._chance.bytes(16).hex() for _ in range(pushes)],
            "client_instance_id": labels[uuid_to_text(_INSTANCE)],
            "received_at": received // 1_000,
            "received_at_ns": received,
            "sequence": np.full(pushes, self._written // INSTANCES + 1),
            "terminating": np.zeros(pushes, np.bool_),
            "client_id": labels[_CLIENT_ID],
            "client_software_name": [self._kinds[client][0].software for client in clients],
            "client_software_version": [self._kinds[client][1] for client in clients],
            "principal": labels[_PRINCIPAL],
            "client_source_address": labels[_ADDRESS],
            "client_source_port": np.full(pushes, _PORT, np.int32),
            "broker_id": np.full(pushes, 1, np.int32),
            "cluster_id": [_CLUSTER] * pushes,
            "listener": ["CLIENT"] * pushes,
            "security_protocol": ["SASL_SSL"] * pushes,
            "sasl_mechanism": ["SCRAM-SHA-256"] * pushes,
            "subscription_id": np.full(pushes, 1, np.int32),
            "push_interval_ms": np.full(pushes, INTERVAL_S * 1_000, np.int32),
            "otlp": payloads,
        }
        rows = pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)
        begin = datetime.fromtimestamp(begin_ns / _SECOND_NS, UTC)
        hour = folder / f"date={begin:%Y-%m-%d}" / f"hour={begin:%H}"
        hour.mkdir(parents=True, exist_ok=True)
        path = hour / f"{begin:%Y%m%dT%H%M%S%f}Z-bench-{_SEED:08x}-{self._written:08d}.parquet"
        unfinished = folder / f"_{path.name}"
        pq.write_table(rows, unfinished, compression="zstd", compression_level=3, use_dictionary=_REPEATED)
        unfinished.rename(path)
        return File(path=path, pushes=pushes, points=points, otlp_bytes=sum(map(len, payloads)))


_PORT: Final = 40_000
#: The columns of which a dictionary is smaller.
_REPEATED: Final = [name for name in SCHEMA.names if name not in {"push_id", "otlp", "received_at_ns"}]


def _labelled(kind: _Kind, version: str) -> bytes:
    telemetry = ClientTelemetry(
        settings=TelemetrySettings(),
        broker=Broker(id=1, cluster_id=_CLUSTER),
        subscriptions=SubscriptionSet(()),
        limits=Limits(LimitsSettings()),
        random_bytes=bytes,
    )
    connection = Connection(
        id="bench",
        listener="CLIENT",
        security_protocol="SASL_SSL",
        source_address=_ADDRESS,
        source_port=_PORT,
        since=0.0,
        client_id=_CLIENT_ID,
        client_software_name=kind.software,
        client_software_version=version,
        principal=_PRINCIPAL,
        sasl_mechanism="SCRAM-SHA-256",
    )
    return push_of(telemetry, connection, _INSTANCE, kind.captured).payload.data
