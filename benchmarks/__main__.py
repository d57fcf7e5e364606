"""The command ``python -m benchmarks``; it ends with each figure, its goal, and met or missed."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx

from benchmarks import (
    bridge_handler,
    bridge_heap,
    bridge_produce,
    bridge_sink,
    cluster,
    core,
    idle,
    passthrough,
    plugins,
    pushes,
    rollup,
    rollup_live,
    rollup_scaling,
    spool,
    subscriptions,
    subscriptions_shared,
)
from benchmarks.figures import Report, Results
from benchmarks.processes import BenchmarkError, allow_files
from tests.testbed.parts import NotSetUpError
from tests.testbed.process import StartError

_BUSY_LOAD = 0.5


_PARTS: dict[str, Callable[..., Report]] = {
    "core": core.run,
    "meaning": core.run_steps,
    "subscriptions": subscriptions.run,
    "shared-subscriptions": subscriptions_shared.run,
    "spool": spool.run,
    "plugins": plugins.run,
    "bridge": bridge_handler.run,
    "bridge-heap": bridge_heap.run,
    "bridge-produce": bridge_produce.run,
    "bridge-sink": bridge_sink.run,
    "pushes": pushes.run,
    "rollup": rollup.run,
    "rollup-scaling": rollup_scaling.run,
    "live": rollup_live.run,
    "idle": idle.run,
    "cluster": cluster.run,
    "pass-through": partial(passthrough.run, tls=False),
    "two-relays": passthrough.run_several,
    "rewrite": passthrough.run_rewrite,
    "tls": partial(passthrough.run, tls=True),
}
#: The parts that compare with another version.
_PARTS_WITH_OTHER = {"pushes", "rewrite"}
_ERRORS = (BenchmarkError, ConnectionError, NotSetUpError, StartError, httpx.HTTPError)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, which are noisier")
    parser.add_argument(
        "--part", action="append", choices=_PARTS, help="only this part of the benchmarks; may be repeated"
    )
    parser.add_argument(
        "--other-version",
        type=Path,
        metavar="PROGRAM",
        help="the kafka-telemetry of another version, measured in the same run (parts pushes and rewrite)",
    )
    parser.add_argument("--check", action="store_true", help="exit with status 1 unless every goal is met")
    parser.add_argument(
        "--results",
        type=Path,
        default=Path(__file__).parent / "results" / "latest.json",
        help="JSON file for every measurement",
    )
    return parser.parse_args()


def main() -> int:
    """Run the parts that the command line asks for; return the exit status."""
    options = _arguments()
    results = Results()
    try:
        allow_files()
        for name in options.part or _PARTS:
            with tempfile.TemporaryDirectory(prefix=f"kafka-telemetry-bench-{name}-") as folder:
                more = {"other_version": options.other_version} if name in _PARTS_WITH_OTHER else {}
                report = _PARTS[name](Path(folder), quick=options.quick, **more)
            print(f"\n{report.title}\n{report.text}\n", flush=True)
            results.raw[name] = report.raw
            results.figures += report.figures
    except _ERRORS as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    results.write(options.results)
    print(results.table())
    if results.load_before > _BUSY_LOAD:
        print(
            f"\nThe machine had other work (load average {results.load_before:.1f} before the run), so no "
            "figure is reliable, CPU included. Look at how far the rounds are apart."
        )
    print(f"\nEvery single measurement: {options.results}")
    missed = any(figure.verdict == "MISSED" for figure in results.figures)
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
