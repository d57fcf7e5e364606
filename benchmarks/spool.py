"""What the spool on disk writes and replays in a second, and what it costs by push.

Owns the loop over batch sizes. The *floor* beside it is what a disk does with the same bytes at
once: one write and one fdatasync for each batch, uncompressed.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.captured import JAVA_PRODUCER, Captured
from benchmarks.figures import Figure, Results, table
from benchmarks.plugins import captured_pushes
from receiver.host.push_format import encode_push
from receiver.host.spool import Spool
from receiver.plugin import Push

#: Pushes in an append: one that a client waits for, and what comes together under load.
BATCHES = (1, 16, 200)
_READ_BYTES = 2 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Spooling:
    """What was seen with one batch size, by round.

    Attributes:
        otlp_bytes: OTLP bytes of a push.
        disk_bytes: Bytes on disk of a push.
        floor_mb_s: OTLP megabytes a second that a write and an fdatasync take.
        write_mb_s: OTLP megabytes a second appended.
        write_us: Microseconds of CPU by push appended.
        replay_mb_s: OTLP megabytes a second read and committed.
        replay_us: Microseconds of CPU by push replayed.
    """

    otlp_bytes: int
    disk_bytes: int
    floor_mb_s: tuple[float, ...]
    write_mb_s: tuple[float, ...]
    write_us: tuple[float, ...]
    replay_mb_s: tuple[float, ...]
    replay_us: tuple[float, ...]


def measure(
    folder: Path, *, rounds: int, pushes: int, captured: Captured = JAVA_PRODUCER
) -> Mapping[int, Spooling]:
    """Append and replay so many pushes in each batch size, so many times."""
    offered = captured_pushes(pushes, captured)
    return {batch: _spooling(folder, offered, batch, rounds) for batch in BATCHES}


def _spooling(folder: Path, pushes: Sequence[Push], batch: int, rounds: int) -> Spooling:
    # As many appends for each, or the smallest batch would take minutes of waiting for the disk.
    pushes = pushes[: max(batch, 16) * 200]
    batches = [pushes[start : start + batch] for start in range(0, len(pushes), batch)]
    seen = [_round(folder, batches) for _ in range(rounds)]
    floors, writes, write_us, replays, replay_us, sizes = zip(*seen, strict=True)
    return Spooling(
        otlp_bytes=_otlp_bytes(batches) // len(pushes),
        disk_bytes=sizes[0] // len(pushes),
        floor_mb_s=floors,
        write_mb_s=writes,
        write_us=write_us,
        replay_mb_s=replays,
        replay_us=replay_us,
    )


def _round(folder: Path, batches: Sequence[Sequence[Push]]) -> tuple[float, float, float, float, float, int]:
    pushes = sum(map(len, batches))
    megabytes = _otlp_bytes(batches) / 1e6
    with tempfile.TemporaryDirectory(dir=folder) as name:
        floor_s = _floor_s(Path(name) / "floor", batches)
        spool = Spool(Path(name) / "spool", max_bytes=1 << 32, segment_bytes=16 << 20)
        spool.open()
        began, cpu = time.monotonic(), time.thread_time()
        for batch in batches:
            spool.append(batch)
        write_s, write_cpu = time.monotonic() - began, time.thread_time() - cpu
        size = spool.statistics.bytes
        began, cpu = time.monotonic(), time.thread_time()
        while spooled := spool.read(200, _READ_BYTES):
            spool.commit(spooled[-1].position)
        replay_s, replay_cpu = time.monotonic() - began, time.thread_time() - cpu
        spool.close()
    return (
        megabytes / floor_s,
        megabytes / write_s,
        write_cpu / pushes * 1e6,
        megabytes / replay_s,
        replay_cpu / pushes * 1e6,
        size,
    )


def _floor_s(path: Path, batches: Sequence[Sequence[Push]]) -> float:
    encoded = [b"".join(map(encode_push, batch)) for batch in batches]
    with path.open("wb", buffering=0) as file:
        began = time.monotonic()
        for data in encoded:
            file.write(data)
            os.fdatasync(file.fileno())
        return time.monotonic() - began


def _otlp_bytes(batches: Sequence[Sequence[Push]]) -> int:
    return sum(len(push.payload.data) for batch in batches for push in batch)


def figures(seen: Mapping[int, Spooling]) -> list[Figure]:
    """Return writing beside the floor, in batches as they come under load."""
    spooling = seen[BATCHES[-1]]
    ratios = [write / floor for write, floor in zip(spooling.write_mb_s, spooling.floor_mb_s, strict=True)]
    return [
        Figure(
            name=f"spool write / disk, {BATCHES[-1]} pushes an append",
            value=statistics.median(ratios),
            note=f"{statistics.median(spooling.write_mb_s):.0f} MB/s of OTLP",
        )
    ]


def describe(seen: Mapping[int, Spooling]) -> str:
    """Return a table by batch size."""
    rows = [
        (
            f"{batch} pushes",
            f"{one.otlp_bytes:,}",
            f"{one.disk_bytes:,}",
            *(
                f"{statistics.median(values):.0f}"
                for values in (
                    one.floor_mb_s,
                    one.write_mb_s,
                    one.write_us,
                    one.replay_mb_s,
                    one.replay_us,
                )
            ),
        )
        for batch, one in seen.items()
    ]
    head = (
        "append of",
        "OTLP B/push",
        "disk B/push",
        "disk alone MB/s",
        "write MB/s",
        "CPU us/push",
        "replay MB/s",
        "CPU us/push ",
    )
    return table(head, rows)


def record(seen: Mapping[int, Spooling], results: Results) -> None:
    """Keep every round in ``results``."""
    results.raw["spool"] = {str(batch): asdict(one) for batch, one in seen.items()}
