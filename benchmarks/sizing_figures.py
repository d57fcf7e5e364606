"""The measured figures that sizing needs, as they are kept in ``sizing.json``.

Owns their form. :mod:`benchmarks.sizing_measured` measures them, :mod:`benchmarks.sizing`
multiplies them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

__all__ = ["KEPT", "Measured", "Rows"]

KEPT: Final = Path(__file__).with_name("sizing.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Sizes in PostgreSQL of 10,000 instances of 500 client ids that push every five minutes.

    Attributes:
        by_client_id: Rows of ``metric_1m`` for one client id in a minute with a push, by client.
        carried: The same for a minute without one: of what goes on, as its counts.
        bytes_by_row: Of each table, its indexes included.
        fleet_rows: Rows in a minute of the tables that don't grow with clients, by table.
        push_bytes: To know a push again.
        point_bytes: To correct a push's minutes, by each of its points.
    """

    by_client_id: Mapping[str, float]
    carried: Mapping[str, float]
    bytes_by_row: Mapping[str, float]
    fleet_rows: Mapping[str, float]
    push_bytes: float
    point_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything measured; by client where it differs.

    Attributes:
        measured_at: When.
        load_before: The machine's load average.
        idle_mib: The sidecar's own memory without clients, by its plugins.
        peak_mib: The most that it held while 10,000 instances pushed, with both plugins, by client.
        instance_kib: Memory of a client instance that has pushed.
        tls_connection_kib: Memory of an idle connection whose TLS the sidecar ends.
        cpu_us: CPU of a new instance's get and push, with both plugins, in microseconds.
        points: Data points of a push.
        wire_bytes: A push as clients compress it (zstd).
        otlp_bytes: A push as the plugin ``otlp`` sends it.
        gzip_bytes: The same with ``compression: gzip``.
        spool_bytes: A push in a plugin's spool, by how many were written at once.
        file_bytes: A push in the files of ``spool_files``, by how many are in a file.
        rows: In PostgreSQL.
    """

    measured_at: str
    load_before: float
    idle_mib: Mapping[str, float]
    peak_mib: Mapping[str, float]
    instance_kib: Mapping[str, float]
    tls_connection_kib: float
    cpu_us: Mapping[str, float]
    points: Mapping[str, int]
    wire_bytes: Mapping[str, int]
    otlp_bytes: Mapping[str, int]
    gzip_bytes: Mapping[str, int]
    spool_bytes: Mapping[str, Mapping[str, int]]
    file_bytes: Mapping[str, Mapping[str, int]]
    rows: Rows

    @classmethod
    def kept(cls) -> Measured:
        """Return what was measured last."""
        document = json.loads(KEPT.read_text())
        return cls(**{**document, "rows": Rows(**document["rows"])})

    def keep(self) -> None:
        """Write it where :meth:`kept` finds it."""
        KEPT.write_text(json.dumps(asdict(self), indent=1) + "\n")
