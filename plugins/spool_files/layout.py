"""Builds and parses the names of the plugin's files and folders.

::

    date=2026-01-31/hour=13/20260131T130512123456Z-HOST-3f9c02ab-00000042.parquet    published
    _manifest/2026-01-31.HOST.jsonl                                                  the manifest
    _journal/20260131T130512123456Z-HOST-3f9c02ab-00000042.journal                   accepted
    _journal/...-00000042.2026-01-31T13.parquet.tmp                                  being written

Spark, Hive and pyarrow.dataset skip names that begin with ``_``.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

#: Folder of journals, on the same file system as the published files.
JOURNALS = "_journal"
#: Folder of the manifests.
MANIFESTS = "_manifest"

_DATE = re.compile(r"date=(\d{4}-\d{2}-\d{2})")
_HOUR = re.compile(r"hour=(\d{2})")
_STEM = re.compile(r"(\d{8}T\d{12}Z)-([A-Za-z0-9.-]{1,63})-([0-9a-f]{8})-(\d{8,})")
_MANIFEST = re.compile(r"(\d{4}-\d{2}-\d{2})\.[A-Za-z0-9.-]{1,63}\.jsonl")
HOUR_NS = 3_600_000_000_000

#: First digit of the run of a file that is deleted first when the folder reaches its bound.
HEAVY = "f"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stem:
    """Name of a journal and its published files: sorts by time and is never reused."""

    opened: str
    """Creation time of the journal, ``20260131T130512123456Z``."""
    host: str
    """The host, from :func:`host_name`."""
    run: str
    """8 random hexadecimal digits for each start of a plugin. The first is :data:`HEAVY` if the
    pushes are of address blocks that push more than their share."""
    number: int
    """Number of the journal within the run, from 1."""

    @classmethod
    def new(cls, now: datetime, *, host: str, run: str, number: int) -> Stem:
        """Return the name of a journal created now (UTC)."""
        return cls(opened=now.strftime("%Y%m%dT%H%M%S%fZ"), host=host, run=run, number=number)

    @classmethod
    def parse(cls, name: str) -> Stem | None:
        """Parse a file name without its suffix; None if it is not one of the plugin's."""
        if (found := _STEM.fullmatch(name)) is None:
            return None
        return cls(opened=found[1], host=found[2], run=found[3], number=int(found[4]))

    def __str__(self) -> str:
        return f"{self.opened}-{self.host}-{self.run}-{self.number:08d}"


@dataclass(frozen=True, slots=True, order=True)
class Hour:
    """An hour of receive times, with its own folder; counted from the epoch (UTC)."""

    number: int

    @classmethod
    def of(cls, received_at_ns: int) -> Hour:
        """Return the hour of a time in nanoseconds since the epoch."""
        return cls(received_at_ns // HOUR_NS)

    @classmethod
    def parse(cls, date_folder: str, hour_folder: str) -> Hour | None:
        """Parse a pair of folder names; None if they are not the plugin's."""
        days, hours = _DATE.fullmatch(date_folder), _HOUR.fullmatch(hour_folder)
        if days is None or hours is None:
            return None
        try:
            start = datetime.fromisoformat(days[1]).replace(tzinfo=UTC, hour=int(hours[1]))
        except ValueError:
            return None
        return cls(int(start.timestamp()) // 3600)

    @property
    def end_ns(self) -> int:
        """The first nanosecond after it, since the epoch."""
        return (self.number + 1) * HOUR_NS

    @property
    def folder(self) -> Path:
        """Its folder relative to the plugin's, partitioned like Hive's."""
        day, hour = str(self).split("T")
        return Path(f"date={day}", f"hour={hour}")

    def __str__(self) -> str:
        return f"{datetime.fromtimestamp(self.number * 3600, UTC):%Y-%m-%dT%H}"


def host_name() -> str:
    """Return the host name, with invalid characters replaced."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:63] or "host"


def is_published_name(name: str) -> bool:
    """Return whether a name is that of a published file, of any host."""
    return name.endswith(".parquet") and Stem.parse(name.removesuffix(".parquet")) is not None


def is_heavy_name(name: str) -> bool:
    """Return whether a file has pushes of address blocks over their share."""
    stem = Stem.parse(name.removesuffix(".parquet"))
    return stem is not None and stem.run.startswith(HEAVY)


def manifest_name(day: date, host: str) -> str:
    """Return the name of a host's manifest of a day (UTC)."""
    return f"{day.isoformat()}.{host}.jsonl"


def manifest_day(name: str) -> date | None:
    """Parse the day of a manifest's name; None if it is not a manifest's."""
    found = _MANIFEST.fullmatch(name)
    try:
        return None if found is None else date.fromisoformat(found[1])
    except ValueError:
        return None
