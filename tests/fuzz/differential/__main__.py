"""``python -m tests.fuzz.differential`` plays rounds, and reports what differs."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from typing import Final

from tests.fuzz.differential.report import summary
from tests.fuzz.differential.rounds import Outcome
from tests.fuzz.differential.workers import run

_REPORT_EVERY_S: Final = 60.0


def main() -> int:
    """Run the command line; return 1 if there is a finding."""
    arguments = _arguments()
    numbers = (
        range(arguments.rounds) if arguments.round is None else range(arguments.round, arguments.round + 1)
    )
    _say(f"==> [fuzz-differential] {len(numbers):,} rounds, seed {arguments.seed}")
    whole, started, reported = Outcome(), time.monotonic(), time.monotonic()
    try:
        for event in run(arguments.seed, numbers, arguments.processes):
            if isinstance(event, str):
                _say(event)
                continue
            whole.merge(event)
            if time.monotonic() - reported > _REPORT_EVERY_S:
                reported = time.monotonic()
                _say(f"    {whole.rounds:,} rounds so far, {whole.findings} findings")
    except KeyboardInterrupt:
        _say("interrupted; what was done so far counts")
    _say(summary(whole, time.monotonic() - started))
    return 1 if whole.findings or whole.rounds < len(numbers) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.differential", description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=2_000, help="how many connections (%(default)s)")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="the same seed makes the same scripts")
    parser.add_argument("--round", type=int, help="play this round of the seed alone")
    parser.add_argument(
        "--processes", type=int, default=1, help="each has a broker and a gateway; %(default)s by default"
    )
    return parser.parse_args()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
