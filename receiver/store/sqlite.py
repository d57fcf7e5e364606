"""Stores subscriptions in a SQLite file.

There is one connection under one lock, because changes are rare and take a few milliseconds. The
write-ahead log is fully synchronised, so that an answered change is on disk. An application id in
the file makes sure that no other program's database is written to.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import structlog

from receiver.store.store import StoreError, StoreStatus, unusable
from receiver.telemetry.subscription import Subscription, within_bounds

#: "KCT1": marks the files of this program.
_APPLICATION_ID = 0x4B435431

_BUSY_TIMEOUT_S = 5.0

_MAX_LOGGED: Final = 20

_log = structlog.get_logger("receiver.store")

_EPOCH = datetime.fromtimestamp(0, UTC)

#: The schema version that this program reads and writes.
SCHEMA_VERSION: Final = 1

# Times are milliseconds since the epoch.
_CREATE: Final = """
    CREATE TABLE subscription (
        name TEXT NOT NULL PRIMARY KEY,
        metrics TEXT NOT NULL,
        interval_ms INTEGER NOT NULL,
        match TEXT NOT NULL,
        enabled INTEGER NOT NULL,
        expires_at INTEGER,
        temporality TEXT,
        labels TEXT NOT NULL,
        description TEXT NOT NULL,
        changed_by TEXT,
        changed_at INTEGER
    ) WITHOUT ROWID
"""

_COLUMNS = (
    "name",
    "metrics",
    "interval_ms",
    "match",
    "enabled",
    "expires_at",
    "temporality",
    "labels",
    "description",
    "changed_by",
    "changed_at",
)
_NAMES = ", ".join(_COLUMNS)
_SELECT = f"SELECT {_NAMES} FROM subscription ORDER BY name"  # noqa: S608 -- constants
_PUT = f"REPLACE INTO subscription ({_NAMES}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608

_PROBLEMS = {
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: its folder must exist and be writable for the receiver",
    sqlite3.SQLITE_READONLY: "cannot be written: make the file and its folder writable for the receiver",
    sqlite3.SQLITE_PERM: "cannot be written: make the file and its folder writable for the receiver",
    sqlite3.SQLITE_NOTADB: "is not a SQLite database: set another subscriptions.path",
    sqlite3.SQLITE_CORRUPT: "is corrupt: restore it, or move it away and create the subscriptions again",
    sqlite3.SQLITE_BUSY: "is in use by another process: give each receiver a file of its own",
    sqlite3.SQLITE_LOCKED: "is in use by another process: give each receiver a file of its own",
    sqlite3.SQLITE_FULL: "cannot be written: the disk is full",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk reports an error",
}


def _column(value: Any) -> Any:
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, Mapping):
        return json.dumps(dict(value), sort_keys=True)
    return json.dumps(value) if isinstance(value, tuple) else value


def _time(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)


def _create(path: Path) -> None:
    # SQLite would make the file readable for all users. Its log and index get the same mode as the
    # file. An existing file is not opened, because closing it would drop this process's locks on
    # it. Errors are ignored here, because SQLite reports them with a better message.
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: a loop of symbolic links
        os.close(os.open(path.resolve(), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _subscription(row: tuple[Any, ...], refused: dict[str, str]) -> Subscription | None:
    """Return the subscription of a row.

    None if it can't be used, and why in ``refused``.
    """
    values = dict(zip(_COLUMNS, row, strict=True))
    try:
        read = {
            "metrics": tuple(json.loads(values["metrics"])),
            "match": json.loads(values["match"]),
            "enabled": bool(values["enabled"]),
            "expires_at": _time(values["expires_at"]),
            "labels": json.loads(values["labels"]),
            "changed_at": _time(values["changed_at"]),
        }
        return Subscription(**values | read)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        refused[str(values["name"])] = str(error)
        return None


class SqliteSubscriptionStore:
    """A SQLite file of subscriptions, created with mode 0600 if it does not exist.

    The methods block. They may be called from any thread. Every method raises :class:`StoreError`
    if the file cannot be used; nothing has changed then. A row that can't be used is left out, and
    :meth:`status` names it; putting the subscription again replaces it.
    """

    def __init__(self, path: Path) -> None:
        self._place = str(path)
        self._lock = threading.Lock()
        self._refused: dict[str, str] = {}
        self._status = StoreStatus()
        _create(path)
        with self._translated_errors():
            # isolation_level None: the code below begins and ends transactions itself.
            self._connection = sqlite3.connect(
                path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def load_all(self) -> tuple[Subscription, ...]:
        """Read all subscriptions by name."""
        with self._lock, self._translated_errors():
            rows = self._connection.execute(_SELECT).fetchall()
        refused: dict[str, str] = {}
        found = [one for row in rows if (one := _subscription(row, refused)) is not None]
        kept, others = within_bounds(found)
        refused |= {other.name: str(error) for other, error in others}
        self._report(refused)
        return tuple(kept)

    def put(self, subscription: Subscription) -> None:
        """Create or replace the subscription; it is durable on return."""
        with self._lock, self._translated_errors():
            self._connection.execute(_PUT, [_column(getattr(subscription, name)) for name in _COLUMNS])

    def delete(self, name: str) -> None:
        """Delete the subscription of this name if it exists; this is durable on return."""
        with self._lock, self._translated_errors():
            self._connection.execute("DELETE FROM subscription WHERE name = ?", (name,))

    def refresh(self) -> None:
        """Do nothing, because the file belongs to this receiver alone."""

    def follow(self, changed: Callable[[], None]) -> None:
        """Do nothing, because the file belongs to this receiver alone."""

    def status(self) -> StoreStatus:
        """Return which rows can't be used; every other failure is the caller's error."""
        return self._status

    def close(self) -> None:
        """Close the file. No other method may be called afterwards."""
        with self._lock:
            self._connection.close()

    def _prepare(self) -> None:
        with self._translated_errors():
            self._check_version()
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            # Begun even if the table is there, so that a read-only file is found now, not at
            # the first PUT.
            self._connection.execute("BEGIN IMMEDIATE")
            # Checked again under the lock, because another process may have changed the file. An
            # error rolls back, because the constructor then closes the connection.
            if self._check_version() == 0:
                self._connection.execute(_CREATE)
            self._connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            self._connection.execute("COMMIT")

    def _check_version(self) -> int:
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != _APPLICATION_ID and (tables or application or version):
            raise StoreError(
                self._place, "is the database of another program: set another subscriptions.path"
            )
        if version > SCHEMA_VERSION:
            raise StoreError(
                self._place,
                f"was written by a newer version (schema {version}, supported: {SCHEMA_VERSION}): "
                "run that version, or set another subscriptions.path",
            )
        return int(version)

    def _report(self, refused: dict[str, str]) -> None:
        if refused == self._refused:
            return
        self._refused = refused
        failures = self._status.failures + len(refused)
        problem = None
        if refused:
            problem = unusable(self._place, refused)
            lines = [f"{name!r}: {reason}" for name, reason in refused.items()]
            _log.error("subscriptions not usable here", problems=lines[:_MAX_LOGGED])
        self._status = StoreStatus(problem=problem, failures=failures)

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            # The low byte is the primary code. The other bytes refine it.
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            raise StoreError(self._place, _PROBLEMS.get(code, f"SQLite: {error}")) from error
