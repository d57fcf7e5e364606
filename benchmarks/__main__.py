"""The command ``python -m benchmarks``; it ends with each figure, its goal, and met or missed."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import httpx

from benchmarks import (
    core,
    idle,
    load_generator,
    meaning,
    passthrough,
    plugins,
    pushes,
    relays,
    rollup,
    spool,
)
from benchmarks.figures import RESULTS, Figure, Results
from benchmarks.processes import ProcessError, Running, allow_files, free_port, on_cores, running
from tests.testbed.certificates import CertificateAuthority, CertificateFiles
from tests.testbed.parts import NotSetUpError
from tests.testbed.process import StartError

OPEN_FILES = 16_384
SUBJECT = "sidecar"
BUSY = 0.5
Seen = TypeVar("Seen", contravariant=True)
_Seen = TypeVar("_Seen")

PARTS = ("core", "meaning", "spool", "plugins", "pushes", "rollup", "idle", "pass-through", "tls")
PASS_THROUGH_ROUNDS = 7
PUSH_ROUNDS = 5
CORE_ROUNDS = 21
PLUGIN_ROUNDS = 3
PLUGIN_PUSHES = 6_000


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer and shorter rounds: noisier, a minute in all"
    )
    parser.add_argument(
        "--part",
        action="append",
        default=[],
        choices=PARTS,
        help="only this part of the benchmarks; may be repeated",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        help="rounds of pass-through (with TLS or not) and of pushes, in each placement (default "
        f"{PASS_THROUGH_ROUNDS} and {PUSH_ROUNDS}; with --quick 3 and 1)",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="TEXT",
        help="pass-through and tls: only the shapes of traffic with TEXT in their name, for example '64 kB'; "
        "may be repeated",
    )
    parser.add_argument(
        "--proxy-command",
        metavar="TEMPLATE",
        help="pass-through and memory: measure any other relay in place of the sidecar, by a command with "
        "{listen} and {upstream} in it (host:port each; no shell); {folder} is a temporary folder",
    )
    parser.add_argument(
        "--no-sidecar", action="store_true", help="pass-through and memory: direct and HAProxy only"
    )
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


class Part(Protocol[Seen]):
    """What a module of these benchmarks does with what it has seen."""

    def describe(self, seen: Seen, /) -> str:
        """Return a table."""

    def record(self, seen: Seen, results: Results, /) -> None:
        """Keep every single measurement."""

    def figures(self, seen: Seen, /) -> list[Figure]:
        """Return the figures, with their goals."""


def report(title: str, part: Part[_Seen], seen: _Seen, results: Results) -> None:
    """Print the table of what was seen, and keep it with its figures."""
    print(f"\n{title}\n{part.describe(seen)}\n")
    part.record(seen, results)
    results.figures += part.figures(seen)


def measured_core(options: argparse.Namespace, results: Results) -> None:
    """Measure the telemetry core in this process."""
    print("core: every captured push")
    costs = core.measure(rounds=5 if options.quick else CORE_ROUNDS)
    report("The core by push, in one process", core, costs, results)


def measured_meaning(options: argparse.Namespace, results: Results) -> None:
    """Measure each step on metrics in this process."""
    print("meaning: every step alone and all together")
    costs = meaning.measure(rounds=5 if options.quick else CORE_ROUNDS)
    report("What the steps add to a push", meaning, costs, results)


def measured_spool(options: argparse.Namespace, folder: Path, results: Results) -> None:
    """Measure the spool on disk."""
    print("spool: appends and replays")
    rounds, count = (1, 1_000) if options.quick else (PLUGIN_ROUNDS, PLUGIN_PUSHES)
    seen = spool.measure(folder, rounds=rounds, pushes=count)
    report("The spool on disk, pushes of a Java producer", spool, seen, results)


def measured_plugins(options: argparse.Namespace, folder: Path, results: Results) -> None:
    """Measure every plugin."""
    print("plugins: each with its destination")
    rounds, count = (1, 1_000) if options.quick else (PLUGIN_ROUNDS, PLUGIN_PUSHES)
    taken = plugins.measure(folder, rounds=rounds, pushes=count)
    report("Plugins, pushes of a Java producer", plugins, taken, results)


def measured_pushes(options: argparse.Namespace, folder: Path, results: Results) -> None:
    """Measure pushes on the wire."""
    rounds = options.rounds or (1 if options.quick else PUSH_ROUNDS)
    seen = pushes.measure(folder, rounds=rounds, quick=options.quick)
    report("A get and a push on the wire", pushes, seen, results)


def measured_rollup(options: argparse.Namespace, folder: Path, results: Results) -> None:
    """Measure the roll-up, from spool files into PostgreSQL."""
    print("rollup: spool files into PostgreSQL, and the naive way")
    seen = rollup.measure(folder, sizes=rollup.SIZES[:2] if options.quick else rollup.SIZES)
    report("The roll-up", rollup, seen, results)


@contextlib.contextmanager
def beside_each_other(
    options: argparse.Namespace, folder: Path, *, tls: CertificateFiles | None = None
) -> Iterator[tuple[Running, list[relays.Relay], str]]:
    """Run the load server and the relays; the third value is why the sidecar is missing.

    With ``tls`` the relays end TLS; a direct connection has none.
    """
    with contextlib.ExitStack() as stack:
        missing = ""
        upstream, broker = stack.enter_context(fake_broker(folder))
        measured = [
            stack.enter_context(relays.direct(upstream)),
            stack.enter_context(relays.haproxy(upstream, folder, tls=tls)),
        ]
        if options.proxy_command and not tls:
            measured.append(
                stack.enter_context(relays.other(SUBJECT, options.proxy_command, upstream, folder))
            )
        elif options.no_sidecar:
            missing = "left out by --no-sidecar"
        else:
            measured.append(stack.enter_context(relays.sidecar(upstream, folder, tls=tls)))
        yield broker, measured, missing


def measured_idle(options: argparse.Namespace, folder: Path, results: Results) -> None:
    """Measure the memory of idle connections, print its table and add its figure."""
    print(f"idle: {idle.CONNECTIONS:,} connections")
    with beside_each_other(options, folder) as (_, measured, missing):
        memory = idle.measure(measured)
    print(f"\nMemory of idle connections\n{idle.describe(memory)}\n")
    idle.record(memory, results)
    results.figures += idle.figures(memory, SUBJECT, why_missing=missing)


def measured_pass_through(
    options: argparse.Namespace, folder: Path, results: Results, *, tls: CertificateFiles | None = None
) -> None:
    """Measure pass-through, optionally with TLS; print its tables and add its figures."""
    shapes = passthrough.TLS_SHAPES if tls else passthrough.SHAPES
    with beside_each_other(options, folder, tls=tls) as (broker, measured, missing):
        processes = [broker, *(relay.process for relay in measured if relay.process)]
        rounds = options.rounds or (3 if options.quick else PASS_THROUGH_ROUNDS)
        timings = {}
        everywhere = os.sched_getaffinity(0)
        for placement, cores in ((passthrough.ONE_CORE, {max(everywhere)}), (passthrough.FREE, everywhere)):
            with on_cores(cores, processes):
                timings[placement] = passthrough.measure(
                    measured, shapes=shapes, placement=placement, rounds=rounds, only=options.only
                )
    for placement, measured_there in timings.items():
        title = ", ".join(["Pass-through", placement, *passthrough.ciphers(measured_there)])
        print(f"\n{title}\n{passthrough.describe(measured_there)}")
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
        wanted = options.part or PARTS
        with tempfile.TemporaryDirectory(prefix="kafka-telemetry-bench-") as name:
            folder = Path(name)
            if "core" in wanted:
                measured_core(options, results)
            if "meaning" in wanted:
                measured_meaning(options, results)
            if "spool" in wanted:
                measured_spool(options, folder, results)
            if "plugins" in wanted:
                measured_plugins(options, folder, results)
            if "pushes" in wanted:
                measured_pushes(options, folder, results)
            if "rollup" in wanted:
                measured_rollup(options, folder, results)
            if "idle" in wanted:
                measured_idle(options, folder, results)
            if "pass-through" in wanted:
                measured_pass_through(options, folder, results)
            if "tls" in wanted:
                tls = CertificateAuthority().issue().write(folder)
                measured_pass_through(options, folder, results, tls=tls)
    except (
        core.CoreError,
        httpx.HTTPError,
        load_generator.LoadError,
        NotSetUpError,
        plugins.PluginBenchmarkError,
        ProcessError,
        relays.RelayMissingError,
        rollup.RollupBenchmarkError,
        StartError,
    ) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    results.write(options.results)
    print(results.table())
    if results.load_before > BUSY:
        print(
            f"\nThe machine had other work (load average {results.load_before:.1f} before the run): "
            "no figure is reliable, CPU included; look at how far the rounds are apart."
        )
    print(f"\nEvery single measurement: {options.results}")
    missed = [figure for figure in results.figures if figure.verdict not in {"", "met"}]
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
