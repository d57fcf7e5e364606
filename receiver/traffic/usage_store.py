"""Usage by day, principal and client id, in a SQLite file.

Each settlement is one transaction with its stamp, so that none counts twice: a core that starts
anew ignores what a relay's table says of settlements that were not committed.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import structlog

from receiver.settings.usage import UsageSettings

#: "KCU1": marks the files of this program.
_APPLICATION_ID: Final = 0x4B435531
_SCHEMA_VERSION: Final = 1
_BUSY_TIMEOUT_S: Final = 5.0

#: What stands for the client ids, or the principals, for which a day has no room.
OTHER: Final = "(other)"

#: Most groups of clients whose APIs are kept; the least recently used is forgotten first.
_MAX_API_ROWS: Final = 200_000

_CREATE: Final = (
    """CREATE TABLE usage (
        day TEXT NOT NULL, principal TEXT NOT NULL, client_id TEXT NOT NULL,
        bytes_in INTEGER NOT NULL, bytes_out INTEGER NOT NULL, requests INTEGER NOT NULL,
        connections INTEGER NOT NULL,
        PRIMARY KEY (day, principal, client_id)
    ) WITHOUT ROWID""",
    """CREATE TABLE api_use (
        principal TEXT NOT NULL, client_id TEXT NOT NULL, software TEXT NOT NULL, version TEXT NOT NULL,
        api_key INTEGER NOT NULL, lowest INTEGER NOT NULL, highest INTEGER NOT NULL,
        first_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL,
        PRIMARY KEY (principal, client_id, software, version, api_key)
    ) WITHOUT ROWID""",
    "CREATE INDEX api_use_last ON api_use (last_ms)",
    "CREATE TABLE committed (stamp INTEGER NOT NULL)",
    "INSERT INTO committed VALUES (0)",
)
_log = structlog.get_logger("receiver.core")

_ADD: Final = """
    INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
        bytes_in = bytes_in + excluded.bytes_in, bytes_out = bytes_out + excluded.bytes_out,
        requests = requests + excluded.requests, connections = connections + excluded.connections
"""
_FORGET_APIS: Final = """
    DELETE FROM api_use WHERE last_ms < (SELECT last_ms FROM api_use ORDER BY last_ms DESC LIMIT 1 OFFSET ?)
"""
_SAW: Final = """
    INSERT INTO api_use VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
        lowest = min(lowest, excluded.lowest), highest = max(highest, excluded.highest),
        last_ms = excluded.last_ms
"""


class Key(NamedTuple):
    """Whom usage counts for."""

    principal: str
    client_id: str


class Amounts(NamedTuple):
    """Bytes from clients, bytes to them, requests, connections that began."""

    bytes_in: int
    bytes_out: int
    requests: int
    connections: int

    def plus(self, other: Amounts) -> Amounts:
        """Return the sum."""
        return Amounts(*(mine + more for mine, more in zip(self, other, strict=True)))


#: Principal, client id, software name and version.
ApiGroup: TypeAlias = tuple[str, str, str, str]


class UsageRow(NamedTuple):
    """What a principal's client id used in a day (UTC)."""

    day: str
    principal: str
    client_id: str
    amounts: Amounts


class ApiUse(NamedTuple):
    """An API that a group of clients has used.

    Attributes:
        first_ms: When it was first seen, in milliseconds since the epoch.
        last_ms: When a connection that has used it last moved bytes.
    """

    principal: str
    client_id: str
    software: str
    version: str
    api_key: int
    lowest: int
    highest: int
    first_ms: int
    last_ms: int

    @property
    def group(self) -> ApiGroup:
        """The group of clients."""
        return self.principal, self.client_id, self.software, self.version


@dataclass(slots=True)
class Settlement:
    """What is added in one transaction.

    Attributes:
        stamp: Its number.
        day: The day, as ``2026-11-29``.
        now_ms: Milliseconds since the epoch.
        usage: What was used.
        apis: The lowest and the highest version by API key, of each group.
    """

    stamp: int
    day: str
    now_ms: int
    usage: dict[Key, Amounts] = field(default_factory=dict)
    apis: dict[ApiGroup, Mapping[int, tuple[int, int]]] = field(default_factory=dict)

    def add(self, key: Key, amounts: Amounts) -> None:
        """Add what was used."""
        known = self.usage.get(key)
        self.usage[key] = amounts if known is None else known.plus(amounts)


class UsageError(Exception):
    """The file of ``usage.path`` can't be used."""


def open_usage(settings: UsageSettings, otherwise: Path | None) -> UsageStore:
    """Open the file of the usage.

    Args:
        settings: The settings.
        otherwise: The file if they name none; None: in memory.

    Raises:
        UsageError: The file that they name can't be used.
    """
    days, max_rows = settings.days, settings.max_rows_per_day
    try:
        return UsageStore(settings.path or otherwise, days=days, max_rows=max_rows)
    except sqlite3.Error as error:
        if settings.path is not None:
            raise UsageError(f"usage.path {settings.path}: {error}") from None
        _log.warning("usage is kept in memory only", problem=str(error))
        return UsageStore(None, days=days, max_rows=max_rows)


class UsageStore:
    """The file. Its methods block, and may be called from several threads.

    Args:
        path: The file; None: in memory.
        days: Days that are kept.
        max_rows: Most pairs of principal and client id of a day.

    Raises:
        sqlite3.Error: It can't be opened.
    """

    def __init__(self, path: Path | None, *, days: int, max_rows: int) -> None:
        self.path = path
        self._days = days
        self._max_rows = max_rows
        self._lock = threading.Lock()
        self._db = sqlite3.connect(
            ":memory:" if path is None else path,
            _BUSY_TIMEOUT_S,
            check_same_thread=False,
            isolation_level=None,
        )
        try:
            self._open()
        except BaseException:
            self._db.close()
            raise
        self._known: dict[Key, None] = {}  # those that have a row of the day
        self._day = ""

    def _open(self) -> None:
        db = self._db
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and (application, version) != (_APPLICATION_ID, _SCHEMA_VERSION):
            raise sqlite3.DatabaseError("is no usage file of this version: set another usage.path")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        if not tables:
            with self._lock, db:
                db.execute("BEGIN")
                for statement in _CREATE:
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    @property
    def committed(self) -> int:
        """The stamp of the latest settlement."""
        with self._lock:
            (stamp,) = self._db.execute("SELECT stamp FROM committed").fetchone()
        return int(stamp)

    def commit(self, settlement: Settlement) -> None:
        """Add a settlement, and delete days that are too old.

        Raises:
            sqlite3.Error: It could not be stored.
        """
        with self._lock:
            if settlement.day != self._day:
                self._begin_day(settlement.day)
            with self._db as db:
                db.execute("BEGIN IMMEDIATE")
                usage = [
                    (settlement.day, *self._folded(key), *used) for key, used in settlement.usage.items()
                ]
                db.executemany(_ADD, usage)
                db.executemany(_SAW, _api_rows(settlement))
                db.execute("UPDATE committed SET stamp = ?", (settlement.stamp,))

    def _begin_day(self, day: str) -> None:
        rows = self._db.execute("SELECT principal, client_id FROM usage WHERE day = ?", (day,))
        self._known = {Key(*row): None for row in rows}
        self._day = day
        self._db.execute("DELETE FROM usage WHERE day <= date(?, ?)", (day, f"-{self._days} days"))
        self._db.execute(_FORGET_APIS, (_MAX_API_ROWS,))

    def _folded(self, key: Key) -> Key:
        """Return whose row a key counts in, which exists from now on."""
        most = self._max_rows
        for candidate, room in ((key, most), (Key(key.principal, OTHER), 2 * most)):
            if candidate in self._known or len(self._known) < room:
                self._known[candidate] = None
                return candidate
        return Key(OTHER, OTHER)

    def usage(self, since: str, until: str) -> list[UsageRow]:
        """Return the rows of the days from ``since`` to ``until``, both included."""
        query = "SELECT * FROM usage WHERE day BETWEEN ? AND ? ORDER BY day, principal, client_id"
        with self._lock:
            found = self._db.execute(query, (since, until)).fetchall()
        return [
            UsageRow(day, principal, client_id, Amounts(*used)) for day, principal, client_id, *used in found
        ]

    def apis(self, since_ms: int) -> list[ApiUse]:
        """Return the APIs that were used since a time, in milliseconds since the epoch."""
        query = "SELECT * FROM api_use WHERE last_ms >= ? ORDER BY principal, client_id, software, version"
        with self._lock:
            return [ApiUse(*row) for row in self._db.execute(query, (since_ms,))]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()


def _api_rows(settlement: Settlement) -> Iterable[tuple[object, ...]]:
    now = settlement.now_ms
    for group, used in settlement.apis.items():
        for api_key, (lowest, highest) in used.items():
            yield (*group, api_key, lowest, highest, now, now)
