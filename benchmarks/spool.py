"""Benchmark of the spool on disk: appends and replays, beside plain writes of the same bytes.

The *floor* is one write and one fdatasync for each batch, uncompressed.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.captured import Captured
from benchmarks.figures import Figure, Report, table
from benchmarks.plugins import captured_pushes, sizes
from receiver.host.push_format import encode_push
from receiver.host.spool import Spool
from receiver.plugin import Push

#: Pushes in an append: one that a client waits for, and what comes together under load.
BATCHES = (1, 16, 200)
_READ_BYTES = 2 << 20


class _Round(NamedTuple):
    """Sizes of a push in bytes, OTLP megabytes a second, CPU microseconds by push."""

    otlp_bytes: float
    disk_bytes: float
    floor_mb_s: float
    write_mb_s: float
    write_us: float
    replay_mb_s: float
    replay_us: float


def run(folder: Path, *, quick: bool) -> Report:
    """Append and replay pushes of a Java producer in batches of each size."""
    rounds, count = sizes(quick=quick)
    pushes = captured_pushes(count)
    measured = {batch: [_round(folder, pushes, batch) for _ in range(rounds)] for batch in BATCHES}
    head = (
        "append of", "OTLP B/push", "disk B/push", "disk alone MB/s", "write MB/s", "CPU us/push",
        "replay MB/s", "CPU us/push",
    )  # fmt: skip
    rows = [
        (f"{batch} pushes", *(f"{statistics.median(values):,.0f}" for values in zip(*found, strict=True)))
        for batch, found in measured.items()
    ]
    largest = measured[BATCHES[-1]]
    raw: dict[str, Any] = {
        str(batch): [item._asdict() for item in found] for batch, found in measured.items()
    }
    return Report(
        title="The spool on disk, pushes of a Java producer",
        text=table(head, rows),
        raw=raw,
        figures=[
            Figure(
                name=f"spool write / disk, {BATCHES[-1]} pushes an append",
                value=statistics.median(item.write_mb_s / item.floor_mb_s for item in largest),
                note=f"{statistics.median(item.write_mb_s for item in largest):.0f} MB/s of OTLP",
            )
        ],
    )


def disk_bytes(folder: Path, captured: Captured, pushes: int, batch: int) -> int:
    """Return the bytes on disk of a push that is appended in batches of a size."""
    return int(_round(folder, captured_pushes(pushes, captured), batch).disk_bytes)


def _round(folder: Path, pushes: Sequence[Push], batch: int) -> _Round:
    # As many appends for each size, because the smallest would wait for the disk for minutes.
    pushes = pushes[: max(batch, 16) * 200]
    batches = [pushes[start : start + batch] for start in range(0, len(pushes), batch)]
    otlp = sum(len(push.payload.data) for push in pushes)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        floor_s = _floor_s(Path(name) / "floor", batches)
        spool = Spool(Path(name) / "spool", max_bytes=1 << 32, segment_bytes=16 << 20)
        spool.open()
        began, cpu = time.monotonic(), time.thread_time()
        for item in batches:
            spool.append(item)
        write_s, write_cpu = time.monotonic() - began, time.thread_time() - cpu
        size = spool.statistics.bytes
        began, cpu = time.monotonic(), time.thread_time()
        while spooled := spool.read(200, _READ_BYTES):
            spool.commit(spooled[-1].position)
        replay_s, replay_cpu = time.monotonic() - began, time.thread_time() - cpu
        spool.close()
    return _Round(
        otlp_bytes=otlp // len(pushes),
        disk_bytes=size // len(pushes),
        floor_mb_s=otlp / floor_s / 1e6,
        write_mb_s=otlp / write_s / 1e6,
        write_us=write_cpu / len(pushes) * 1e6,
        replay_mb_s=otlp / replay_s / 1e6,
        replay_us=replay_cpu / len(pushes) * 1e6,
    )


def _floor_s(path: Path, batches: Sequence[Sequence[Push]]) -> float:
    encoded = [b"".join(map(encode_push, batch)) for batch in batches]
    with path.open("wb", buffering=0) as file:
        began = time.monotonic()
        for data in encoded:
            file.write(data)
            os.fdatasync(file.fileno())
        return time.monotonic() - began
