"""Subscriptions in a SQLite file beside the sidecar.

Owns the file's schema and its versions. Theory: one connection under one lock, because a change is rare and
a few milliseconds long; write-ahead log with full synchronisation, so that what was answered is on the disk;
an application id, so that no other program's database is ever written to.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from receiver.store.store import StoreError
from receiver.telemetry.subscription import Subscription

__all__ = ["SCHEMA_VERSION", "SqliteSubscriptionStore"]

#: "KCT1": marks a file as ours.
_APPLICATION_ID = 0x4B435431

_BUSY_TIMEOUT_S = 5.0

# The step at index n takes a file from version n to n + 1. Never change one that was released: add another.
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

#: The version of the schema that this program writes.
SCHEMA_VERSION = len(_MIGRATIONS)

_NOT_OURS = "is another program's database: give another subscriptions.path"

_ADVICE = {
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: does its folder exist, and may the receiver write there?",
    sqlite3.SQLITE_READONLY: "cannot be written: make the file and its folder writable for the receiver",
    sqlite3.SQLITE_PERM: "cannot be written: make the file and its folder writable for the receiver",
    sqlite3.SQLITE_NOTADB: "is no SQLite database: give another subscriptions.path",
    sqlite3.SQLITE_CORRUPT: "is damaged: restore it, or move it away and create the subscriptions again",
    sqlite3.SQLITE_BUSY: "is in use by another process: give each receiver a file of its own",
    sqlite3.SQLITE_LOCKED: "is in use by another process: give each receiver a file of its own",
    sqlite3.SQLITE_FULL: "cannot be written: the disk is full",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk reports an error",
}


def _make(path: Path) -> None:
    # SQLite would make it readable for everybody; its log and index beside it get the file's own mode. Only
    # a file that isn't there is opened: closing another drops the locks that this process has on it. What
    # goes wrong here goes wrong for SQLite too, which says why.
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: links in a circle
        os.close(os.open(path.resolve(), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


class SqliteSubscriptionStore:
    """Keeps subscriptions in a SQLite file, which is made, for its owner alone, if it isn't there.

    Args:
        path: The file; its folder must exist.

    Raises:
        StoreError: The file cannot be opened and written, is no database, another program's, or of a newer
            version of this one.
    """

    def __init__(self, path: Path) -> None:
        self._place = str(path)
        self._lock = threading.Lock()
        _make(path)
        with self._explained():
            # isolation_level None: transactions are begun and ended below, in plain sight.
            self._connection = sqlite3.connect(
                path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def load_all(self) -> tuple[Subscription, ...]:
        """Every subscription, by name.

        Raises:
            StoreError: They cannot be read, or one of them is none.
        """
        with self._lock, self._explained():
            rows = self._connection.execute(
                "SELECT name, metrics, interval_ms, match FROM subscription ORDER BY name"
            ).fetchall()
        return tuple(self._subscription(*row) for row in rows)

    def put(self, subscription: Subscription) -> None:
        """Keep a subscription in place of the one of its name; durable on return.

        Raises:
            StoreError: It could not be written; the old one, if any, is still there.
        """
        with self._lock, self._explained():
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
        """Forget the subscription of a name, if there is one; durable on return.

        Raises:
            StoreError: It could not be written; the subscription is still there.
        """
        with self._lock, self._explained():
            self._connection.execute("DELETE FROM subscription WHERE name = ?", (name,))

    def close(self) -> None:
        """Let go of the file; nothing else may be called afterwards."""
        with self._lock:
            self._connection.close()

    def _prepare(self) -> None:
        with self._explained():
            self._refuse_what_is_not_ours()
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            # Even with nothing to do: it tells now, not at the first PUT, that the file is read-only.
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                # Asked again under the lock: another process may have been here in between.
                version = self._refuse_what_is_not_ours()
                for step in _MIGRATIONS[version:]:
                    self._connection.execute(step)
                self._connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _refuse_what_is_not_ours(self) -> int:
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != _APPLICATION_ID and (tables or application or version):
            raise StoreError(self._place, _NOT_OURS)
        if version > SCHEMA_VERSION:
            raise StoreError(
                self._place,
                f"was written by a newer version (schema {version}, this one knows {SCHEMA_VERSION}): "
                "run that version, or give another subscriptions.path",
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
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            # The low byte is the primary code; the rest only refines it.
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            raise StoreError(self._place, _ADVICE.get(code, f"SQLite says: {error}")) from error
