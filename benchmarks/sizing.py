"""The tables of docs/sizing.md: ``python -m benchmarks.sizing`` prints them.

Each input is a measured figure: from ``sizing.json``, or quoted from ``measured-2026-11.txt``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.captured import JAVA_PRODUCER, LIBRDKAFKA_PRODUCER
from benchmarks.figures import table
from spark_streaming.settings import RetentionSettings

_KEPT: Final = Path(__file__).with_name("sizing.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Sizes in PostgreSQL of 10,000 instances of 500 client ids that push every five minutes."""

    #: Rows of ``metric_1m`` for one client id in a minute with a push, by client.
    by_client_id: Mapping[str, float]
    #: The same for a minute without a push: counts that go on.
    carried: Mapping[str, float]
    #: By table, with its indexes.
    bytes_by_row: Mapping[str, float]
    #: Rows in a minute of the tables that do not grow with clients, by table.
    fleet_rows: Mapping[str, float]
    #: By client, by :func:`packed_as`, and by table: the bytes of a row that is packed, with its
    #: share of the index.
    packed_bytes: Mapping[str, Mapping[str, Mapping[str, float]]]
    #: CPU of PostgreSQL to pack a row, in microseconds.
    packing_us: float
    #: Bytes that recognise a push again.
    push_bytes: float
    #: Bytes by data point that are kept to correct the minutes of a push.
    point_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything that was measured; by client where it differs."""

    measured_at: str
    #: The machine's load average.
    load_before: float
    #: Memory of the sidecar without clients, by its plugins.
    idle_mib: Mapping[str, float]
    #: Peak memory while 10,000 instances pushed, with both plugins.
    peak_mib: Mapping[str, float]
    #: Memory of a client instance that has pushed.
    instance_kib: Mapping[str, float]
    #: Memory of an idle connection whose TLS the sidecar ends.
    tls_connection_kib: float
    #: CPU of a new instance's get and push, with both plugins, in microseconds.
    cpu_us: Mapping[str, float]
    #: Data points of a push.
    points: Mapping[str, int]
    #: Bytes of a push as clients compress it (zstd).
    wire_bytes: Mapping[str, int]
    #: Bytes of a push as the plugin ``otlp`` sends it.
    otlp_bytes: Mapping[str, int]
    #: The same with ``compression: gzip``.
    gzip_bytes: Mapping[str, int]
    #: Bytes of a push in a plugin's spool, by pushes written at once.
    spool_bytes: Mapping[str, Mapping[str, int]]
    #: Bytes of a push in the files of ``spool_files``, by pushes in a file.
    file_bytes: Mapping[str, Mapping[str, int]]
    rows: Rows

    @classmethod
    def kept(cls) -> Measured:
        """Return the latest measurement."""
        document = json.loads(_KEPT.read_text())
        return cls(**{**document, "rows": Rows(**document["rows"])})

    def keep(self) -> None:
        """Replace the latest measurement."""
        _KEPT.write_text(json.dumps(asdict(self), indent=1) + "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quoted:
    """A figure of ``measured-2026-11.txt``, as written there."""

    text: str
    #: The line that has the figure, with single blanks.
    line: str

    @property
    def value(self) -> float:
        """The figure."""
        return float(self.text.replace(",", ""))


CONNECTION_KIB: Final = Quoted(text="3.0", line="sidecar 5,000 52.1 57.2 64.6 64.8 3.0 13.2")
ROLLUP_US: Final = Quoted(text="4.48", line="20.0 M 2 102.5 79.8 278,749 4.48 0.33 1550 1136")
ROLLUP_RATE: Final = Quoted(text="278,749", line="20.0 M 2 102.5 79.8 278,749 4.48 0.33 1550 1136")
QUOTED: Final = (CONNECTION_KIB, ROLLUP_US, ROLLUP_RATE)

_FLEETS: Final = (1_000, 10_000, 100_000)
_BROKERS: Final = (3, 10, 30)
_INTERVALS_S: Final = (300, 60)
_KINDS: Final = {"Java": JAVA_PRODUCER.client, "librdkafka": LIBRDKAFKA_PRODUCER.client}
SHARED: Final = 20
_OF_CLIENTS: Final = ("rollup_1m", "rollup_1h", "rollup_1d", "client_rollup_1m", "client_rollup_1h")
_DAY_S: Final = 86_400
_GB: Final = 1e9
_LEAST: Final = 0.01
_WHOLE: Final = 100
_SPOOL_BYTES: Final = 1 << 30
#: Pushes in a file of ``spool_files``, as a quiet sidecar writes one: the larger of both figures.
_IN_A_FILE: Final = "100"


def packed_as(sharing: int, interval_s: int) -> str:
    """Return the key of packed sizes.

    Args:
        sharing: Instances of a client id. If there are many, some push in nearly every minute.
        interval_s: Their push interval.
    """
    return f"{sharing} every {interval_s if sharing == 1 else 60} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fleet:
    """Client instances of one kind, all of which push; ``kind`` is a key of :class:`Measured`."""

    clients: int
    interval_s: int
    kind: str

    @property
    def pushes(self) -> float:
        """Pushes a second."""
        return self.clients / self.interval_s

    def rollup_cores(self, measured: Measured) -> float:
        """CPU of the roll-up, including PostgreSQL's for its connection."""
        return self.points(measured) * ROLLUP_US.value / 1e6

    def points(self, measured: Measured) -> float:
        """Data points a second."""
        return self.pushes * measured.points[self.kind]

    def postgres_bytes(self, measured: Measured, *, sharing: int) -> float:
        """Size of the database at the default retentions; ``sharing``: instances by client id."""
        rows, kept = measured.rows, RetentionSettings()
        packed = rows.packed_bytes[self.kind][packed_as(sharing, self.interval_s)]
        buckets = {"1m": 1440 * kept.minute_days, "1h": 24 * kept.hour_days, "1d": kept.day_days}
        # At most, before the next hour, day or month is packed.
        unpacked = {"1m": 60 * (kept.pack_after_hours + 1), "1h": 24 * 2 + kept.pack_after_hours, "1d": 33}
        in_a_minute = min(1.0, 60 / self.interval_s)

        def size(kind: str, grain: str) -> float:
            """Return the bytes of all rows of a key that has one in each bucket."""
            table = f"{kind}_{grain}"
            rest = max(0, buckets[grain] - unpacked[grain])
            # Days of the fleet are not measured, because they are few.
            each = packed.get(table, rows.bytes_by_row[table])
            return unpacked[grain] * rows.bytes_by_row[table] + rest * each

        pushed = 1 - (1 - in_a_minute) ** sharing
        most, least = rows.by_client_id[self.kind], rows.carried[self.kind]
        by_client_id = {"1m": pushed * most + (1 - pushed) * least, "1h": most, "1d": most}
        totals = sum(
            self.clients / sharing * by_client_id[grain] * size("rollup", grain)
            + sum(each * size(name.removesuffix("_1m"), grain) for name, each in rows.fleet_rows.items())
            for grain in buckets
        )
        clients = self.clients * (in_a_minute * size("client_rollup", "1m") + size("client_rollup", "1h"))
        pushes = self.pushes * kept.push_days * _DAY_S * rows.push_bytes
        contributions = self.points(measured) * kept.contribution_hours * 3600 * rows.point_bytes
        return totals + clients + pushes + contributions


def tables(measured: Measured) -> str:
    """Return the measurements, and the two tables of docs/sizing.md."""
    return "\n\n".join((_inputs(measured), _fleets(measured), _sidecars(measured)))


def _inputs(measured: Measured) -> str:
    """The measured figures, by client."""
    kinds, rows = tuple(_KINDS.values()), measured.rows
    by_client: list[tuple[str, Mapping[str, float]]] = [
        ("data points of a push", measured.points),
        ("bytes of a push from the client, zstd", measured.wire_bytes),
        ("... to a collector", measured.otlp_bytes),
        ("... with compression: gzip", measured.gzip_bytes),
        *_by_count("... in a spool, {} written at once", measured.spool_bytes),
        *_by_count("... in spool_files, {} in a file", measured.file_bytes),
        ("CPU us of a get and a push, with otlp and spool_files", measured.cpu_us),
        ("KiB of memory of an instance that pushed", measured.instance_kib),
        ("MiB, most, while 10,000 instances push", measured.peak_mib),
        ("rows of a client id in a minute with a push", rows.by_client_id),
        ("... in a minute without", rows.carried),
        *(
            (
                f"bytes of a packed row of {name}{words}",
                {kind: rows.packed_bytes[kind][packed_as(sharing, interval_s)][name] for kind in kinds},
            )
            for name, sharing, interval_s, words in (
                *((name, 1, 60, ", own id") for name in _OF_CLIENTS),
                ("rollup_1m", 1, 300, ", a push every 300 s"),
                ("rollup_1m", SHARED, 60, f", {SHARED} instances"),
            )
        ),
    ]
    of_all = [
        *((f"MiB of a sidecar without clients, {name}", mib) for name, mib in measured.idle_mib.items()),
        ("KiB of memory of an idle connection", CONNECTION_KIB.value),
        ("... whose TLS ends at the sidecar", measured.tls_connection_kib),
        *(
            (f"PostgreSQL, bytes of a row of {name}, with indexes", rows.bytes_by_row[name])
            for name in _OF_CLIENTS
        ),
        ("... to know a push again", rows.push_bytes),
        ("... to correct minutes, by data point", rows.point_bytes),
        ("... to pack a row, CPU us", rows.packing_us),
        ("roll-up, CPU us of a data point", ROLLUP_US.value),
    ]
    return table(
        ("measured", *_KINDS),
        [
            *((name, *(_figure(of[kind]) for kind in kinds)) for name, of in by_client),
            *((name, _figure(value), "the same") for name, value in of_all),
        ],
    )


def _by_count(name: str, sizes: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, Mapping[str, float]]]:
    for count in next(iter(sizes.values())):
        yield name.format(count), {kind: by_count[count] for kind, by_count in sizes.items()}


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
                _short(fleet.postgres_bytes(measured, sharing=SHARED) / _GB),
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
    """Return what each sidecar needs while one broker of the cluster is down."""
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


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= _WHOLE else f"{value:.3g}"


def _short(value: float) -> str:
    """Round to two digits, because more would be a promise."""
    if value < _LEAST:
        return f"< {_LEAST}"
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


if __name__ == "__main__":
    print(tables(Measured.kept()))
