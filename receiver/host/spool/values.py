"""Values that a spool returns: positions, pushes, statistics, errors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NewType

from receiver.plugin import Push

#: The position of a push in an open spool, for :meth:`Spool.commit`. Later pushes have greater
#: positions.
Position = NewType("Position", int)


class SpoolError(Exception):
    """The disk is full, read-only or broken, or another spool uses the folder.

    Args:
        reason: The reason, in the system's words if it gave one.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")

    @classmethod
    def from_error(cls, error: OSError | MemoryError, path: Path) -> SpoolError:
        """Return the error for a failed operation on a file or folder."""
        if isinstance(error, MemoryError):
            return cls(path, "not enough memory")
        return cls(path, error.strerror or str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spooled:
    """A push that was read from a spool."""

    position: Position
    """The position to pass to :meth:`Spool.commit` once the push is delivered."""
    push: Push
    """The push, equal to the one that was appended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The contents of a spool when it was opened."""

    pushes: int
    """Undelivered pushes."""
    bytes: int
    """Bytes on disk."""
    torn_bytes: int
    """Truncated bytes of writes that a crash interrupted; their ``append`` never returned."""
    set_aside: tuple[str, ...]
    """Names of segment files that are damaged or of another version. The spool still reads their
    intact frames, and then keeps the files as ``*.corrupt`` until it needs room."""
    lost_pushes: int
    """Pushes in damaged parts, as far as they can be counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolStatistics:
    """A consistent snapshot of a spool; counters count since it was opened."""

    pushes: int
    """Undelivered pushes."""
    bytes: int
    """Bytes on disk, including files set aside and delivered pushes of the newest segments."""
    max_bytes: int
    dropped_full: int
    """Counter: pushes dropped at the bound before their delivery was committed."""
    torn_bytes: int
    """Counter: bytes truncated when the spool was opened."""
    set_aside_segments: int
    """Counter: segment files found damaged or of another version."""
    lost_pushes: int
    """Counter: pushes in damaged parts, as far as they can be counted."""
    oldest_received_at_ns: int | None
    """The receive time of the oldest undelivered push (or of an older one in the same frame), in
    nanoseconds since the epoch; None without one."""
    written_bytes: int
    """Counter: bytes written, compressed."""
    read_bytes: int
    """Counter: bytes read, compressed."""
    problem: str | None
    """The error of the last commit; None if it succeeded. While there is one, a crash would repeat
    more pushes than usual."""
