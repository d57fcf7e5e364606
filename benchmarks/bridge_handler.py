"""What the bridge costs a broker: the request handler that calls it, and the rest of the process.

Beside an exporter that does nothing, in turns in one JVM, with pushes of two sizes. An exporter
that copies the metrics and does nothing else shows how much of it is the copy. The JVM has a
broker's flags and a touched heap, because a copy into new memory costs several times more.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, Final

from benchmarks.bridge_programs import Programs
from benchmarks.figures import Figure, Report, table
from receiver.bridge.listener import WINDOW
from tests.integration.bridge.peer import Peer
from tests.testbed.ports import LOOPBACK

_MOST_SECONDS: Final = 600.0
_RATE: Final = 2000
#: Bytes of metrics, and the most microseconds that a call may take more than one of nothing.
_SIZES: Final = {"small": (1_000, 5.0), "27 kB": (27_000, 20.0)}
#: The heap and collector of Kafka's own start scripts (kafka-server-start.sh, kafka-run-class.sh),
#: and a heap that has been touched. A broker runs for days, so its heap is. A JVM that has just
#: started meets new pages all the time, and a virtual machine pays for each of them: the measured
#: time is then that of page faults. ``AlwaysPreTouch`` touches all pages at the start. ``-Xmn`` has
#: the same pages used again every few seconds, because the host may take back those that are idle.
_BROKER: Final = (
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Xms1g",
    "-Xmx1g",
    "-Xmn64m",
    "-XX:+AlwaysPreTouch",
    "-XX:-UsePerfData",
)


def run(folder: Path, *, quick: bool) -> Report:
    """Call each exporter 2,000 times a second, and compare."""
    seconds, rounds = (3, 2) if quick else (10, 5)
    programs = Programs(folder, flags=_BROKER)
    rows, raw, figures = [], {}, []
    for name, (size, at_most_us) in _SIZES.items():
        metrics = programs.metrics(folder / "metrics", size)
        with Peer(keeps=False, window=WINDOW) as peer:
            receiver = f"{LOOPBACK}:{peer.port}"
            arguments = (receiver, programs.token, metrics, _RATE, seconds, rounds)
            found = programs.lines("HandlerCost", *arguments, seconds=_MOST_SECONDS)
            arrived = peer.count
        raw[name] = found
        by = {
            kind: [line for line in found if line["exporter"] == kind]
            for kind in ("nothing", "copy", "bridge")
        }
        more_us = _more(by, "handler_cpu_ns") / 1e3
        more_cpu = _more(by, "cpu_s") / seconds
        rows.append(
            (
                name,
                f"{_median(by['nothing'], 'handler_cpu_ns') / 1e3:.2f}",
                f"{_median(by['copy'], 'handler_cpu_ns') / 1e3:.2f}",
                f"{_median(by['bridge'], 'handler_cpu_ns') / 1e3:.2f}",
                f"{_median(by['bridge'], 'median_ns') / 1e3:.2f}",
                f"{_median(by['bridge'], 'p99_ns') / 1e3:.1f}",
                f"{100 * more_cpu:.2f} %",
                f"{arrived:,}",
            )
        )
        figures += [
            Figure(name=f"bridge, handler, {name}", value=more_us, unit="us of CPU more", at_most=at_most_us),
            Figure(
                name=f"bridge, {_RATE:,} pushes/s of {name}",
                value=100 * more_cpu,
                unit="% of a core more",
                at_most=1.0 if name == "small" else None,
            ),
        ]
    head = (
        "metrics",
        "no-op CPU us",
        "copy CPU us",
        "bridge CPU us",
        "p50 us",
        "p99 us",
        "core more",
        "arrived",
    )
    return Report(title="The bridge in a broker", text=table(head, rows), raw=raw, figures=figures)


def _median(rounds: list[dict[str, Any]], value: str) -> float:
    return statistics.median(float(line[value]) for line in rounds)


def _more(by: dict[str, list[dict[str, Any]]], value: str) -> float:
    """The median of what the bridge took more in each round."""
    pairs = zip(by["bridge"], by["nothing"], strict=True)
    return statistics.median(float(bridge[value]) - float(nothing[value]) for bridge, nothing in pairs)
