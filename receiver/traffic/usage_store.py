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

#: Most networks that are known of a principal, and the milliseconds after which another one is new.
_MAX_NETWORKS: Final = 256
_LEARNING_MS: Final = 7 * 86_400_000

#: Most principals whose use is known.
_MAX_PRINCIPALS: Final = 20_000

_DAY_MS: Final = 86_400_000

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
    """CREATE TABLE principal (
        principal TEXT NOT NULL PRIMARY KEY, first_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE network (
        principal TEXT NOT NULL, network TEXT NOT NULL, PRIMARY KEY (principal, network)
    ) WITHOUT ROWID""",
    "CREATE TABLE committed (stamp INTEGER NOT NULL)",
    "INSERT INTO committed VALUES (0)",
)
_log = structlog.get_logger("receiver.core")

_ADD: Final = """
    INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
        bytes_in = bytes_in + excluded.bytes_in, bytes_out = bytes_out + excluded.bytes_out,
        requests = requests + excluded.requests, connections = connections + excluded.connections
"""
_USED: Final = """
    INSERT INTO principal VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET last_ms = excluded.last_ms
"""
_FROM: Final = """
    INSERT OR IGNORE INTO network SELECT ?1, ?2
    WHERE (SELECT count(*) FROM network WHERE principal = ?1) < ?3
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


class PrincipalUse(NamedTuple):
    """When a principal was first and last used, in milliseconds since the epoch."""

    first_ms: int
    last_ms: int


#: Principal, client id, software name and version.
ApiGroup: TypeAlias = tuple[str, str, str, str]


class UsageRow(NamedTuple):
    """What a principal's client id used in a day (UTC)."""

    day: str
    principal: str
    client_id: str
    amounts: Amounts


class ApiUse(NamedTuple):
    """An API that a group of clients has used."""

    principal: str
    client_id: str
    software: str
    version: str
    api_key: int
    lowest: int
    highest: int
    first_ms: int
    """When it was first seen, in milliseconds since the epoch."""
    last_ms: int
    """When a connection that has used it last moved bytes."""

    @property
    def group(self) -> ApiGroup:
        """The group of clients."""
        return self.principal, self.client_id, self.software, self.version


@dataclass(slots=True)
class Settlement:
    """What is added in one transaction."""

    stamp: int
    day: str
    """The day, as ``2026-11-29``."""
    now_ms: int
    """Milliseconds since the epoch."""
    usage: dict[Key, Amounts] = field(default_factory=dict)
    apis: dict[ApiGroup, Mapping[int, tuple[int, int]]] = field(default_factory=dict)
    """The lowest and the highest version by API key, of each group."""
    networks: dict[str, set[str]] = field(default_factory=dict)
    """The networks that each principal was used from."""

    def add(self, key: Key, amounts: Amounts) -> None:
        """Add what was used."""
        known = self.usage.get(key)
        self.usage[key] = amounts if known is None else known.plus(amounts)


class UsageError(Exception):
    """The file of ``usage.path`` can't be used."""


class UsageUnavailableError(Exception):
    """The usage can't be read now."""


def open_usage(settings: UsageSettings, otherwise: Path | None) -> UsageStore:
    """Open the file of the usage.

    Args:
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
        self.principals: dict[str, PrincipalUse] = {
            principal: PrincipalUse(first_ms, last_ms)
            for principal, first_ms, last_ms in self._db.execute("SELECT * FROM principal")
        }
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

    def begin_after(self, stamp: int) -> int:
        """Take settlements up to a stamp for committed; return the latest one that is.

        Raises:
            sqlite3.Error: It could not be stored.
        """
        with self._lock:
            self._db.execute("UPDATE committed SET stamp = max(stamp, ?)", (stamp,))
        return self.committed

    def commit(self, settlement: Settlement) -> dict[str, int]:
        """Add a settlement, delete old days; count each principal's new networks.

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
                new_networks = self._use_principals(settlement)
            self._note_use(settlement)
        return new_networks

    def _use_principals(self, settlement: Settlement) -> dict[str, int]:
        now_ms = settlement.now_ms
        used = {key.principal for key in settlement.usage}
        self._db.executemany(_USED, [(principal, now_ms, now_ms) for principal in used])
        found: dict[str, int] = {}
        for principal, networks in settlement.networks.items():
            use = self.principals.get(principal)
            is_known = use is not None and now_ms - use.first_ms >= _LEARNING_MS
            for network in networks:
                added = self._db.execute(_FROM, (principal, network, _MAX_NETWORKS)).rowcount
                if added > 0 and is_known:
                    found[principal] = found.get(principal, 0) + 1
        return found

    def _note_use(self, settlement: Settlement) -> None:
        principals = dict(self.principals)  # others read it
        for key in settlement.usage:
            use = principals.get(key.principal)
            first_ms = settlement.now_ms if use is None else use.first_ms
            principals[key.principal] = PrincipalUse(first_ms, settlement.now_ms)
        self.principals = principals

    def _begin_day(self, day: str) -> None:
        rows = self._db.execute("SELECT principal, client_id FROM usage WHERE day = ?", (day,))
        self._known = {Key(*row): None for row in rows}
        self._day = day
        self._db.execute("DELETE FROM usage WHERE day <= date(?, ?)", (day, f"-{self._days} days"))
        self._db.execute(_FORGET_APIS, (_MAX_API_ROWS,))
        self._forget_principals()

    def _forget_principals(self) -> None:
        latest = sorted(self.principals.items(), key=lambda entry: -entry[1].last_ms)
        since_ms = (latest[0][1].last_ms if latest else 0) - self._days * _DAY_MS
        kept = {name: use for name, use in latest[:_MAX_PRINCIPALS] if use.last_ms > since_ms}
        gone = [(name,) for name in self.principals.keys() - kept.keys()]
        self._db.executemany("DELETE FROM principal WHERE principal = ?", gone)
        self._db.executemany("DELETE FROM network WHERE principal = ?", gone)
        self.principals = kept

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
