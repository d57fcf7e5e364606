"""``python -m tests.attacks`` runs attacks and exits with 1 if a verdict fails."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.load_generator import fake_broker
from benchmarks.processes import BenchmarkError, allow_files
from tests.attacks.attacks import Attack, attacks
from tests.attacks.run import Outcome, prefer, preferred_session, run, stored
from tests.attacks.targets import haproxy, receiver
from tests.attacks.verdicts import judge
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.process import StartError

_RESPONSE_BYTES = 16
_RESULTS = Path("attacks.json")


def main() -> int:
    """Run what the command line asks for; the value is the exit status."""
    options = _arguments()
    known = {attack.name: attack for attack in attacks()}
    if options.list:
        print("\n".join(known))
        return 0
    unknown = [name for name in options.attacks if name not in known]
    if unknown:
        print(f"attacks: unknown: {', '.join(unknown)}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    chosen = [known[name] for name in options.attacks] or list(known.values())
    try:
        allow_files()
        with preferred_session(), tempfile.TemporaryDirectory(prefix="kafka-telemetry-attacks-") as name:
            failed = _run(chosen, Path(name), options)
    except (BenchmarkError, StartError) as error:
        print(f"attacks: {error}", file=sys.stderr)
        return 2
    print(f"\n{len(chosen) - len(failed)} of {len(chosen)} attacks held; details: {options.results}")
    for attack, wrong in failed.items():
        print(f"FAILED {attack}: {'; '.join(wrong)}")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument(
        "--attacks",
        type=lambda text: [name for name in text.split(",") if name],
        default=[],
        help="names with commas between them; default: all",
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each attack lasts (default 5)")
    parser.add_argument("--megabits", type=float, default=100.0, help="its rate in Mbit/s (default 100)")
    parser.add_argument("--no-haproxy", action="store_true", help="leave out the baseline")
    parser.add_argument("--results", type=Path, default=_RESULTS, help="JSON file (default attacks.json)")
    parser.add_argument("--list", action="store_true", help="print the attacks' names")
    return parser.parse_args()


def _run(chosen: Sequence[Attack], folder: Path, options: argparse.Namespace) -> dict[str, list[str]]:
    """Run attacks, print their rows, write the JSON, and return failures by attack."""
    files = CertificateAuthority().issue().write(folder)
    results: dict[str, Any] = {"load_before": os.getloadavg()[0], "attacks": {}}
    failed: dict[str, list[str]] = {}
    with contextlib.ExitStack() as always:
        listen, broker = always.enter_context(fake_broker(folder, response_bytes=_RESPONSE_BYTES))
        prefer(broker)
        control = None
        if not options.no_haproxy:
            quiet = folder / "control"
            quiet.mkdir()
            control = always.enter_context(haproxy(listen, quiet, files))
        print(_head())
        for attack in chosen:
            own = folder / attack.name
            own.mkdir()
            outcomes: dict[str, Outcome] = {}
            for make in (receiver, haproxy):
                if make is haproxy and (control is None or not attack.kind):
                    continue
                with contextlib.ExitStack() as stack:
                    if make is receiver:
                        target = stack.enter_context(receiver(attack, listen, own, files))
                    else:
                        target = stack.enter_context(haproxy(listen, own, files))
                    outcomes[target.name] = run(
                        attack,
                        target,
                        control,
                        own,
                        seconds=max(options.seconds, attack.least_seconds),
                        megabits=options.megabits,
                    )
                    print(_row(attack, target.name, outcomes[target.name]), flush=True)
            files_of = stored(own / "files") if attack.spool else {}
            wrong = judge(attack, outcomes["receiver"], files_of)
            if wrong:
                failed[attack.name] = wrong
                print(f"  FAILED: {'; '.join(wrong)}", flush=True)
            results["attacks"][attack.name] = {
                "failed": wrong,
                "stored": {address: dataclasses.asdict(of) for address, of in files_of.items()},
                **{name: dataclasses.asdict(outcome) for name, outcome in outcomes.items()},
            }
            options.results.write_text(json.dumps(results, indent=1))
    return failed


_FORMAT = "{:<24}{:<10}{:>11}{:>9}{:>11}{:>13}{:>10}{:>8}{:>10}{:>10}{:>10}{:>13}{:>9}"


def _head() -> str:
    return _FORMAT.format(
        "attack",
        "target",
        "longest ms",
        "p99 ms",
        "control ms",
        "telemetry ms",
        "pushes",
        "MiB",
        "CPU s",
        "Mbit/s",
        "opened",
        "callback ms",
        "turn ms",
    )


def _row(attack: Attack, target: str, outcome: Outcome) -> str:
    innocent, attacker = outcome.innocent, outcome.attacker
    telemetry = innocent.telemetry_longest_ms
    return _FORMAT.format(
        attack.name if target == "receiver" else "",
        target,
        f"{innocent.longest_ms:,.1f}",
        f"{innocent.p99_ms:,.1f}",
        "-" if outcome.control_ms is None else f"{outcome.control_ms:,.1f}",
        "-" if telemetry is None else f"{telemetry:,.1f}",
        f"{innocent.pushes.get(0, 0)}/{sum(innocent.pushes.values())}",
        f"{outcome.peak_bytes >> 20:,}",
        f"{outcome.cpu_seconds:.2f}",
        "-" if attacker is None else f"{attacker.bytes_sent * 8 / attacker.seconds / 1e6:,.0f}",
        "-" if attacker is None else f"{attacker.opened:,}",
        "-" if outcome.longest is None else f"{outcome.longest.callback_ms:.1f}",
        "-" if outcome.longest is None else f"{outcome.longest.turn_ms:.1f}",
    )


if __name__ == "__main__":
    sys.exit(main())
