"""The names in the folder: how they are made, and which are ours.

Owns every name that the plugin writes or deletes. Pure: lists, opens and deletes nothing.

::

    date=2026-01-31/hour=13/20260131T130512123456Z-HOST-3f9c02ab-00000042.parquet    published
    _manifest/2026-01-31.HOST.jsonl                                                  what became of
    which _journal/20260131T130512123456Z-HOST-3f9c02ab-00000042.journal                   accepted
    _journal/...-00000042.2026-01-31T13.parquet.tmp                                  being written

Readers of folders (Spark, Hive, pyarrow.dataset) pass over names that begin with ``_``.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

__all__ = [
    "HEAVY",
    "JOURNALS",
    "MANIFESTS",
    "Hour",
    "Stem",
    "host_name",
    "is_heavy_name",
    "is_published_name",
    "manifest_day",
    "manifest_name",
]

#: The folder of what is accepted and not yet published; on the published files' own file system.
JOURNALS = "_journal"
#: The folder of the manifest.
MANIFESTS = "_manifest"

_DATE = re.compile(r"date=(\d{4}-\d{2}-\d{2})")
_HOUR = re.compile(r"hour=(\d{2})")
_STEM = re.compile(r"(\d{8}T\d{12}Z)-([A-Za-z0-9.-]{1,63})-([0-9a-f]{8})-(\d{8,})")
_MANIFEST = re.compile(r"(\d{4}-\d{2}-\d{2})\.[A-Za-z0-9.-]{1,63}\.jsonl")
_HOUR_NS = 3_600_000_000_000


#: What the run of a file begins with that goes first when the folder is at its bound.
HEAVY = "f"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stem:
    """What names a journal and the files that are made of it: sortable by time, and never given twice.

    Attributes:
        opened: When the journal was begun, ``20260131T130512123456Z``.
        host: Whose it is, as :func:`host_name`.
        run: Which start of which plugin on that host it is, 8 random hexadecimal digits. The first
            is :data:`HEAVY` where the pushes are of sites that pushed more than their share.
        number: Which journal of that run it is, counted from 1.
    """

    opened: str
    host: str
    run: str
    number: int

    @classmethod
    def new(cls, now: datetime, *, host: str, run: str, number: int) -> Stem:
        """The name of a journal that is begun now (UTC)."""
        return cls(opened=now.strftime("%Y%m%dT%H%M%S%fZ"), host=host, run=run, number=number)

    @classmethod
    def parse(cls, name: str) -> Stem | None:
        """What a file's name without its ending says, or None when it isn't ours."""
        found = _STEM.fullmatch(name)
        return (
            None if found is None else cls(opened=found[1], host=found[2], run=found[3], number=int(found[4]))
        )

    def __str__(self) -> str:
        return f"{self.opened}-{self.host}-{self.run}-{self.number:08d}"


@dataclass(frozen=True, slots=True, order=True)
class Hour:
    """An hour of receive times, which has a folder of its own.

    Attributes:
        number: Hours since the epoch (UTC).
    """

    number: int

    @classmethod
    def of(cls, received_at_ns: int) -> Hour:
        """The hour of a time in nanoseconds since the epoch."""
        return cls(received_at_ns // _HOUR_NS)

    @classmethod
    def parse(cls, date_folder: str, hour_folder: str) -> Hour | None:
        """The hour of a pair of folders, or None when they aren't ours."""
        days, hours = _DATE.fullmatch(date_folder), _HOUR.fullmatch(hour_folder)
        if days is None or hours is None:
            return None
        try:
            start = datetime.fromisoformat(days[1]).replace(tzinfo=UTC, hour=int(hours[1]))
        except ValueError:
            return None
        return cls(int(start.timestamp()) // 3600)

    @property
    def start_ns(self) -> int:
        """Its first nanosecond since the epoch."""
        return self.number * _HOUR_NS

    @property
    def end_ns(self) -> int:
        """The first nanosecond after it."""
        return self.start_ns + _HOUR_NS

    @property
    def folder(self) -> Path:
        """Its folder in the plugin's, partitioned as Hive does."""
        start = datetime.fromtimestamp(self.number * 3600, UTC)
        return Path(f"date={start:%Y-%m-%d}", f"hour={start:%H}")

    def __str__(self) -> str:
        return f"{datetime.fromtimestamp(self.number * 3600, UTC):%Y-%m-%dT%H}"


def host_name() -> str:
    """This machine's (or container's) name, of the characters that names here may have."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:63] or "host"


def is_published_name(name: str) -> bool:
    """Whether a file in an hour's folder is one that this plugin has published, on whatever host."""
    return name.endswith(".parquet") and _STEM.fullmatch(name.removesuffix(".parquet")) is not None


def is_heavy_name(name: str) -> bool:
    """Whether a published file holds the pushes of sites that pushed more than their share."""
    stem = Stem.parse(name.removesuffix(".parquet"))
    return stem is not None and stem.run.startswith(HEAVY)


def manifest_name(day: date, host: str) -> str:
    """The manifest of what a host published and removed on a day (UTC)."""
    return f"{day.isoformat()}.{host}.jsonl"


def manifest_day(name: str) -> date | None:
    """The day of a manifest's name, or None when it isn't ours."""
    found = _MANIFEST.fullmatch(name)
    try:
        return None if found is None else date.fromisoformat(found[1])
    except ValueError:
        return None
