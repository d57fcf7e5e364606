"""``python -m tests.soak`` runs the soak; status 1 if a loss is unexplained."""

from __future__ import annotations

import argparse
import sys

from tests.soak.delivery import MODES, Outcome, Plan, run
from tests.testbed.broker import KafkaBroker


def main() -> int:
    """Run it and report."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long there are faults")
    parser.add_argument("--clients", type=int, default=40, help="client instances, five pushes a second each")
    parser.add_argument(
        "--kills",
        type=int,
        default=5,
        help="how often the sidecar, its core or a relay is killed with SIGKILL",
    )
    parser.add_argument("--seed", type=int, default=714, help="of the times of the faults")
    options = parser.parse_args()
    plan = Plan(
        seconds=options.minutes * 60,
        clients=options.clients,
        kills=options.kills,
        up_s=(3.0, 20.0),
        down_s=(1.0, 15.0),
        seed=options.seed,
    )
    with KafkaBroker() as broker:
        outcome = run(broker, plan, tell=_tell)
    _report(outcome)
    return int(any(outcome.unexplained(mode) for mode in MODES) or not outcome.accepted)


def _report(outcome: Outcome) -> None:
    _tell(
        f"accepted {outcome.accepted} pushes (refused: {dict(outcome.refused) or 'none'}), "
        f"{len(outcome.kills)} processes killed, at most {outcome.peak_rss_bytes >> 20} MiB resident"
    )
    for mode in MODES:
        _tell(
            f"{mode:18} arrived {outcome.arrived[mode]}, again {outcome.repeated[mode]}, lost "
            f"{len(outcome.lost[mode])} (unexplained {len(outcome.unexplained(mode))}), its collector killed "
            f"{outcome.collector_kills[mode]} times"
        )


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
