"""Writes the files of the ``spool_files`` plugin for a made-up fleet, from captured pushes.

The telemetry core labels one push of each kind of client. The pushes of the fleet are copies of it
with other labels, times and values, so that millions of points take seconds.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

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
    telemetry_core,
)
from plugins.spool_files.columns import SCHEMA, record_batch
from plugins.spool_files.layout import Hour
from receiver.plugin import Push
from receiver.telemetry.identity import ClientIdentity
from receiver.wire.uuid import Uuid, uuid_to_text

_CLIENT_IDS: Final = 500
_INSTANCES: Final = 10_000
#: KIP-714's default.
_INTERVAL_S: Final = 300
#: The plugin's default ``roll_seconds``.
_ROLL_S: Final = 30
_SECOND_NS: Final = 1_000_000_000
#: From a client's metrics to the receiver's clock.
_UNDERWAY_NS: Final = 20_000_000
_SEED: Final = 714
#: The columns that a dictionary makes smaller.
_REPEATED: Final = [name for name in SCHEMA.names if name not in {"push_id", "otlp", "received_at_ns"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file: its path, its pushes, and their data points."""

    path: Path
    pushes: int
    points: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    captured: Captured
    software: str
    versions: tuple[str, ...]
    share: int


#: Kinds of clients, and their number in twenty client ids.
_KINDS: Final = (
    _Kind(captured=JAVA_PRODUCER, software="apache-kafka-java", versions=("4.1.1", "4.4.0"), share=7),
    _Kind(captured=JAVA_CONSUMER, software="apache-kafka-java", versions=("4.1.1", "4.4.0"), share=7),
    _Kind(captured=LIBRDKAFKA_PRODUCER, software="librdkafka", versions=("2.11.1", "2.16.0"), share=2),
    _Kind(captured=LIBRDKAFKA_CONSUMER, software="librdkafka", versions=("2.11.1", "2.16.0"), share=2),
    _Kind(captured=FRANZ_GO_PRODUCER, software="kgo", versions=("1.19.0", "1.22.2"), share=2),
)


class _Template:
    """A push of a version, with the attributes and data points that differ between pushes."""

    def __init__(self, kind: _Kind, version: str) -> None:
        connection = ClientIdentity(
            id="bench",
            listener="CLIENT",
            security_protocol="SASL_SSL",
            source_address="10.0.0.1",
            source_port=40_000,
            since=0.0,
            client_id="client",
            client_software_name=kind.software,
            client_software_version=version,
            principal="User:team",
            sasl_mechanism="SCRAM-SHA-256",
        )
        self._push = push_of(telemetry_core(), connection, Uuid(b"\xa5" * 16), kind.captured)
        self._data = MetricsData.FromString(self._push.payload.data)
        self._attributes = [
            attribute for r in self._data.resource_metrics for attribute in r.resource.attributes
        ]
        metrics = [m for r in self._data.resource_metrics for s in r.scope_metrics for m in s.metrics]
        self._points = [
            (point, point.time_unix_nano, point.as_int or point.as_double, metric.HasField("sum"))
            for metric in metrics
            for point in (metric.sum if metric.HasField("sum") else metric.gauge).data_points
        ]
        self._newest = max(time for _, time, _, _ in self._points)
        self.points = len(self._points)

    def push(
        self,
        labels: Mapping[str, str],
        received_at_ns: int,
        number: int,
        chance: random.Random,
        interval_s: int = _INTERVAL_S,
    ) -> Push:
        """Make the client's push of a number, with its labels and other times and values."""
        collected = received_at_ns - _UNDERWAY_NS
        for attribute in self._attributes:
            if attribute.key in labels:
                attribute.value.string_value = labels[attribute.key]
        for point, time, value, whole in self._points:
            point.time_unix_nano = collected + time - self._newest
            if point.start_time_unix_nano:
                point.start_time_unix_nano = collected - interval_s * _SECOND_NS
            varied = value * chance.uniform(0.5, 1.5)
            if point.HasField("as_int"):
                point.as_int = int(varied)
            else:
                # Sums are whole numbers, so that their totals are exact.
                point.as_double = round(varied) if whole else varied
        context = replace(
            self._push.context,
            client_id=labels["client_id"],
            principal=labels["principal"],
            source_address=labels["client_source_address"],
            push_interval_ms=interval_s * 1000,
            received_at_ns=received_at_ns,
        )
        payload = replace(
            self._push.payload,
            client_instance_id=labels["client_instance_id"],
            data=self._data.SerializeToString(),
            sequence=number + 1,
            push_id=chance.randbytes(16).hex(),
        )
        return Push(context=context, payload=payload)


class Fleet:
    """Instances of some client ids, each pushing once in an interval.

    Args:
        instances: Number of instances.
        client_ids: Number of client ids; instance n has the id n modulo this number.
        interval_s: Push interval in seconds.
        seed: Fleets of different seeds have different instances with the same client ids.
        values_seed: Fleets of one seed and different values seeds have the same instances, with
            other pushes.
    """

    def __init__(
        self,
        *,
        instances: int = _INSTANCES,
        client_ids: int = _CLIENT_IDS,
        interval_s: int = _INTERVAL_S,
        seed: int = _SEED,
        values_seed: int | None = None,
    ) -> None:
        self._chance = random.Random(seed)
        self._seed = seed
        self._instances = instances
        self._interval_s = interval_s
        kinds = itertools.cycle([kind for kind in _KINDS for _ in range(kind.share)])
        versions = {kind: itertools.cycle(kind.versions) for kind in _KINDS}
        templates: dict[tuple[_Kind, str], _Template] = {}
        self._templates = []
        for kind in itertools.islice(kinds, client_ids):
            version = next(versions[kind])
            if (kind, version) not in templates:
                templates[kind, version] = _Template(kind, version)
            self._templates.append(templates[kind, version])
        self._ids = [uuid_to_text(Uuid(self._chance.randbytes(16))) for _ in range(instances)]
        # The instances push in this order, again in each interval.
        self._turns = self._chance.sample(range(instances), instances)
        if values_seed is not None:
            self._chance.seed(values_seed)
        self._written = 0
        #: Pushes of a file: those of half a minute.
        self.file_pushes = instances * _ROLL_S // interval_s

    def write(self, folder: Path, *, points: int, end_ns: int) -> list[File]:
        """Write files of half a minute each with about ``points``, received before ``end_ns``."""
        points_a_push = statistics.fmean(template.points for template in self._templates)
        count = round(points / (points_a_push * self.file_pushes))
        begins = [end_ns - ago * _ROLL_S * _SECOND_NS for ago in range(count, 0, -1)]
        return [self.write_file(folder, pushes=self.file_pushes, begin_ns=begin) for begin in begins]

    def write_file(self, folder: Path, *, pushes: int, begin_ns: int) -> File:
        """Write one file: the next clients in turn, over half a minute."""
        made, points = [], 0
        for number in range(pushes):
            turn, place = divmod(self._written + number, self._instances)
            instance = self._turns[place]
            client = instance % len(self._templates)
            labels = {
                "client_id": f"client-{client:03d}",
                "principal": f"User:team-{client % 40:02d}",
                "client_source_address": f"10.{100 + instance // 10_000}.{100 + instance // 100 % 100}"
                f".{100 + instance % 100}",
                "client_instance_id": self._ids[instance],
            }
            template = self._templates[client]
            received_at_ns = begin_ns + number * _ROLL_S * _SECOND_NS // pushes
            made.append(template.push(labels, received_at_ns, turn + 1, self._chance, self._interval_s))
            points += template.points
        self._written += pushes
        hour = folder / Hour.of(begin_ns).folder
        hour.mkdir(parents=True, exist_ok=True)
        begin = datetime.fromtimestamp(begin_ns / _SECOND_NS, UTC)
        name = f"{begin:%Y%m%dT%H%M%S%f}Z-bench-{self._seed:08x}-{self._written:08d}.parquet"
        path = hour / name
        unfinished = folder / f"_{path.name}"
        rows = pa.Table.from_batches([record_batch(made)])
        pq.write_table(rows, unfinished, compression="zstd", compression_level=3, use_dictionary=_REPEATED)
        unfinished.rename(path)
        return File(path=path, pushes=pushes, points=points)
