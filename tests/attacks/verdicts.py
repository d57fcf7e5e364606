"""Judges an attack: the innocent client's waits, the receiver's memory, and totals.

Owns the bounds. Each verdict is a text that says what is wrong, with the number and the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from receiver.wire.error_codes import error_name
from tests.attacks.run import Outcome

__all__ = ["LONGEST_MS", "MEMORY_BYTES", "TIMES_CONTROL", "judge"]

#: The innocent client's longest wait.
LONGEST_MS: Final = 50.0

#: Other work on the machine delays every client: so many times the longest wait through a HAProxy that is not
#: attacked at the same time are allowed. The HAProxy that is attacked sets no bound, because some attacks stop it.
TIMES_CONTROL: Final = 3.0

#: The chart's memory limit, resources.limits.memory.
MEMORY_BYTES: Final = 512 << 20


def judge(mine: Outcome, *, longest_ms: float = LONGEST_MS) -> list[str]:
    """Return what is wrong with ``mine``, the receiver's outcome; empty where nothing is.

    Args:
        mine: The receiver's outcome.
        longest_ms: The bound on the innocent client's longest wait.
    """
    bound = max(longest_ms, TIMES_CONTROL * (mine.control_ms or 0.0))
    return [*_waits(mine, bound), *_memory(mine), *_totals(mine)]


def _waits(mine: Outcome, bound: float) -> list[str]:
    waits = {"request": mine.innocent.longest_ms, "telemetry": mine.innocent.telemetry_longest_ms}
    return [
        f"{name} waited {wait:,.0f} ms (at most {bound:,.0f})"
        for name, wait in waits.items()
        if wait is not None and wait > bound
    ]


def _memory(mine: Outcome) -> list[str]:
    if mine.peak_bytes <= MEMORY_BYTES:
        return []
    return [f"memory {mine.peak_bytes >> 20:,} MiB (at most {MEMORY_BYTES >> 20})"]


def _totals(mine: Outcome) -> list[str]:
    innocent = mine.innocent
    wrong = [f"innocent: {innocent.problem}"] if innocent.problem else []
    for request, by_code in (("get", innocent.gets), ("push", innocent.pushes)):
        wrong += _refused(request, by_code)
    if not innocent.pushes.get(0):
        wrong.append("no push of the innocent client was accepted")
    return wrong


def _refused(request: str, by_code: Mapping[int, int]) -> list[str]:
    return [
        f"{count} of the innocent client's {request} requests answered {error_name(code)}"
        for code, count in by_code.items()
        if code
    ]
