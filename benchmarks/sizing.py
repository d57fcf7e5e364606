"""The capacity tables of docs/sizing.md: ``python -m benchmarks.sizing``, and ``--measure`` to measure anew.

Owns what is multiplied with what. Every input is a measured figure: of :mod:`benchmarks.sizing_measured`, as
kept in ``results/sizing.json``, or of docs/benchmarks.md, which is quoted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.__main__ import OPEN_FILES, fake_broker
from benchmarks.captured import JAVA_PRODUCER, LIBRDKAFKA_PRODUCER
from benchmarks.figures import table
from benchmarks.processes import allow_files
from benchmarks.sizing_measured import KEPT, Measured, measure
from spark_streaming.settings import RetentionSettings

__all__ = ["QUOTED", "Quoted", "tables"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quoted:
    """A figure of docs/benchmarks.md.

    Attributes:
        value: The figure.
        line: Where it stands, with blanks as they come.
    """

    value: float
    line: str


CONNECTION_KIB: Final = Quoted(value=3.0, line="sidecar 5,000 52.1 57.2 64.6 64.8 3.0 13.2")
ROLLUP_US: Final = Quoted(value=10.40, line="5.0 M 2 81.2 61.4 130,993 10.40 0.38 1475 1193")
ROLLUP_RATE: Final = Quoted(value=130_993, line="5.0 M 2 81.2 61.4 130,993 10.40 0.38 1475 1193")
QUOTED: Final = (CONNECTION_KIB, ROLLUP_US, ROLLUP_RATE)

_FLEETS: Final = (1_000, 10_000, 100_000)
_BROKERS: Final = (3, 10, 30)
_INTERVALS_S: Final = (300, 60)
_KINDS: Final = {"Java": JAVA_PRODUCER.client, "librdkafka": LIBRDKAFKA_PRODUCER.client}
_SHARED: Final = 20
_DAY_S: Final = 86_400
_GB: Final = 1e9
_LEAST: Final = 0.01
_SPOOL_BYTES: Final = 1 << 30
#: Pushes in a file of ``spool_files``, as a quiet sidecar writes one: the larger of both figures.
_IN_A_FILE: Final = "100"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fleet:
    """Clients of one kind, all of which push.

    Attributes:
        clients: Client instances.
        interval_s: How often each pushes.
        kind: Its name in :class:`Measured`.
    """

    clients: int
    interval_s: int
    kind: str

    @property
    def pushes(self) -> float:
        """Pushes a second."""
        return self.clients / self.interval_s

    def rollup_cores(self, measured: Measured) -> float:
        """CPU that the roll-up needs, PostgreSQL's for its connection included."""
        return self.points(measured) * ROLLUP_US.value / 1e6

    def points(self, measured: Measured) -> float:
        """Data points a second."""
        return self.pushes * measured.points[self.kind]

    def postgres_bytes(self, measured: Measured, *, sharing: int) -> float:
        """The database at the default retentions.

        Args:
            measured: What rows take.
            sharing: How many instances share a client id.
        """
        rows, kept = measured.rows, RetentionSettings()
        minutes, hours = 1440 * kept.minute_days, 24 * kept.hour_days
        buckets = {"1m": minutes, "1h": hours, "1d": kept.day_days}
        in_a_minute = min(1.0, 60 / self.interval_s)
        pushed = 1 - (1 - in_a_minute) ** sharing
        most, least = rows.by_client_id[self.kind], rows.carried[self.kind]
        by_client_id = {"1m": pushed * most + (1 - pushed) * least, "1h": most, "1d": most}
        totals = sum(
            self.clients / sharing * by_client_id[grain] * count * rows.bytes_by_row[f"rollup_{grain}"]
            + sum(
                each * count * rows.bytes_by_row[name.replace("1m", grain)]
                for name, each in rows.fleet_rows.items()
            )
            for grain, count in buckets.items()
        )
        clients = self.clients * (
            in_a_minute * minutes * rows.bytes_by_row["client_rollup_1m"]
            + hours * rows.bytes_by_row["client_rollup_1h"]
        )
        pushes = self.pushes * kept.push_days * _DAY_S * rows.push_bytes
        contributions = self.points(measured) * kept.contribution_hours * 3600 * rows.point_bytes
        return totals + clients + pushes + contributions


def tables(measured: Measured) -> str:
    """Return both tables, as they stand in docs/sizing.md."""
    return "\n\n".join((_fleets(measured), _sidecars(measured)))


def _fleets(measured: Measured) -> str:
    head = (
        "clients", "push every", "of", "pushes/s", "points/s", "to collector MB/s", "spool_files GB/day",
        "roll-up cores", "PostgreSQL GB", "... with own ids",
    )  # fmt: skip
    rows = []
    for fleet in _all_fleets():
        cores = fleet.rollup_cores(measured)
        name = next(name for name, kind in _KINDS.items() if kind == fleet.kind)
        rows.append(
            (
                f"{fleet.clients:,}",
                f"{fleet.interval_s} s",
                name,
                _short(fleet.pushes),
                _short(fleet.points(measured)),
                _short(fleet.pushes * measured.otlp_bytes[fleet.kind] / 1e6),
                _short(fleet.pushes * measured.file_bytes[fleet.kind][_IN_A_FILE] * _DAY_S / _GB),
                f"{_short(cores)}{' *' if fleet.points(measured) > ROLLUP_RATE.value else ''}",
                _short(fleet.postgres_bytes(measured, sharing=_SHARED) / _GB),
                _short(fleet.postgres_bytes(measured, sharing=1) / _GB),
            )
        )
    return table(head, rows)


def _all_fleets() -> Iterator[_Fleet]:
    for clients in _FLEETS:
        for interval_s in _INTERVALS_S:
            for kind in _KINDS.values():
                yield _Fleet(clients=clients, interval_s=interval_s, kind=kind)


def _sidecars(measured: Measured) -> str:
    """What each sidecar needs while one broker of the cluster is away."""
    java, librdkafka = _KINDS.values()
    head = (
        "clients", "brokers", "connections", "instances", "MiB", "MiB, TLS", "cores, Java, 300 s",
        "Java, 60 s", "librdkafka, 60 s", "spool of 1 GiB, h",
    )  # fmt: skip
    rows = []
    for clients in _FLEETS:
        for brokers in _BROKERS:
            instances = clients / (brokers - 1)
            own = max(measured.peak_mib.values()) * 1024 + instances * measured.instance_kib[java]
            often = instances / 60
            rows.append(
                (
                    f"{clients:,}",
                    str(brokers),
                    f"{clients:,}",
                    f"{instances:,.0f}",
                    _short((own + clients * CONNECTION_KIB.value) / 1024),
                    _short((own + clients * measured.tls_connection_kib) / 1024),
                    _short(instances / 300 * measured.cpu_us[java] / 1e6),
                    _short(often * measured.cpu_us[java] / 1e6),
                    _short(often * measured.cpu_us[librdkafka] / 1e6),
                    _short(_SPOOL_BYTES / measured.spool_bytes[java]["1"] / often / 3600),
                )
            )
    return table(head, rows)


def _short(value: float) -> str:
    """Two digits that count: more would be a promise."""
    if value < _LEAST:
        return f"< {_LEAST}"
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def main() -> int:
    """Print the tables; the value is the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sizing", description=__doc__)
    parser.add_argument(
        "--measure", action="store_true", help=f"measure anew first, into {KEPT.name}: some minutes"
    )
    if parser.parse_args().measure:
        allow_files(OPEN_FILES)
        with tempfile.TemporaryDirectory(prefix="kafka-telemetry-sizing-") as name:
            folder = Path(name)
            with fake_broker(folder) as (upstream, _):
                measure(folder, upstream).keep()
    print(tables(Measured.kept()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
