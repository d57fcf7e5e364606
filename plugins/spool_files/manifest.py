"""The manifest: one line for each file that was published or removed, to be known at a glance.

Owns the lines. A host appends to one file a day, so several may share the folder; nothing is ever
rewritten. A line is appended after its file is there, or is gone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from plugins.spool_files.disk import OWNER, Access, make_folder
from plugins.spool_files.layout import MANIFESTS, manifest_day, manifest_name

__all__ = ["Manifest", "Published", "Removed"]

#: How much of a manifest's end is read: some hundred lines.
_TAIL_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A file that is whole and will not change.

    Attributes:
        file: Its path below the folder.
        rows: Its pushes.
        bytes: Its size.
        otlp_bytes: The pushes' OTLP bytes, not compressed.
        min_received_at_ns: The earliest receive time in it, nanoseconds since the epoch.
        max_received_at_ns: The latest.
        host: Who published it.
        run: Which start of the plugin there, as in the file's name.
        sequence: Which journal of that run; a number that is missing had no push.
    """

    file: str
    rows: int
    bytes: int
    otlp_bytes: int
    min_received_at_ns: int
    max_received_at_ns: int
    host: str
    run: str
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A file that is gone.

    Attributes:
        file: Its path below the folder.
        bytes: Its size.
        reason: ``age``: after ``retain_hours``; ``max_bytes``: the folder's bound.
    """

    file: str
    bytes: int
    reason: Literal["age", "max_bytes"]


class Manifest:
    """What one host tells of the folder.

    Args:
        root: The plugin's folder.
        host: This host, as :func:`plugins.spool_files.layout.host_name`.
        access: Who may read what it writes.
    """

    def __init__(self, root: Path, host: str, access: Access = OWNER) -> None:
        self._folder = root / MANIFESTS
        self._host = host
        self._access = access

    def append(self, entries: Sequence[Published | Removed], now: datetime) -> None:
        """Tell of files, durably.

        Args:
            entries: What became of them.
            now: The time (UTC).

        Raises:
            OSError: The disk refuses; an entry may be there in part, and is told again when this is
                repeated.
        """
        if not entries:
            return
        make_folder(self._folder, self._access)
        lines = "".join(
            json.dumps({"event": type(entry).__name__.lower(), "at": now.isoformat(), **asdict(entry)}) + "\n"
            for entry in entries
        ).encode()
        path = self._folder / manifest_name(now.date(), self._host)
        descriptor = self._access.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        with os.fdopen(descriptor, "a+b", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
                # The disk was full in the middle of a line: what follows it is a line of its own.
                lines = b"\n" + lines
            if file.write(lines) != len(lines):
                raise OSError(f"{path}: written in part")
            os.fdatasync(file.fileno())

    def newest(self, now: datetime) -> Iterator[str]:
        """The files that this host published of late, the newest first.

        Raises:
            OSError: The disk refuses.
        """
        for day in (now.date(), now.date() - timedelta(days=1)):
            path = self._folder / manifest_name(day, self._host)
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = file.read().splitlines()
            for line in reversed(lines):
                try:
                    entry = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                match entry:
                    case {"event": "published", "file": str(published)}:
                        yield published

    def expire(self, before: datetime) -> None:
        """Delete manifests, of every host, of days that ended before a time.

        Raises:
            OSError: The disk refuses.
        """
        if not self._folder.is_dir():
            return
        for path in self._folder.iterdir():
            day = manifest_day(path.name)
            if (
                day is not None
                and datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1) <= before
            ):
                path.unlink(missing_ok=True)
