"""What was made of a push, kept for the next attempt of its export.

Owns the memory that makes a retry the same export again, although each push changes a state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from receiver.plugin import Push, PushIdentity

__all__ = ["Once"]

Result = TypeVar("Result")


class Once(Generic[Result]):
    """Makes the result of each push once, however often its export is tried.

    The host tries a batch again as it was, or halves it, or forms it anew with more pushes at its end. It
    holds the results of one batch, those of which are gone that were delivered.
    """

    def __init__(self) -> None:
        self._kept: dict[PushIdentity, Result] = {}

    def of(self, pushes: Sequence[Push], make: Callable[[Push], Result]) -> list[Result]:
        """The results of these pushes, in their order.

        Args:
            pushes: The pushes of one attempt.
            make: Makes the result of a push; called for those that no earlier attempt had, in order. What it
                raises passes; what was made before stays.
        """
        keys = [push.identity for push in pushes]
        kept = self._kept
        if not all(key in kept for key in keys):
            # The host begins with other pushes only when the last ones are at their end.
            kept = self._kept = {key: kept[key] for key in keys if key in kept}
            for key, push in zip(keys, pushes, strict=True):
                if key not in kept:
                    kept[key] = make(push)
        return [kept[key] for key in keys]

    def delivered(self, pushes: Sequence[Push]) -> None:
        """Forget the results of pushes that the destination has."""
        for push in pushes:
            self._kept.pop(push.identity, None)
