"""``python -m benchmarks.sizing_measured``: bytes per client, per push and per row, for sizing.

Owns how these are measured; it multiplies nothing. Bytes and memory hardly depend on what else the
machine does; CPU does, so the load is kept beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import psycopg
import yaml
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks import relays, spool
from benchmarks.__main__ import OPEN_FILES, fake_broker
from benchmarks.captured import JAVA_PRODUCER, LIBRDKAFKA_PRODUCER, Captured
from benchmarks.load_generator import pushed_instances
from benchmarks.plugins import captured_pushes
from benchmarks.processes import allow_files
from benchmarks.relays import Relay
from benchmarks.rollup_spool import Fleet
from benchmarks.sizing_figures import Measured, Rows
from receiver.catalogue import Combination
from receiver.host.discovery import load_plugins
from receiver.host.host import PluginHost
from spark_streaming.embedded import EmbeddedPostgres
from spark_streaming.rows import RULES
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.collector import Collector

__all__ = ["SizingError", "measure"]

CLIENTS: Final = (JAVA_PRODUCER, LIBRDKAFKA_PRODUCER)

#: As a fleet pushes over the files of a spool, and how many minutes of it are rolled up.
_POINTS: Final = 2_000_000
_FEW, _MANY = 1_000, 10_000
_CONNECTIONS: Final = 20
_TLS_FIRST, _TLS_MORE = 500, 1_500
_IN_A_FILE: Final = (100, 1_000)
_IN_AN_EXPORT: Final = 100
_SETTLE_S: Final = 2.0
_STOP_S: Final = 60.0
_WITHIN_S: Final = 1_800.0
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_KIB: Final = 1024
_MIB: Final = 1024 * 1024


class SizingError(RuntimeError):
    """Something could not be measured; the text says what, and why."""


def measure(folder: Path, upstream: str) -> Measured:
    """Measure everything.

    Args:
        folder: A scratch folder.
        upstream: host:port of the load server.

    Raises:
        SizingError: The roll-up failed.
        LoadError, ProcessError, RelayMissingError, NotSetUpError, StartError: A part can't be run.
    """
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
        tls_connection_kib=_tls_connection(folder, upstream) / _KIB,
        cpu_us={client.client: cpu_s * 1e6 for client, (_, _, cpu_s) in busy.items()},
        points={client.client: _points(client) for client in CLIENTS},
        wire_bytes={client.client: len(client.zstd()) for client in CLIENTS},
        otlp_bytes={client.client: sum(map(len, of)) // len(of) for client, of in payloads.items()},
        gzip_bytes={
            client.client: len(zlib.compress(b"".join(of[:_IN_AN_EXPORT]), wbits=31)) // _IN_AN_EXPORT
            for client, of in payloads.items()
        },
        spool_bytes={client.client: _spool_bytes(folder, client) for client in CLIENTS},
        file_bytes={
            client.client: {str(count): _file_bytes(folder, client, count) for count in _IN_A_FILE}
            for client in CLIENTS
        },
        rows=_rows(folder),
    )


@contextlib.contextmanager
def _sidecar(folder: Path, upstream: str, plugins: str = "[]") -> Iterator[Relay]:
    own = folder / f"sidecar-{time.monotonic_ns()}"
    own.mkdir()
    with relays.sidecar(upstream, own, plugins=plugins) as relay:
        body = {"metrics": ["*"], "interval_ms": 300_000}
        url = f"http://{relay.rest}/v1/subscriptions/sizing"
        httpx.put(url, json=body, trust_env=False).raise_for_status()
        time.sleep(_SETTLE_S)
        yield relay


def _resident(relay: Relay) -> int:
    time.sleep(_SETTLE_S)
    assert relay.process is not None
    return relay.process.resident_bytes()


def _pushed(relay: Relay, file: Path, instances: int) -> contextlib.AbstractContextManager[float]:
    assert relay.process is not None
    return pushed_instances(
        relay.target, payload=file, connections=_CONNECTIONS, instances=instances, cpu_of=relay.process.pid
    )


def _bare(folder: Path, upstream: str, file: Path) -> tuple[int, float]:
    """Bytes of a sidecar without plugins, and of each of the later nine in ten instances."""
    with _sidecar(folder, upstream) as relay:
        idle = _resident(relay)
        with _pushed(relay, file, _FEW):
            few = _resident(relay)
            with _pushed(relay, file, _MANY - _FEW):
                many = _resident(relay)
    return idle, (many - few) / (_MANY - _FEW)


def _busy(folder: Path, upstream: str, file: Path) -> tuple[int, int, float]:
    """Bytes of a sidecar with plugins, the most that it held, and CPU seconds by get and push."""
    with Collector() as collector:
        plugins = [
            {"type": "otlp", "endpoint": collector.grpc_endpoint, "protocol": "grpc"},
            {"type": "spool_files", "path": "telemetry"},
        ]
        with _sidecar(folder, upstream, json.dumps(plugins)) as relay:
            idle = _resident(relay)
            assert relay.process is not None
            with _pushed(relay, file, _MANY) as cpu_s:
                pass
            # Two threads go on after the last answer: what they export is nobody's pair.
            return idle, relay.process.peak_bytes(), cpu_s / _MANY


def _tls_connection(folder: Path, upstream: str) -> float:
    tls = CertificateAuthority().issue().write(folder)
    own = folder / "tls"
    own.mkdir()
    context = ssl.create_default_context(cafile=tls.ca)
    context.check_hostname = False
    with relays.sidecar(upstream, own, tls=tls) as relay, contextlib.ExitStack() as held:

        def connect(count: int) -> int:
            host, _, port = relay.target.rpartition(":")
            for _ in range(count):
                plain = held.enter_context(socket.create_connection((host, int(port)), timeout=30))
                connection = held.enter_context(context.wrap_socket(plain))
                connection.sendall(_API_VERSIONS)
                connection.recv(4096)
            return _resident(relay)

        first = connect(_TLS_FIRST)
        return (connect(_TLS_MORE) - first) / _TLS_MORE


def _points(client: Captured) -> int:
    data = MetricsData.FromString(client.inflated())
    metrics = [
        metric for of in data.resource_metrics for scope in of.scope_metrics for metric in scope.metrics
    ]
    return sum(len((one.sum if one.HasField("sum") else one.gauge).data_points) for one in metrics)


def _spool_bytes(folder: Path, client: Captured) -> dict[str, int]:
    seen = spool.measure(folder, rounds=1, pushes=max(_IN_A_FILE), captured=client)
    return {str(batch): one.disk_bytes for batch, one in seen.items()}


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
    # As files come while the fleet goes on: one, then the next.
    config.write_text(yaml.safe_dump({"spool_files": {"max_files": 1}}))
    with EmbeddedPostgres(folder / "postgres") as server:
        command = [
            *(sys.executable, "-m", "spark_streaming", "run", "--once", "--source", "spool_files"),
            *("--path", str(path), "--postgres", server.url, "--checkpoint", str(folder / "checkpoint")),
            *("--config", str(config)),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_WITHIN_S)
        if done.returncode:
            raise SizingError(f"the roll-up failed:\n{done.stderr[-3_000:]}")
        with psycopg.connect(server.url) as connection:
            return _rows_of(connection, pushes=pushes, points=points)


_TABLES: Final = """
SELECT parent.relname, sum(pg_total_relation_size(part.oid))
FROM pg_class AS parent
JOIN pg_inherits ON inhparent = parent.oid
JOIN pg_class AS part ON part.oid = inhrelid
WHERE parent.relnamespace = 'telemetry'::regnamespace AND parent.relkind = 'p'
GROUP BY 1
"""
#: The minutes at both ends are not whole.
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
            raise SizingError(f"the roll-up has no such rows: {query}")
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
        fleet_rows={
            name: number(_WHOLE_MINUTES.format(table=name)) for name in ("fleet_rollup_1m", "fleet_spread_1m")
        },
        push_bytes=sizes["push"] / pushes,
        point_bytes=sizes["contribution"] / points,
    )


def main() -> None:
    """Measure everything, and keep it for ``python -m benchmarks.sizing``."""
    allow_files(OPEN_FILES)
    with tempfile.TemporaryDirectory(prefix="kafka-telemetry-sizing-") as name:
        folder = Path(name)
        with fake_broker(folder) as (upstream, _):
            measure(folder, upstream).keep()


if __name__ == "__main__":
    main()
