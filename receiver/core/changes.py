"""A new configuration as changes, all of which are built before one is in force."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


def _nothing() -> None:
    return


async def _nothing_to_wait_for() -> None:
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a configuration changes in one part of the core."""

    commit: Callable[[], object]
    """Puts it in force. It was built before, so that this neither fails nor waits."""
    finish: Callable[[], Awaitable[None]] = _nothing_to_wait_for
    """Ends what the change has replaced, after all changes are in force."""
    discard: Callable[[], object] = _nothing
    """Drops what was built, in place of ``commit``."""


class Changes:
    """The changes of one configuration, in the order in which they are put in force."""

    def __init__(self) -> None:
        self._changes: list[Change] = []

    def add(self, change: Change) -> None:
        """Add a change that is ready."""
        self._changes.append(change)

    def commit(self) -> None:
        """Put all in force."""
        for change in self._changes:
            change.commit()

    async def finish(self) -> None:
        """End what was replaced, the newest change first."""
        for change in reversed(self._changes):
            await change.finish()

    def discard(self) -> None:
        """Drop all, the newest first."""
        for change in reversed(self._changes):
            change.discard()
