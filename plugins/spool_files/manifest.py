"""The manifest: one JSON line for each file that was published or removed.

Each host appends to one manifest a day, so several hosts may share the folder. Nothing is
rewritten. A line follows after its file is published or removed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from plugins.spool_files.disk import Access, make_folder
from plugins.spool_files.layout import MANIFESTS, manifest_day, manifest_name

#: Bytes read from a manifest's end: some hundred lines.
_TAIL_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A published file."""

    file: str
    """Its path below the folder."""
    rows: int
    bytes: int
    otlp_bytes: int
    """Uncompressed OTLP bytes."""
    min_received_at_ns: int
    """Earliest receive time, nanoseconds since the epoch."""
    max_received_at_ns: int
    host: str
    run: str
    """The start of the plugin, as in the file's name."""
    sequence: int
    """Number of the journal within the run. Missing numbers had no push."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A file removed because of ``retain_hours`` (``age``) or ``max_bytes``."""

    file: str
    bytes: int
    reason: Literal["age", "max_bytes"]


class Manifest:
    """The manifest of one host in the plugin's folder."""

    def __init__(self, root: Path, host: str, access: Access) -> None:
        self._folder = root / MANIFESTS
        self._host = host
        self._access = access

    def append(self, entries: Sequence[Published | Removed], now: datetime) -> None:
        """Append entries durably to the manifest of the day.

        Raises:
            OSError: The disk refuses. A line may be written in part; a retry writes the entries
                again.
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
                # A full disk cut the last line. Start a new one.
                lines = b"\n" + lines
            if file.write(lines) != len(lines):
                raise OSError(f"{path}: written in part")
            os.fdatasync(file.fileno())

    def newest(self, now: datetime) -> Iterator[str]:
        """Yield the files that this host published recently, newest first."""
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
        """Delete the manifests, of all hosts, of days that ended before a time."""
        if not self._folder.is_dir():
            return
        for path in self._folder.iterdir():
            day = manifest_day(path.name)
            if day is not None and day < before.date():
                path.unlink(missing_ok=True)
