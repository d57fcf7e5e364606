"""Runs millions of pushes through the pipeline and checks each round."""

from __future__ import annotations

import argparse
import dataclasses
import secrets
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import Final

from tests.fuzz.pipeline.flood import BOMBS, Plan
from tests.fuzz.pipeline.grammar import FEATURES
from tests.fuzz.pipeline.rounds import FindingError, Round, Run

_FOLDER: Final = Path("/tmp/fuzz-pipeline")  # a socket's path has to be short
_HOUR_NS: Final = 3_600_000_000_000
#: By how much the last third of rounds may cost more than the first: machines differ by the minute.
_SLACK: Final = 1.3


def main() -> int:
    """Run the command line. Return 1 if a check fails."""
    arguments = _arguments()
    rounds = -(-arguments.pushes // arguments.round)
    plan = Plan(
        seed=arguments.seed,
        number=0,
        pushes=min(arguments.round, arguments.pushes),
        starts_ns=0,
        features=arguments.features,
        bombs=arguments.bombs,
    )
    # All times are in the past, because the roll-up ignores times in the future.
    plan = dataclasses.replace(plan, starts_ns=time.time_ns() - rounds * plan.span_ns - _HOUR_NS)
    folder: Path = arguments.folder
    _say(f"==> [fuzz-pipeline] {arguments.pushes:,} pushes in {rounds} rounds, seed {plan.seed}, in {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    # So that its PostgreSQL ends with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        done = Run(folder, plan, rounds, _say).run()
    except FindingError as finding:
        _say(f"FOUND: {finding}\nthe run's folder is kept: {folder}")
        return 1
    except KeyboardInterrupt:
        _say(f"interrupted; the same command with --folder {folder} goes on")
        return 1
    grown = [
        text for name in ("core_us", "write_us", "rollup_us", "postgres_us") if (text := _grown(done, name))
    ]
    pushes = sum(item.pushes for item in done)
    answers = {name: sum(item.answers.get(name, 0) for item in done) for name in sorted(_names(done))}
    _say(
        f"{pushes:,} pushes, {sum(item.offered for item in done):,} offered to the core, answers {answers}, "
        f"{done[-1].dead_letters} dead letters, no failed batch, no forged label, no good push lost; "
        f"{time.monotonic() - began:.0f} s"
    )
    for text in grown:
        _say(f"FOUND: {text}")
    return 1 if grown else 0


def _names(done: list[Round]) -> set[str]:
    return {name for item in done for name in item.answers}


def _grown(done: list[Round], name: str) -> str:
    """Describe the growth of a cost. Empty if it has not grown or rounds are too few."""
    third = len(done) // 3
    if third < 2:
        return ""
    first, last = (
        statistics.median(getattr(item, name) for item in some) for some in (done[:third], done[-third:])
    )
    _say(f"{name}: median of the first third {first:.0f} us, of the last {last:.0f} us by push")
    # A microsecond more is no growth.
    return f"{name} grew from {first:.0f} to {last:.0f} us by push" if last > _SLACK * first + 5 else ""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.pipeline", description=main.__doc__)
    parser.add_argument("--pushes", type=int, default=10_000_000, help="in all (%(default)s)")
    parser.add_argument("--round", type=int, default=500_000, help="pushes of a round (%(default)s)")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="the same seed makes the same pushes")
    parser.add_argument(
        "--features",
        default=FEATURES,
        type=lambda text: tuple(name for name in text.split(",") if name in FEATURES) or FEATURES,
        help=f"what hostile pushes are made of, separated by commas: {','.join(FEATURES)}",
    )
    parser.add_argument("--bombs", type=float, default=BOMBS, help="share of bombs in one client's pushes")
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="a run goes on where its folder is")
    return parser.parse_args()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
