"""Runs the tests in groups, a few groups at a time.

``python -m tests`` runs the gate: lint and every test that is not marked ``full``. With ``--full``
it runs the tests marked ``full`` (see ``tests/selection.py``), and those marked ``explores`` with a
seed (see ``tests/exploration.py``). Each test belongs to exactly one group. The last group runs the
tests that no other group names, so no test is left out.

Each line of output starts with the name of its group. At the end stand the slowest tests and, for
each group, how long it took and for what it waited. The exit status is 0 if every group passed.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests import exploration, timing
from tests.testbed.parts import CHOSEN

_TREE: Final = Path(__file__).parents[1]
_PYTEST: Final = (sys.executable, "-m", "pytest")
#: The tests of the gate.
_GATE: Final = "not full"
#: Those marked `full` may compute for minutes, and on a busy machine for ten times as long.
_PATIENCE: Final = ("-o", "timeout=3600")
#: pytest's exit status when every collected test was deselected.
_NOTHING_SELECTED: Final = 5
#: How the lines of pytest's summary start that name a test which did not pass.
_FAILURES: Final = ("FAILED ", "ERROR ")
#: Spark's JVMs live for a minute. Compiling their code with the first compiler alone takes a third
#: less CPU time in all.
_ENVIRONMENT: Final = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1"}
#: How many tests, and files of tests, the report names.
_SLOWEST: Final = 10
#: These have targets of their own: `make test-kubernetes`.
_ELSEWHERE: Final = ("tests/kubernetes",)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Tests that share one pytest, or commands that run one after the other.

    Attributes:
        name: The prefix of its output lines.
        tests: Files and folders of tests.
        commands: Commands to run in place of pytest.
        workers: Number of pytest-xdist workers; 0 runs the tests in one process, where they share
            servers.
    """

    name: str
    tests: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    workers: int = 0


@dataclass(slots=True, kw_only=True)
class _Outcome:
    """How a group ended.

    Attributes:
        passed: Whether each command did.
        wall_s: How long it took, in seconds.
        cpu_s: CPU seconds of its processes.
        failures: pytest's lines about what did not pass.
        measures: What ``tests/timing.py`` wrote of each phase of each test.
    """

    passed: bool = True
    wall_s: float = 0.0
    cpu_s: float = 0.0
    failures: list[str] = field(default_factory=list)
    measures: list[dict[str, Any]] = field(default_factory=list)

    def phase_s(self, phase: str) -> float:
        """Return the seconds that the tests spent in ``setup``, ``call`` or ``teardown``."""
        return sum(float(measure["wall_s"]) for measure in self.measures if measure["phase"] == phase)

    def processor_s(self) -> float:
        """Return the seconds that the tests were ready to go on and no processor was free."""
        return sum(float(measure["processor_s"]) for measure in self.measures)


def _set_up(*parts: str) -> _Group:
    """Return the group that fetches and builds the real parts that the cache lacks."""
    testbed = (sys.executable, "-m", "tests.testbed", "setup", "--parts", ",".join(parts))
    return _Group(name="set-up", commands=(testbed, (sys.executable, "-m", "spark_streaming.jars")))


_PARTS: Final = ("broker", "collector", "clients", "bridge")
#: Parts that only tests marked ``full`` use.
_FULL_PARTS: Final = (
    "prometheus",
    "alertmanager",
    "victoria-metrics",
    "mimir",
    "helm",
    "haproxy",
    "network",
    "grafana-schema",
    "console",
    "compose",
    "actionlint",
    "tools",
    "older-kafkas",
)
_LINT: Final = _Group(name="lint", commands=(("make", "--no-print-directory", "lint"),))
#: The tests of this group and of the next five share no server, so workers can divide them. Each
#: worker collects all tests again. On two processors that costs more than it saves.
_WORKERS: Final = max(0, (os.cpu_count() or 1) - 2)
_UNIT: Final = _Group(name="unit", tests=("tests/unit",), workers=_WORKERS)
#: Parts of the unit tests: as one group they would end last.
_EDGES: Final = _Group(name="edges", tests=("tests/unit/api", "tests/unit/cli"), workers=_WORKERS)
_CONNECTIONS: Final = _Group(
    name="connections", tests=("tests/unit/gateway", "tests/unit/session"), workers=_WORKERS
)
#: The plugins and their host: queues, journals and child processes.
_PLUGINS: Final = _Group(name="plugins", tests=("tests/unit/host", "tests/unit/plugins"), workers=_WORKERS)
#: Real supervisors with small child processes.
_SUPERVISOR: Final = _Group(name="supervisor", tests=("tests/unit/supervisor",))
_PROPERTY: Final = _Group(name="property", tests=("tests/property",), workers=_WORKERS)
_FUZZ: Final = _Group(name="fuzz", tests=("tests/fuzz",), workers=_WORKERS)
#: One Spark session for all of these.
_SPARK: Final = _Group(
    name="spark",
    tests=(
        "tests/unit/spark_streaming",
        "tests/property/spark_streaming",
        "tests/integration/rollup",
    ),
)
#: These need PostgreSQL and processes of their own, but not the Spark session.
_STORE: Final = _Group(
    name="store",
    tests=(
        "tests/integration/rollup/store",
        "tests/integration/rollup/findings",
        "tests/integration/rollup/test_cli.py",
        "tests/integration/rollup/test_crash.py",
        "tests/integration/rollup/test_embedded.py",
    ),
)
#: The longest of these wait for PostgreSQL, so they have a server of their own.
_PACKING: Final = _Group(
    name="packing",
    tests=(
        "tests/integration/rollup/store/test_merging.py",
        "tests/integration/rollup/store/test_packing.py",
    ),
)
#: Sidecars in front of a scripted broker.
_GATEWAY: Final = _Group(name="gateway", tests=("tests/integration/gateway",))
#: One broker and one collector for all of these.
_KAFKA: Final = _Group(name="kafka", tests=("tests/integration",))
#: The same again: as one group they would end last, and alone.
_PROTOCOL: Final = _Group(name="protocol", tests=("tests/conformance", "tests/integration/kip1313"))
_OTHERS: Final = _Group(name="others", tests=("tests",))

#: The data path as where the extension is not built: its fallback, and what it is compared with.
_PYTHON: Final = _Group(
    name="python",
    commands=(
        (
            *("env", "KAFKA_TELEMETRY_PURE_PYTHON=1", *_PYTEST, "-p", "no:xdist", "-m", "not full"),
            *("tests/unit/test_event_loop.py", "tests/unit/wire", "tests/unit/gateway"),
            *("tests/unit/session", "tests/property/wire"),
            *("tests/property/session", "tests/fuzz", "tests/integration/gateway"),
        ),
    ),
)

#: Groups of ``--full`` alone.
_FULL_GROUPS: Final = (_PYTHON,)

#: Groups start in this order. Lint comes first, because it needs no set-up: on an empty cache that
#: compiles for minutes. Then long groups come before short ones, so that all end at about one time.
_GROUPS: Final = (
    _LINT,
    _SPARK,
    _KAFKA,
    _GATEWAY,
    _PLUGINS,
    _UNIT,
    _EDGES,
    _PROTOCOL,
    _CONNECTIONS,
    _PACKING,
    _PROPERTY,
    _STORE,
    _SUPERVISOR,
    _FUZZ,
    _OTHERS,
)
#: These don't wait for the set-up. All tests do, also those that need none of its parts.
_BESIDE_SET_UP: Final = (_LINT,)
#: How many groups run at a time: more than there are processors, because tests with servers wait
#: for much of their time.
_AT_ONCE: Final = (os.cpu_count() or 1) + 6


def _command(group: _Group, folder: Path, marker: str) -> tuple[str, ...]:
    """Return the pytest command of a group, which leaves out the paths of other groups."""
    others = [path for other in _GROUPS if other is not group for path in other.tests]
    ignored = [
        f"--ignore={path}"
        for path in (*others, *_ELSEWHERE)
        if path not in group.tests and path.startswith(tuple(f"{own}/" for own in group.tests))
    ]
    # Each group has its own temporary folder. pytest's default folder is shared, and each pytest
    # that starts there locks other users out of it. The embedded PostgreSQL may be such a user.
    basetemp = f"--basetemp={folder / group.name}"
    workers = ("-n", str(group.workers), "--dist", "loadfile") if group.workers else ("-p", "no:xdist")
    patience = () if marker == _GATE else _PATIENCE
    return (*_PYTEST, basetemp, "-m", marker, *patience, *workers, *group.tests, *ignored)


def _run(
    group: _Group, commands: Sequence[Sequence[str]], environment: Mapping[str, str], folder: Path
) -> _Outcome:
    start = time.monotonic()
    outcome = _Outcome()
    measures = folder / f"{group.name}.json"
    for command in commands:
        # setpriv ends a child with this process, and the child's own children end with the child.
        with subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *command],
            cwd=_TREE,
            env={**environment, **os.environ, timing.VARIABLE: str(measures)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                _write(f"[{group.name}] {line}")
                if line.startswith(_FAILURES):
                    outcome.failures.append(line)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        outcome.cpu_s += used.ru_utime + used.ru_stime
        outcome.wall_s = time.monotonic() - start
        if process.returncode not in (0, _NOTHING_SELECTED if group.tests else 0):
            outcome.passed = False
            break
    if measures.exists():
        outcome.measures = json.loads(measures.read_text())
    _write(f"[{group.name}] {_summary(outcome)}\n")
    return outcome


def _summary(outcome: _Outcome) -> str:
    word = "passed" if outcome.passed else "failed"
    return f"{word} in {outcome.wall_s:.0f} s ({outcome.cpu_s:.0f} CPU seconds)"


def _report(outcomes: Mapping[str, _Outcome]) -> str:
    """Return the slowest tests, the dearest files, and what each group waited for, in seconds.

    ``set-up`` and ``teardown`` are mostly servers that start and stop. ``calls`` are the tests
    themselves. ``processor`` is the part of the three in which no processor was free.
    """
    measured = [
        (float(measure["wall_s"]), str(measure["test"]), str(measure["phase"]))
        for outcome in outcomes.values()
        for measure in outcome.measures
    ]
    lines = ["slowest tests:"]
    lines += [
        f"{wall_s:7.1f} s  {test} ({phase})" for wall_s, test, phase in sorted(measured)[: -_SLOWEST - 1 : -1]
    ]
    used: dict[str, float] = collections.defaultdict(float)
    for outcome in outcomes.values():
        for measure in outcome.measures:
            used[str(measure["test"]).partition("::")[0]] += float(measure["cpu_s"])
    dearest = sorted(used.items(), key=lambda item: item[1], reverse=True)
    lines.append("files of tests with the most CPU seconds, without servers that still run:")
    lines += [f"{cpu_s:7.1f} s  {file}" for file, cpu_s in dearest[:_SLOWEST]]
    columns = ("wall", "CPU", "set-up", "calls", "teardown", "processor")
    lines.append(f"{'seconds':<12}" + "".join(f"{column:>11}" for column in columns))
    for name, outcome in outcomes.items():
        phases = [outcome.phase_s(phase) for phase in ("setup", "call", "teardown")]
        numbers = (outcome.wall_s, outcome.cpu_s, *phases, outcome.processor_s())
        lines.append(f"{name:<12}" + "".join(f"{number:>11.1f}" for number in numbers))
    return "".join(f"==> [test] {line}\n" for line in lines)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def main() -> int:
    """Run the command line; the result is the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests", description="Run the tests in groups.")
    parser.add_argument("--full", action="store_true", help="run the tests that the gate leaves out")
    parser.add_argument("--no-lint", action="store_true", help="leave lint and types out")
    parser.add_argument(
        "--seed", help="for --full: what properties and fuzzing draw from (default: a new one)"
    )
    arguments = parser.parse_args()
    marker = "full or explores" if arguments.full else _GATE
    parts = (*_PARTS, *_FULL_PARTS) if arguments.full else _PARTS
    # A test that needs another part fails here too, and not only on a machine without that part.
    environment = {**_ENVIRONMENT, CHOSEN: ",".join(parts)}
    # The order of a set of strings follows the hash seed, and so may what a property draws.
    environment["PYTHONHASHSEED"] = "0"
    if arguments.full:
        seed = arguments.seed or secrets.token_hex(4)
        environment |= {exploration.VARIABLE: seed, "PYTHONHASHSEED": str(exploration.as_number(seed))}
        _write(f"==> [test] properties and fuzzing draw from the seed {seed}\n")
    without = {_LINT.name} if arguments.full or arguments.no_lint else set()
    folder = Path(tempfile.mkdtemp(prefix="kct-"))
    outcomes: dict[str, _Outcome] = {}

    def run(group: _Group) -> None:
        outcomes[group.name] = _run(
            group, group.commands or (_command(group, folder, marker),), environment, folder
        )

    set_up = _set_up(*parts)
    setting_up = threading.Thread(target=run, args=(set_up,))
    groups = [group for group in _GROUPS if group.name not in without]
    if arguments.full:
        groups += _FULL_GROUPS
    waiting = collections.deque(groups)

    def run_next() -> None:
        # Several threads take from the queue, and only `popleft` tells which has got a group.
        while True:
            try:
                group = waiting.popleft()
            except IndexError:
                return
            if group not in _BESIDE_SET_UP:
                setting_up.join()
                if not outcomes[set_up.name].passed:
                    return
            run(group)

    start = time.monotonic()
    threads = [setting_up, *(threading.Thread(target=run_next) for _ in range(_AT_ONCE))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _write(_report(outcomes))
    # A group without an outcome did not run, so it has not passed.
    expected = [set_up.name, *(group.name for group in groups)]
    failed = [name for name in expected if name not in outcomes or not outcomes[name].passed]
    total = sum(outcome.cpu_s for outcome in outcomes.values())
    _write(f"==> [test] all groups: {time.monotonic() - start:.0f} s ({total:.0f} CPU seconds)\n")
    if failed:
        if arguments.full:
            _write(f"`make test-full SEED={seed}` repeats what properties and fuzzing drew\n")
        # Once more at the end, where a reader of a long log looks first.
        for name in failed:
            for line in outcomes[name].failures if name in outcomes else ():
                _write(f"[{name}] {line}")
        _write(f"failed: {', '.join(failed)}; the tests' files are in {folder}\n")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
