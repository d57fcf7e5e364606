"""Counts of what the steps changed in one push."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class StepCounts:
    """Data points and attributes of one push that the steps dropped or changed."""

    unsubscribed_points: int = 0  # dropped because no subscription asks for them
    bad_points: int = 0  # dropped as known to be wrong
    marked_points: int = 0  # marked as known to be wrong
    private_points: int = 0  # dropped by a privacy rule
    dropped_attributes: int = 0  # by a privacy rule
    hashed_attributes: int = 0  # by a privacy rule
    unnormalized: bool = False  # normalisation was skipped, because it was over a bound of work
