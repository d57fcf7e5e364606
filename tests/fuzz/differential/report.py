"""Writes what a run found, so that a round can be read and repeated."""

from __future__ import annotations

from typing import Final

from tests.fuzz.differential.comparison import Problem
from tests.fuzz.differential.rounds import Outcome
from tests.fuzz.differential.script import Script

_MAX_BYTES: Final = 4_096


def finding(script: Script, path: str, problem: Problem) -> str:
    """Return the report of a round that differs."""
    steps = ", ".join(step.what for step in script.steps)
    lines = [
        f"FOUND seed {script.seed} round {script.number}, listener {script.listener}, addresses {path}: "
        f"{problem.what}",
        f"    script: {steps}",
        f"    ending: {script.ending} {script.cut or ''}, lockstep {script.lockstep}, pieces {script.pieces}",
    ]
    if problem.step is not None:
        lines.append(f"    request: {problem.step.what}, correlation id {problem.step.correlation_id}")
        lines.append(f"             {_hex(problem.step.template)}")
    lines.append(f"    broker:  {_hex(problem.direct)}")
    lines.append(f"    gateway: {_hex(problem.gateway)}")
    lines.append(
        f"    again:   python -m tests.fuzz.differential --seed {script.seed} --round {script.number}"
    )
    return "\n".join(lines)


def summary(outcome: Outcome, seconds: float) -> str:
    """Return the figures of a run."""
    pairs = len([pair for pair in outcome.requests if pair[0] is not None])
    return (
        f"{outcome.rounds:,} rounds in {seconds:,.0f} s, {sum(outcome.requests.values()):,} requests of "
        f"{pairs:,} API keys and versions, {outcome.answers:,} answers of the broker, "
        f"{outcome.asked_again:,} times asked again, {outcome.findings} findings"
    )


def _hex(data: bytes | None) -> str:
    if data is None:
        return "none"
    more = f" and {len(data) - _MAX_BYTES} more bytes" if len(data) > _MAX_BYTES else ""
    return data[:_MAX_BYTES].hex() + more
