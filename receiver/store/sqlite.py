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
from collections.abc import Callable, Iterator
from pathlib import Path

from receiver.store.store import StoreError, StoreStatus
from receiver.telemetry.subscription import Subscription

__all__ = ["SCHEMA_VERSION", "SqliteSubscriptionStore"]

#: "KCT1": marks the files of this program.
_APPLICATION_ID = 0x4B435431

_BUSY_TIMEOUT_S = 5.0

# Step n migrates a file from version n to n + 1. Never change a released step, but add another.
_MIGRATIONS = (
    """
    CREATE TABLE subscription (
        name TEXT NOT NULL PRIMARY KEY,
        metrics TEXT NOT NULL,
        interval_ms INTEGER NOT NULL,
        match TEXT NOT NULL
    ) WITHOUT ROWID
    """,
)

#: The schema version that this program writes.
SCHEMA_VERSION = len(_MIGRATIONS)

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


def _create(path: Path) -> None:
    # SQLite would make the file readable for all users. Its log and index get the same mode as the
    # file. An existing file is not opened, because closing it would drop this process's locks on
    # it. Errors are ignored here, because SQLite reports them with a better message.
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: a loop of symbolic links
        os.close(os.open(path.resolve(), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


class SqliteSubscriptionStore:
    """A SQLite file of subscriptions, created with mode 0600 if it does not exist.

    The methods block. They may be called from any thread. Every method raises :class:`StoreError`
    if the file cannot be used; nothing has changed then.
    """

    def __init__(self, path: Path) -> None:
        self._place = str(path)
        self._lock = threading.Lock()
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
            rows = self._connection.execute(
                "SELECT name, metrics, interval_ms, match FROM subscription ORDER BY name"
            ).fetchall()
        return tuple(self._subscription(*row) for row in rows)

    def put(self, subscription: Subscription) -> None:
        """Create or replace the subscription; it is durable on return."""
        with self._lock, self._translated_errors():
            self._connection.execute(
                "INSERT INTO subscription (name, metrics, interval_ms, match) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (name) DO UPDATE SET "
                "metrics = excluded.metrics, interval_ms = excluded.interval_ms, match = excluded.match",
                (
                    subscription.name,
                    json.dumps(list(subscription.metrics)),
                    subscription.interval_ms,
                    json.dumps(dict(subscription.match), sort_keys=True),
                ),
            )

    def delete(self, name: str) -> None:
        """Delete the subscription of this name if it exists; this is durable on return."""
        with self._lock, self._translated_errors():
            self._connection.execute("DELETE FROM subscription WHERE name = ?", (name,))

    def follow(self, changed: Callable[[], None]) -> None:
        """Do nothing, because the file belongs to this receiver alone."""

    def status(self) -> StoreStatus:
        """Return that the file can be used, because every failure is the caller's error."""
        return StoreStatus()

    def close(self) -> None:
        """Close the file. No other method may be called afterwards."""
        with self._lock:
            self._connection.close()

    def _prepare(self) -> None:
        with self._translated_errors():
            self._check_version()
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            # Begun even if no migration is due, so that a read-only file is found now, not at the
            # first PUT.
            self._connection.execute("BEGIN IMMEDIATE")
            # Checked again under the lock, because another process may have changed the file. An
            # error rolls back, because the constructor then closes the connection.
            version = self._check_version()
            for step in _MIGRATIONS[version:]:
                self._connection.execute(step)
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

    def _subscription(self, name: str, metrics: str, interval_ms: int, match: str) -> Subscription:
        try:
            return Subscription(
                name=name,
                metrics=tuple(json.loads(metrics)),
                interval_ms=interval_ms,
                match=json.loads(match),
            )
        except (TypeError, ValueError) as error:
            problem = str(error)
        raise StoreError(self._place, f"the subscription {name!r} cannot be used: {problem}")

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            # The low byte is the primary code. The other bytes refine it.
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            raise StoreError(self._place, _PROBLEMS.get(code, f"SQLite: {error}")) from error
