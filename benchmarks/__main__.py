"""The command ``python -m benchmarks``; it ends with each figure, its goal, and met or missed."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import load_generator, passthrough, relays
from benchmarks.figures import RESULTS, Results
from benchmarks.processes import ProcessError, Running, allow_files, free_port, on_cores, running

OPEN_FILES = 16_384
SUBJECT = "sidecar"
BUSY = 0.5


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer and shorter rounds: noisier, a minute in all"
    )
    parser.add_argument(
        "--rounds", type=int, help="rounds of pass-through, in each placement (default 11; 3 with --quick)"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="TEXT",
        help="only the shapes of traffic with TEXT in their name, as '64 kB' or 'in flight'; may be repeated",
    )
    parser.add_argument(
        "--proxy-command",
        metavar="TEMPLATE",
        help="measure any other relay in place of the sidecar: a command with {listen} and {upstream} in it "
        "(host:port each; no shell); {folder} is a temporary folder",
    )
    parser.add_argument("--no-sidecar", action="store_true", help="direct and HAProxy only")
    parser.add_argument("--check", action="store_true", help="exit with status 1 unless every goal is met")
    parser.add_argument(
        "--results", type=Path, default=RESULTS / "latest.json", help="where to keep the JSON"
    )
    return parser.parse_args()


@contextlib.contextmanager
def fake_broker(folder: Path) -> Iterator[tuple[str, Running]]:
    """Run the load server; the values are its host:port and its process."""
    listen = f"127.0.0.1:{free_port()}"
    command = [str(load_generator.build()), "server", f"--listen={listen}"]
    with running("load-server", command, folder=folder, ready=listen) as process:
        yield listen, process


def pass_through(options: argparse.Namespace, folder: Path, results: Results) -> None:
    """Measure pass-through, print its table and add its figures."""
    missing = ""
    with contextlib.ExitStack() as stack:
        upstream, broker = stack.enter_context(fake_broker(folder))
        measured = [
            stack.enter_context(relays.direct(upstream)),
            stack.enter_context(relays.haproxy(upstream, folder)),
        ]
        if options.proxy_command:
            measured.append(
                stack.enter_context(relays.other(SUBJECT, options.proxy_command, upstream, folder))
            )
        elif options.no_sidecar:
            missing = "left out by --no-sidecar"
        else:
            measured.append(stack.enter_context(relays.sidecar(upstream, folder)))
        processes = [broker, *(relay.process for relay in measured if relay.process)]
        rounds = options.rounds or (3 if options.quick else 11)
        timings = {}
        everywhere = os.sched_getaffinity(0)
        for placement, cores in ((passthrough.ONE_CORE, {max(everywhere)}), (passthrough.FREE, everywhere)):
            with on_cores(cores, processes):
                timings[placement] = passthrough.measure(
                    measured, placement=placement, rounds=rounds, only=options.only
                )
    for placement, measured_there in timings.items():
        print(f"\nPass-through, {placement}\n{passthrough.describe(measured_there)}")
        passthrough.record(placement, measured_there, results)
    print()
    results.figures += passthrough.figures(
        timings[passthrough.ONE_CORE], timings[passthrough.FREE], SUBJECT, why_missing=missing
    )


def main() -> int:
    """Run what the command line asks for; the value is the exit status."""
    options = arguments()
    results = Results()
    try:
        allow_files(OPEN_FILES)
        with tempfile.TemporaryDirectory(prefix="kafka-telemetry-bench-") as folder:
            pass_through(options, Path(folder), results)
    except (load_generator.LoadError, ProcessError, relays.RelayMissingError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    results.write(options.results)
    print(results.table())
    if results.load_before > BUSY:
        print(
            f"\nThe machine had other work (load average {results.load_before:.1f} before the run): "
            "throughput, latency and large requests are unreliable; CPU of small requests on one core is not."
        )
    print(f"\nEvery single measurement: {options.results}")
    missed = [figure for figure in results.figures if figure.verdict not in {"", "met"}]
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
