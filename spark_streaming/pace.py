"""How often maintenance repeats work that takes long."""

from __future__ import annotations

from typing import Final

_USUAL_FACTOR: Final = 200
_LEAST_FACTOR: Final = 20


def pause_s(spent_s: float, *, usual_s: float) -> float:
    """Return how long to wait from one time to the next.

    The work takes half a percent of the time, unless its result would be older than ``usual_s``. At
    most it takes a twentieth.
    """
    return max(_LEAST_FACTOR * spent_s, min(_USUAL_FACTOR * spent_s, usual_s))
