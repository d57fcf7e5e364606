"""How often the job reads, and how often maintenance repeats work that takes long."""

from __future__ import annotations

from typing import Final

_USUAL_FACTOR: Final = 200
_LEAST_FACTOR: Final = 20
#: A batch costs about as much again as so many pushes.
FEW_PUSHES: Final = 10_000


def pause_s(spent_s: float, *, usual_s: float) -> float:
    """Return how long to wait from one time to the next.

    The work takes half a percent of the time, unless its result would be older than ``usual_s``. At
    most it takes a twentieth.
    """
    return max(_LEAST_FACTOR * spent_s, min(_USUAL_FACTOR * spent_s, usual_s))


def rest_s(pushes: int, *, spent_s: float, behind_s: float, longest_s: float, grace_s: float) -> float:
    """Return how long to wait after a batch, so that the next one has more to read.

    Args:
        pushes: What the batch had.
        spent_s: Since the batch began.
        behind_s: Age of the newest push that was read. A job that is behind by more than
            ``grace_s`` has more to read, and does not wait.
        longest_s: From the beginning of one batch with few pushes to the next.
    """
    if pushes >= FEW_PUSHES or behind_s > grace_s:
        return 0.0
    return max(0.0, longest_s - spent_s)
