"""Runs every real client that can be had against the test kit, and writes what was found.

``python -m benchmarks.testkit [--only NAME ...] [--at-once N] [--seconds N]`` writes ``clients.md``
and ``clients.json`` beside this file. All clients together take half an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from benchmarks.testkit.page import page, shortened
from benchmarks.testkit.programs import Program, programs
from receiver.testkit.threaded import TestKit

_HERE: Final = Path(__file__).parent
_TREE: Final = _HERE.parents[1]
_CLOSE_WITHIN_S: Final = 30.0
#: Steps of the default script after which a client is closed.
_LAST_STEP_S: Final = 8.0


def _say(line: str) -> None:
    sys.stderr.write(f"testkit: {line}\n")


def _run(kit: TestKit, program: Program, mode: str, seconds: float) -> None:
    """Run one client until it has met the last step of the script, or the time is over."""
    client_id = f"{program.name}-{mode}"
    with tempfile.TemporaryDirectory() as scratch:
        properties = Path(scratch, "client.properties")
        properties.write_text("")
        arguments = {
            "--mode": mode,
            "--bootstrap": kit.bootstrap_servers,
            "--topic": client_id,
            "--client-id": client_id,
            "--group": client_id,
            "--rate": "20",
            "--count": "-1",
            "--properties": str(properties),
        }
        words = [str(word) for pair in arguments.items() for word in pair]
        process = subprocess.Popen(
            [*map(str, program.command), *words],
            cwd=_TREE,
            env={**os.environ, **program.environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait(kit, client_id, process, seconds)
        finally:
            process.terminate()
            try:
                process.wait(_CLOSE_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    _say(f"{client_id}: ended with status {process.returncode}")


def _wait(kit: TestKit, client_id: str, process: subprocess.Popen[bytes], seconds: float) -> None:
    until = time.monotonic() + seconds
    last: float | None = None
    while process.poll() is None and time.monotonic() < until:
        if last is None and kit.has_met_the_end(client_id):
            last = time.monotonic()
        if last is not None and time.monotonic() > last + _LAST_STEP_S:
            return
        time.sleep(0.5)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.testkit")
    parser.add_argument("--only", nargs="*", default=[], help="beginnings of clients' names")
    parser.add_argument("--at-once", type=int, default=4, help="clients that run at a time")
    parser.add_argument("--seconds", type=float, default=130.0, help="the longest run of a client")
    given = parser.parse_args()
    had = programs(_say)
    chosen = [p for p in had if not given.only or p.name.startswith(tuple(given.only))]
    kept: dict[str, Any] = {}
    file = _HERE / "clients.json"
    if given.only and file.exists():
        ids = {f"{program.name}-{mode}" for program in had for mode in program.modes}
        earlier = json.loads(file.read_text())["clients"]
        kept = {client["client_id"]: client for client in earlier if client["client_id"] in ids}
    with TestKit() as kit, ThreadPoolExecutor(given.at_once) as pool:
        runs = [pool.submit(_run, kit, p, mode, given.seconds) for p in chosen for mode in p.modes]
        for run in runs:
            run.result()
        report = kit.report()
    kept |= {client["client_id"]: shortened(client) for client in report["clients"]}
    clients = [client for _, client in sorted(kept.items())]
    file.write_text(json.dumps({"clients": clients}, indent=1) + "\n")
    (_HERE / "clients.md").write_text(page(clients))


if __name__ == "__main__":
    main()
