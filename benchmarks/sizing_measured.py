"""``python -m benchmarks.sizing_measured``: bytes per client, per push and per row, for sizing.

Bytes and memory hardly depend on other work of the machine. CPU does, so its load is kept too.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import psycopg
import yaml
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks import idle, relays, spool
from benchmarks.captured import JAVA_PRODUCER, LIBRDKAFKA_PRODUCER, Captured
from benchmarks.load_generator import fake_broker, load, push_flags
from benchmarks.plugins import captured_pushes
from benchmarks.processes import BenchmarkError, allow_files
from benchmarks.relays import Relay
from benchmarks.rollup_spool import Fleet
from benchmarks.sizing import SHARED, Measured, Rows, packed_as
from benchmarks.sizing_packed import packed_rows
from receiver.catalogue import Combination
from receiver.host.discovery import load_plugins
from receiver.host.host import PluginHost
from spark_streaming.embedded import EmbeddedPostgres
from spark_streaming.rows import RULES
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.collector import Collector

CLIENTS: Final = (JAVA_PRODUCER, LIBRDKAFKA_PRODUCER)

#: Data points that are rolled up.
_POINTS: Final = 2_000_000
_FEW, _MANY = 1_000, 10_000
_CONNECTIONS: Final = 20
_TLS_CONNECTIONS: Final = 3_000
_IN_A_FILE: Final = (100, 1_000)
_IN_AN_EXPORT: Final = 100
_SETTLE_S: Final = 2.0
_STOP_S: Final = 60.0
_WITHIN_S: Final = 1_800.0
_KIB: Final = 1024
_MIB: Final = 1024 * 1024


def measure(folder: Path, upstream: str) -> Measured:
    """Measure everything, in front of the fake broker at ``upstream`` (host:port)."""
    load_before = os.getloadavg()[0]
    files = {client: folder / f"{client.file}.zst" for client in CLIENTS}
    for client, file in files.items():
        file.write_bytes(client.zstd())
    bare = {client: _bare(folder, upstream, file) for client, file in files.items()}
    busy = {client: _busy(folder, upstream, file) for client, file in files.items()}
    pushes = {client: captured_pushes(max(_IN_A_FILE), client) for client in CLIENTS}
    payloads = {client: [push.payload.data for push in of] for client, of in pushes.items()}
    return Measured(
        measured_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        load_before=load_before,
        idle_mib={
            "no plugin": bare[JAVA_PRODUCER][0] / _MIB,
            "otlp and spool_files": busy[JAVA_PRODUCER][0] / _MIB,
        },
        peak_mib={client.client: peak / _MIB for client, (_, peak, _) in busy.items()},
        instance_kib={client.client: each / _KIB for client, (_, each) in bare.items()},
        tls_connection_kib=_tls_connection(folder, upstream),
        cpu_us={client.client: cpu_s * 1e6 for client, (_, _, cpu_s) in busy.items()},
        points={client.client: _points(client) for client in CLIENTS},
        wire_bytes={client.client: len(client.zstd()) for client in CLIENTS},
        otlp_bytes={client.client: sum(map(len, of)) // len(of) for client, of in payloads.items()},
        gzip_bytes={
            client.client: len(zlib.compress(b"".join(of[:_IN_AN_EXPORT]), wbits=31)) // _IN_AN_EXPORT
            for client, of in payloads.items()
        },
        spool_bytes={
            client.client: {
                str(batch): spool.disk_bytes(folder, client, max(_IN_A_FILE), batch)
                for batch in spool.BATCHES
            }
            for client in CLIENTS
        },
        file_bytes={
            client.client: {str(count): _file_bytes(folder, client, count) for count in _IN_A_FILE}
            for client in CLIENTS
        },
        rows=_rows(folder),
    )


@contextlib.contextmanager
def _sidecar(folder: Path, upstream: str, plugins: list[dict[str, Any]]) -> Iterator[Relay]:
    own = folder / f"sidecar-{time.monotonic_ns()}"
    own.mkdir()
    with relays.sidecar(upstream, own, plugins=plugins) as relay:
        relays.subscribe(relay.rest, interval_ms=300_000)
        time.sleep(_SETTLE_S)
        yield relay


def _resident(relay: Relay) -> int:
    time.sleep(_SETTLE_S)
    assert relay.process is not None
    return relay.process.resident_bytes()


@contextlib.contextmanager
def _pushed(relay: Relay, file: Path, instances: int) -> Iterator[float]:
    """Let new instances push once each over a few connections, which then stay idle.

    The value is the sidecar's CPU seconds meanwhile.
    """
    assert relay.process is not None
    pids = relay.process.pids()
    flags = {"connections": _CONNECTIONS, "count": instances, "fresh": "true", "warmup": 0, "hold": 3600}
    with load("push", push_flags(relay.target, file, pids, **flags)) as run:
        yield sum(run.line()["cpu_seconds"].values())


def _bare(folder: Path, upstream: str, file: Path) -> tuple[int, float]:
    """Return the bytes of a sidecar whose destination is away, and of each further instance."""
    with _sidecar(folder, upstream, [relays.AWAY]) as relay:
        idle = _resident(relay)
        with _pushed(relay, file, _FEW):
            few = _resident(relay)
            with _pushed(relay, file, _MANY - _FEW):
                many = _resident(relay)
    return idle, (many - few) / (_MANY - _FEW)


def _busy(folder: Path, upstream: str, file: Path) -> tuple[int, int, float]:
    """Return idle and peak bytes of a sidecar with plugins, and CPU seconds by get and push."""
    with Collector() as collector:
        plugins = [
            {"type": "otlp", "endpoint": collector.grpc_endpoint, "protocol": "grpc"},
            {"type": "spool_files", "path": "telemetry"},
        ]
        with _sidecar(folder, upstream, plugins) as relay:
            idle = _resident(relay)
            assert relay.process is not None
            with _pushed(relay, file, _MANY) as cpu_s:
                pass
            # The threads of the plugins still export after the last response. That does not count.
            return idle, relay.process.peak_bytes(), cpu_s / _MANY


def _tls_connection(folder: Path, upstream: str) -> float:
    own = folder / "tls"
    own.mkdir()
    tls = CertificateAuthority().issue().write(own)
    with relays.sidecar(upstream, own, tls=tls) as relay:
        assert relay.process is not None
        memory = idle.measure(relay.process, relay.target, _TLS_CONNECTIONS, ca=relay.ca)
        return memory.kib_by_connection


def _points(client: Captured) -> int:
    data = MetricsData.FromString(client.inflated())
    metrics = [
        metric for of in data.resource_metrics for scope in of.scope_metrics for metric in scope.metrics
    ]
    return sum(len((item.sum if item.HasField("sum") else item.gauge).data_points) for item in metrics)


def _file_bytes(folder: Path, client: Captured, count: int) -> int:
    path = folder / f"files-{client.file}-{count}"
    host = PluginHost(load_plugins([{"type": "spool_files", "path": str(path), "delivery": "memory"}]))
    host.start()
    for push in captured_pushes(count, client):
        host.offer(push)
    host.stop(_STOP_S)
    return sum(file.stat().st_size for file in path.rglob("*.parquet")) // count


def _rows(folder: Path) -> Rows:
    path = folder / "fleet"
    path.mkdir()
    files = Fleet().write(path, points=_POINTS, end_ns=time.time_ns())
    pushes, points = sum(file.pushes for file in files), sum(file.points for file in files)
    config = folder / "rollup.yaml"
    # One file in a batch, as files come while a fleet runs.
    config.write_text(yaml.safe_dump({"spool_files": {"max_files": 1}}))
    with EmbeddedPostgres(folder / "postgres") as server:
        command = [
            *(sys.executable, "-m", "spark_streaming", "run", "--once", "--source", "spool_files"),
            *("--path", str(path), "--postgres", server.url, "--checkpoint", str(folder / "checkpoint")),
            *("--config", str(config)),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_WITHIN_S)
        if done.returncode:
            raise BenchmarkError(f"the roll-up failed:\n{done.stderr[-3_000:]}")
        with psycopg.connect(server.url) as connection:
            rows = _rows_of(connection, pushes=pushes, points=points)
        return replace(rows, **packed(server))


def packed(server: EmbeddedPostgres) -> dict[str, Any]:
    """Measure the fields of :class:`Rows` on packing."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    packing_us = 0.0
    for client in CLIENTS:
        for sharing, interval_s in ((1, 60), (1, 300), (SHARED, 60)):
            name = f"packed_{client.file.replace('-', '_')}_{sharing}_{interval_s}"
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}".encode())
            key = packed_as(sharing, interval_s)
            sizes, spent_us = packed_rows(server.url_of(name), client, sharing=sharing, interval_s=interval_s)
            found.setdefault(client.client, {})[key] = sizes
            packing_us = max(packing_us, spent_us)
    return {"packed_bytes": found, "packing_us": packing_us}


_TABLES: Final = """
SELECT parent.relname, sum(pg_total_relation_size(part.oid))
FROM pg_class AS parent
JOIN pg_inherits ON inhparent = parent.oid
JOIN pg_class AS part ON part.oid = inhrelid
WHERE parent.relnamespace = 'telemetry'::regnamespace AND parent.relkind = 'p'
GROUP BY 1
"""
#: Rows in a whole minute; the minutes at both ends are not whole.
_WHOLE_MINUTES: Final = """
WITH whole AS (SELECT DISTINCT bucket FROM telemetry.{table} ORDER BY bucket OFFSET 2)
SELECT count(*)::float8 / count(DISTINCT bucket) FROM telemetry.{table}
WHERE bucket IN (SELECT bucket FROM whole) AND bucket < (SELECT max(bucket) - interval '1 minute' FROM whole)
"""
_BY_CLIENT_ID: Final = """
WITH client AS (
    SELECT client_id, client_software_name, bool_or(metric LIKE 'org.apache.kafka.producer.%%') AS produces,
        count(*)::float8 / count(DISTINCT bucket) AS rows,
        count(*) FILTER (WHERE rule = %s)::float8 / count(DISTINCT bucket) AS carried
    FROM telemetry.rollup_1m JOIN telemetry.series USING (series_id)
    WHERE bucket > (SELECT min(bucket) + interval '1 minute' FROM telemetry.rollup_1m)
        AND bucket < (SELECT max(bucket) - interval '1 minute' FROM telemetry.rollup_1m)
    GROUP BY 1, 2
)
SELECT avg({column}) FROM client WHERE produces AND client_software_name = %s
"""
_SOFTWARE: Final = {JAVA_PRODUCER: "apache-kafka-java", LIBRDKAFKA_PRODUCER: "librdkafka"}


def _rows_of(connection: psycopg.Connection, *, pushes: int, points: int) -> Rows:
    def number(query: str, *arguments: object) -> float:
        row = connection.execute(query.encode(), arguments).fetchone()
        if row is None or row[0] is None:
            raise BenchmarkError(f"the roll-up has no such rows: {query}")
        return float(row[0])

    sizes = {name: float(size) for name, size in connection.execute(_TABLES).fetchall()}
    counts = {name: number(f"SELECT count(*) FROM telemetry.{name}") for name in sizes}
    by_client_id = {
        column: {
            client.client: number(
                _BY_CLIENT_ID.format(column=column), RULES.index(Combination.LAST), software
            )
            for client, software in _SOFTWARE.items()
        }
        for column in ("rows", "carried")
    }
    return Rows(
        by_client_id=by_client_id["rows"],
        carried=by_client_id["carried"],
        bytes_by_row={name: sizes[name] / count for name, count in sorted(counts.items()) if count},
        packed_bytes={},
        packing_us=0.0,
        fleet_rows={
            name: number(_WHOLE_MINUTES.format(table=name)) for name in ("fleet_rollup_1m", "fleet_spread_1m")
        },
        push_bytes=sizes["push"] / pushes,
        point_bytes=sizes["contribution"] / points,
    )


def main() -> None:
    """Measure everything, and keep it for ``python -m benchmarks.sizing``."""
    allow_files()
    with tempfile.TemporaryDirectory(prefix="kafka-telemetry-sizing-") as name:
        folder = Path(name)
        with fake_broker(folder) as (upstream, _):
            measure(folder, upstream).keep()


if __name__ == "__main__":
    main()
