"""Writes one folder: appends pushes to journals and publishes these.

The plugin's thread appends. The writer's thread publishes journals and expires files. The writer
also drops pushes that the host sends again after a crash.
"""

from __future__ import annotations

import functools
import math
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from plugins.spool_files.accepted import newest_accepted
from plugins.spool_files.columns import record_batch
from plugins.spool_files.config import SpoolFilesConfig
from plugins.spool_files.disk import OWNER, OWNER_AND_GROUP, make_folder
from plugins.spool_files.journal import ENDING, Journal, UnreadableJournalError
from plugins.spool_files.layout import HEAVY, JOURNALS, Stem, host_name
from plugins.spool_files.manifest import Manifest, Removed
from plugins.spool_files.publish import publish
from plugins.spool_files.retention import ExpiryClock, folder_bytes, remove_expired, remove_surplus
from plugins.spool_files.without_pandas import keep_pandas_out
from receiver.peers.shares import RecentShares
from receiver.peers.sources import block_of
from receiver.plugin import Push, PushIdentity, RetryableError
from spark_streaming.threads import start_thread

#: Bound on waiting journals while publishing fails. Then no push is accepted.
_MAX_WAITING = 4
#: Seconds between attempts to publish after a failure.
_RETRY_S = 1.0
#: Seconds between checks for expired files and journals of ended processes.
_SWEEP_S = 60.0
#: Another host's journal is claimed after this many seconds without a write, because not every
#: network file system supports locks.
_ORPHANED_AFTER_S = 3600.0
#: This many of the newest pushes from before a restart are recognised if they come again. They are
#: forgotten after as many pushes. Repeated pushes are about a second old and come first.
_REMEMBERED = 100_000

#: The shares of blocks are measured over this many OTLP bytes: a good minute of a busy folder.
_SHARES_WINDOW = 64 << 20
#: First digits of the run of a file that is not heavy.
_LIGHT = "0123456789abcde"


class FolderWriter:
    """Writes to one folder. It is opened and closed once."""

    def __init__(self, config: SpoolFilesConfig) -> None:
        self._root = config.path
        self._journals = config.path / JOURNALS
        self._roll_s = float(config.roll_seconds)
        self._roll_bytes = config.roll_bytes
        self._retain = None if config.retain_hours is None else timedelta(hours=config.retain_hours)
        self._max_bytes = config.max_bytes
        self._host = host_name()
        self._run = _LIGHT[secrets.randbelow(len(_LIGHT))] + secrets.token_hex(4)[1:]
        self._number = 0
        self._access = OWNER_AND_GROUP if config.group_readable else OWNER
        self._manifest = Manifest(config.path, self._host, self._access)
        self._expiry = ExpiryClock()
        # Guards everything below. Held for at most one write to a journal.
        self._changed = threading.Condition()
        # Journals by whether their blocks push more than their share. There is one, unless room is
        # short.
        self._open: dict[bool, Journal] = {}
        self._due = math.inf
        self._short_of_room = False
        self._waiting: deque[Journal] = deque()
        self._problem: str | None = None
        self._messages: Counter[str] = Counter()
        self._closing = False
        # Used only by the appending thread.
        self._known: set[PushIdentity] = set()
        self._accepted = 0
        self._shares: RecentShares[str] = RecentShares(_SHARES_WINDOW)
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Claim the journals of ended processes and start the thread.

        Raises:
            OSError: The folder cannot be written to.
        """
        keep_pandas_out()
        # Fails now, not at the first push, if the folder is not writable or has no locks.
        self._new_journal().delete()
        self._claim_journals()
        published = (self._root / file for file in self._manifest.newest(datetime.now(UTC)))
        self._known = newest_accepted(self._waiting, published, _REMEMBERED)
        self._thread = start_thread("spool-files", self._publish_all)

    def append(self, pushes: Sequence[Push]) -> None:
        """Write pushes durably. They are published later.

        Raises:
            RetryableError: They cannot be written now. None of them is accepted.
        """
        if self._known:
            pushes = self._without_known(pushes)
        if not pushes:
            return
        with self._changed:
            split = self._short_of_room
        lanes: dict[bool, list[Push]] = {}
        for push in pushes:
            block = block_of(push.context.source_address)
            lanes.setdefault(split and self._shares.is_over(block), []).append(push)
            self._shares.wrote(block, len(push.payload.data))
        batches = {heavy: record_batch(lane) for heavy, lane in lanes.items()}
        with self._changed:
            if self._problem is not None and len(self._waiting) >= _MAX_WAITING:
                raise RetryableError(f"files cannot be published: {self._problem}")
            appended: list[tuple[Journal, int]] = []
            try:
                for heavy, batch in batches.items():
                    journal = self._journal(heavy=heavy)
                    size = journal.size
                    journal.append(batch)
                    appended.append((journal, size))
            except OSError as error:
                # All pushes are retried, so none may stay.
                for journal, size in appended:
                    journal.cut_back(size)
                raise RetryableError(f"cannot write to {self._journals}: {error.strerror or error}") from None
            if any(journal.size >= self._roll_bytes for journal in self._open.values()):
                self._seal()
                self._changed.notify()

    def drain_messages(self) -> str:
        """Return the operator's messages since the last call; empty if there are none."""
        with self._changed:
            messages = [f"{what}: {count}" for what, count in self._messages.items()]
            self._messages.clear()
            if self._problem is not None:
                messages.append(f"files cannot be published or removed: {self._problem}")
        return "; ".join(messages)

    def close(self) -> None:
        """Publish all journals and end the thread.

        Unpublished journals stay for the next start.
        """
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        while self._waiting:
            self._waiting.popleft().close()

    def _journal(self, *, heavy: bool) -> Journal:
        journal = self._open.get(heavy)
        if journal is not None and journal.deleted:
            self._messages["deleted journals, published anyway"] += 1
            self._waiting.append(self._open.pop(heavy))
            journal = None
        if journal is None:
            journal = self._new_journal(heavy=heavy)
            if not self._open:
                self._due = time.monotonic() + self._roll_s
            self._open[heavy] = journal
            self._changed.notify()
        return journal

    def _new_journal(self, *, heavy: bool = False) -> Journal:
        # The folder may have been deleted since the start.
        make_folder(self._root, self._access)
        make_folder(self._journals)
        while True:
            self._number += 1
            run = HEAVY + self._run[1:] if heavy else self._run
            stem = Stem.new(datetime.now(UTC), host=self._host, run=run, number=self._number)
            try:
                return Journal.create(self._journals, stem)
            except BlockingIOError:
                continue

    def _seal(self) -> None:
        self._waiting.extend(self._open[heavy] for heavy in sorted(self._open))
        self._open.clear()
        self._due = math.inf

    def _without_known(self, pushes: Sequence[Push]) -> Sequence[Push]:
        new = [push for push in pushes if push.identity not in self._known]
        self._accepted += len(pushes)
        if self._accepted >= _REMEMBERED:
            self._known = set()
        if len(new) < len(pushes):
            with self._changed:
                self._messages["repeated pushes after a restart, dropped"] += len(pushes) - len(new)
        return new

    def _claim_journals(self) -> None:
        for path in sorted(self._journals.glob(f"*{ENDING}")):
            stem = Stem.parse(path.stem)
            if stem is None or not (stem.host == self._host or self._orphaned(path)):
                continue
            try:
                journal = Journal.claim(path, stem)
            except OSError as error:
                # It may belong to another user. It must not stop new pushes.
                with self._changed:
                    self._messages[f"journals that cannot be opened ({error})"] += 1
                continue
            if journal is not None:
                with self._changed:
                    self._waiting.append(journal)

    @staticmethod
    def _orphaned(path: Path) -> bool:
        try:
            return time.time() - path.stat().st_mtime > _ORPHANED_AFTER_S
        except FileNotFoundError:
            return False

    # Everything below runs on the writer's thread.

    def _publish_all(self) -> None:
        sweep_at = time.monotonic()
        while True:
            closing, journal = self._next(sweep_at)
            problem = None if journal is None else self._try(functools.partial(self._publish, journal))
            # Also if publishing fails, because expired files may occupy the room.
            if not closing and (time.monotonic() >= sweep_at or (journal is not None and problem is None)):
                sweep_at = time.monotonic() + _SWEEP_S
                problem = self._try(self._sweep) or problem
            with self._changed:
                self._problem = problem
                if self._closing and (problem is not None or not (self._waiting or self._open)):
                    return
                if problem is not None:
                    self._changed.wait(_RETRY_S)

    @staticmethod
    def _try(act: Callable[[], None]) -> str | None:
        """Run an action and return its error, because the thread must continue."""
        try:
            act()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None

    def _next(self, sweep_at: float) -> tuple[bool, Journal | None]:
        """Wait for work: return whether to end, and the journal to publish."""
        with self._changed:
            while True:
                now = time.monotonic()
                if self._closing or now >= self._due:
                    self._seal()
                if self._closing or self._waiting or now >= sweep_at:
                    return self._closing, self._waiting[0] if self._waiting else None
                self._changed.wait(min(sweep_at, self._due) - now)

    def _publish(self, journal: Journal) -> None:
        try:
            published = publish(self._root, journal, self._access)
        except UnreadableJournalError as error:
            journal.set_aside()
            self._done(journal, f"journals set aside ({error})", 1)
            return
        self._manifest.append(published, datetime.now(UTC))
        journal.delete()
        self._done(journal, "bytes of torn journals cut off", journal.torn_bytes)
        pa.default_memory_pool().release_unused()

    def _done(self, journal: Journal, what: str, count: int) -> None:
        with self._changed:
            self._waiting.remove(journal)
            if count:
                self._messages[what] += count

    def _sweep(self) -> None:
        removed: list[Removed] = []
        if self._retain is not None:
            before = self._expiry.now() - self._retain
            removed += remove_expired(self._root, int(before.timestamp() * 1e9))
            self._manifest.expire(before)
        if self._max_bytes is not None:
            surplus = remove_surplus(self._root, self._max_bytes)
            removed += surplus
            short_of_room = folder_bytes(self._root) > self._max_bytes // 2
            with self._changed:
                self._short_of_room = short_of_room
                if surplus:
                    self._messages["files removed at max_bytes, the oldest first"] += len(surplus)
        self._manifest.append(removed, datetime.now(UTC))
        self._claim_journals()
