"""Owns what the spool tells its callers: errors, positions, and numbers. Does nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NewType

from receiver.plugin import Push

__all__ = ["Position", "Recovery", "SpoolError", "SpoolStatistics", "Spooled"]

#: Where a push is in a spool: later ones are greater. For :meth:`Spool.commit`, and while the spool is open.
Position = NewType("Position", int)


class SpoolError(Exception):
    """The disk refuses: it is full, read-only or broken, or another spool has the folder.

    Args:
        path: The file or folder.
        reason: What the operating system says, or what is wrong.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")

    @classmethod
    def of(cls, error: OSError | MemoryError, path: Path) -> SpoolError:
        """Say what an operation on a file or folder failed of."""
        if isinstance(error, MemoryError):
            return cls(path, "there is not enough memory")
        return cls(path, error.strerror or str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spooled:
    """A push that was read from a spool.

    Attributes:
        position: What :meth:`Spool.commit` takes once the push is delivered.
        push: The push, equal to the one that was appended.
    """

    position: Position
    push: Push


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What was found when a spool was opened.

    Attributes:
        pushes: Pushes that are still to be delivered.
        bytes: Bytes on disk.
        torn_bytes: Bytes that were cut off, of writes that a crash interrupted; no append of them returned.
        set_aside: Names of segment files that are damaged or of another version. What is good in them is
            still read; then they stay as ``*.corrupt`` until room is needed.
        lost_pushes: Pushes in damaged parts, as far as they can be counted.
    """

    pushes: int
    bytes: int
    torn_bytes: int
    set_aside: tuple[str, ...]
    lost_pushes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolStatistics:
    """One consistent look at a spool; counters count since the spool was made.

    Attributes:
        pushes: Pushes that are still to be delivered.
        bytes: Bytes on disk, with files that are set aside and what is delivered of the newest segments.
        max_bytes: Their bound.
        dropped_full: Counter: pushes that went because of the bound before their delivery was committed.
        torn_bytes: Counter: bytes that were cut off when the spool was opened.
        set_aside_segments: Counter: segment files that were found damaged or of another version.
        lost_pushes: Counter: pushes in damaged parts, as far as they can be counted.
        oldest_received_at_ns: When the oldest push that is still to be delivered was received (the oldest of
            those that were appended together with it), in nanoseconds since the epoch; None without one.
        written_bytes: Counter: bytes that were written, compressed.
        read_bytes: Counter: bytes that were read, compressed.
        problem: What the disk refused last when a delivery was committed, None when it went well since: then
            more than usual would be delivered again after a crash.
    """

    pushes: int
    bytes: int
    max_bytes: int
    dropped_full: int
    torn_bytes: int
    set_aside_segments: int
    lost_pushes: int
    oldest_received_at_ns: int | None
    written_bytes: int
    read_bytes: int
    problem: str | None
