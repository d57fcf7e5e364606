"""``python -m tests.fuzz`` fuzzes, reports, and keeps findings and totals of all runs."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import secrets
import sys
import time
from pathlib import Path
from typing import Any

from tests.fuzz.fuzzer import Finding, Outcome
from tests.fuzz.targets import TARGETS
from tests.fuzz.workers import fuzz

_FOLDER = Path(__file__).parent / "runs"
_REPORT_EVERY_S = 60.0


def main() -> int:
    """Run the command line; return 1 if there is a finding."""
    arguments = _arguments()
    names: list[str] = arguments.targets
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    _say(
        f"==> [fuzz] {arguments.inputs:,} inputs, seed {arguments.seed}, {arguments.processes} processes: "
        + ", ".join(names)
    )
    results = {name: Outcome(target=name) for name in names}
    reported = time.monotonic()
    found: set[str] = set()
    try:
        for outcome in fuzz(
            [TARGETS[name] for name in names],
            inputs=arguments.inputs,
            seed=arguments.seed,
            processes=arguments.processes,
        ):
            # Several processes may find the same defect; count it once.
            outcome.findings = [finding for finding in outcome.findings if finding.place not in found]
            found.update(finding.place for finding in outcome.findings)
            for finding in outcome.findings:
                _keep(finding, folder)
            _add(results[outcome.target], outcome)
            _add_to_totals(folder, outcome)
            if time.monotonic() - reported > _REPORT_EVERY_S:
                reported = time.monotonic()
                done = sum(result.inputs for result in results.values())
                _say(f"    {done:,} inputs so far, {len(found)} findings")
    except KeyboardInterrupt:
        _say("interrupted; what was done so far counts")
    _print_results(results)
    totals = _totals(folder)
    every = sum(entry["inputs"] for entry in totals.values())
    _say(f"in all runs that are counted in {folder / 'totals.json'}: {every:,} inputs")
    for name, entry in sorted(totals.items()):
        _say(f"    {name:<20}{entry['inputs']:>14,} inputs{entry['findings']:>6} findings")
    return 1 if found else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=main.__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="of all targets together (%(default)s)")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="the same seed makes the same inputs")
    parser.add_argument(
        "--targets",
        default=list(TARGETS),
        type=lambda text: [name for name in text.split(",") if name in TARGETS] or list(TARGETS),
        help=f"separated by commas; all by default: {','.join(TARGETS)}",
    )
    parser.add_argument("--processes", type=int, default=2, help="%(default)s by default")
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="for findings and totals")
    return parser.parse_args()


def _add(result: Outcome, more: Outcome) -> None:
    result.inputs += more.inputs
    result.cpu_s += more.cpu_s
    result.slowest_s = max(result.slowest_s, more.slowest_s)
    result.peak_memory = max(result.peak_memory, more.peak_memory)
    result.corpus = max(result.corpus, more.corpus)
    result.reached = max(result.reached, more.reached)
    result.findings += more.findings


def _keep(finding: Finding, folder: Path) -> None:
    name = hashlib.sha256(finding.data).hexdigest()[:16]
    below = folder / "findings" / finding.target
    below.mkdir(parents=True, exist_ok=True)
    (below / f"{name}.bin").write_bytes(finding.data)
    (below / f"{name}.txt").write_text(finding.problem)
    _say(f"FOUND in {finding.target}: {below / name}.bin\n{finding.problem}")


def _totals(folder: Path) -> dict[str, Any]:
    file = folder / "totals.json"
    totals: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return totals


def _add_to_totals(folder: Path, outcome: Outcome) -> None:
    totals = _totals(folder)
    entry = totals.setdefault(outcome.target, {"inputs": 0, "findings": 0, "cpu_s": 0.0})
    entry["inputs"] += outcome.inputs
    entry["findings"] += len(outcome.findings)
    entry["cpu_s"] = round(entry["cpu_s"] + outcome.cpu_s, 1)
    new = folder / "totals.json.new"
    new.write_text(json.dumps(totals, indent=2, sort_keys=True) + "\n")
    new.replace(folder / "totals.json")


def _print_results(results: dict[str, Outcome]) -> None:
    _say(
        f"{'target':<20}{'inputs':>12}{'inputs/s':>10}{'findings':>10}{'slowest':>12}{'memory':>10}"
        f"{'reached':>9}{'corpus':>8}"
    )
    for result in results.values():
        speed = result.inputs / result.cpu_s if result.cpu_s else 0.0
        _say(
            f"{result.target:<20}{result.inputs:>12,}{speed:>10,.0f}{len(result.findings):>10}"
            f"{result.slowest_s * 1000:>9.1f} ms{result.peak_memory >> 20:>6} MiB"
            f"{result.reached:>9,}{result.corpus:>8,}"
        )
    whole = dataclasses.replace(
        Outcome(target="all"),
        inputs=sum(result.inputs for result in results.values()),
        findings=[finding for result in results.values() for finding in result.findings],
    )
    _say(f"{whole.target:<20}{whole.inputs:>12,}{'':>10}{len(whole.findings):>10}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
