"""A broker's heap over a day's pushes of 10,000 clients at Kafka's default interval."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.bridge_programs import Programs
from benchmarks.figures import Figure, Report, table
from benchmarks.processes import BenchmarkError
from receiver.bridge.listener import WINDOW
from tests.integration.bridge.peer import Peer
from tests.testbed.ports import LOOPBACK

_CLIENTS: Final = 10_000
_PUSHES_OF_A_DAY: Final = _CLIENTS * 24 * 12
_METRICS_BYTES: Final = 1_000
_MOST_SECONDS: Final = 1_800.0
_MIB: Final = 1 << 20


def run(folder: Path, *, quick: bool) -> Report:
    """Give the bridge a day's pushes as fast as they are taken, and read the heap on the way."""
    pushes = _PUSHES_OF_A_DAY // (20 if quick else 1)
    programs = Programs(folder)
    with Peer(keeps=False, window=WINDOW) as peer:
        lines = programs.lines(
            "HeapOverPushes",
            f"{LOOPBACK}:{peer.port}",
            programs.token,
            programs.metrics(folder / "metrics", _METRICS_BYTES),
            pushes,
            _CLIENTS,
            seconds=_MOST_SECONDS,
        )
    last = lines[-1]
    if last["acknowledged"] != pushes or last["dropped"]:
        raise BenchmarkError(f"{pushes:,} pushes were given, and the bridge counted {last}")
    heaps = [line["heap_bytes"] / _MIB for line in lines]
    rows = [
        (f"{line['acknowledged']:,}", f"{heap:.1f}", str(line["threads"]))
        for line, heap in zip(lines, heaps, strict=True)
    ]
    return Report(
        title=f"The heap over {pushes:,} pushes of {_CLIENTS:,} clients",
        text=table(("acknowledged", "heap MiB", "threads"), rows),
        raw=lines,
        figures=[
            Figure(
                name="bridge, growth of the heap over a day's pushes",
                value=max(heaps[2:]) - heaps[1],
                unit="MiB",
                at_most=1.0,
                note=f"{pushes:,} pushes; the most after the second tenth",
            )
        ],
    )
