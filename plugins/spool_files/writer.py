"""The writer of one folder: journals what it is given, and publishes it from a thread of its own.

Owns the journals of this process, the time at which each is published, and what is remembered of
pushes that a crash may bring again. The plugin's thread appends; the writer's own thread publishes
and expires.
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
from receiver.plugin import Push, PushIdentity, RetryableError
from receiver.plugin.shares import RecentShares
from receiver.plugin.sources import site_of

__all__ = ["FolderWriter"]

#: Journals that may wait when publishing fails; then nothing more is accepted.
_MAX_WAITING = 4
#: How long after a failure publishing is tried again, in seconds.
_TRY_AGAIN_S = 1.0
#: How often files are expired and journals of ended processes looked for, in seconds.
_SWEEP_S = 60.0
#: Another host's journal is taken over when nobody wrote to it for so long. A lock tells whether
#: its process lives, but not on every network file system.
_ORPHANED_AFTER_S = 3600.0
#: How many pushes accepted before a restart, the newest, are recognised when they come again, and
#: for how many accepted ones that is remembered: what comes again is of the last second or so, and
#: comes first.
_REMEMBERED = 100_000
_REMEMBERED_FOR = 100_000

#: Of so many OTLP bytes, the last, it is known who pushed them: a good minute of a busy folder.
_SHARES_WINDOW = 64 << 20
#: What the run of a file may begin with that is no heavy one.
_LIGHT = "0123456789abcde"


class FolderWriter:
    """Writes to one folder, between one :meth:`open` and one :meth:`close`.

    Args:
        config: The operator's settings.
    """

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
        # Guards everything below; held for no longer than one write to the journal.
        self._changed = threading.Condition()
        # By whether its sites push more than their share; both only where the folder is short of
        # room.
        self._open: dict[bool, Journal] = {}
        self._due = math.inf
        self._short_of_room = False
        self._waiting: deque[Journal] = deque()
        self._problem: str | None = None
        self._told: Counter[str] = Counter()
        self._closing = False
        # Only the appending thread's own.
        self._known: set[PushIdentity] = set()
        self._accepted = 0
        self._shares: RecentShares[str] = RecentShares(_SHARES_WINDOW)
        self._thread = threading.Thread(target=self._publish_all, name="spool-files", daemon=True)

    def open(self) -> None:
        """Take over the journals of ended processes, and begin.

        Raises:
            OSError: The folder cannot be written to.
        """
        # Says now, and not at the first push, that the folder can't be written to or locked.
        self._new_journal().delete()
        self._take_over()
        published = (self._root / file for file in self._manifest.newest(datetime.now(UTC)))
        self._known = newest_accepted(self._waiting, published, _REMEMBERED)
        self._thread.start()

    def append(self, pushes: Sequence[Push]) -> None:
        """Accept pushes: they are on disk when this returns, and published later.

        Raises:
            RetryableError: They cannot be accepted now; none of them is.
        """
        if self._known:
            pushes = self._without_known(pushes)
        if not pushes:
            return
        with self._changed:
            split = self._short_of_room
        lanes: dict[bool, list[Push]] = {}
        for push in pushes:
            site = site_of(push.context.source_address)
            lanes.setdefault(split and self._shares.is_over(site), []).append(push)
            self._shares.wrote(site, len(push.payload.data))
        batches = {heavy: record_batch(of_lane) for heavy, of_lane in lanes.items()}
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
                # All of the pushes come again, so none may stay.
                for journal, size in appended:
                    journal.cut_back(size)
                raise RetryableError(f"cannot write to {self._journals}: {error.strerror or error}") from None
            if any(journal.size >= self._roll_bytes for journal in self._open.values()):
                self._seal()
                self._changed.notify()

    def news(self) -> str:
        """What the operator should know of, since this was last asked; empty: nothing."""
        with self._changed:
            news = [f"{what}: {count}" for what, count in self._told.items()]
            self._told.clear()
            if self._problem is not None:
                news.append(f"files cannot be published or removed: {self._problem}")
        return "; ".join(news)

    def close(self) -> None:
        """Publish what is accepted and end the thread; what can't be published stays for the next start."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()
        while self._waiting:
            self._waiting.popleft().close()

    def _journal(self, *, heavy: bool) -> Journal:
        journal = self._open.get(heavy)
        if journal is not None and journal.deleted:
            self._told["journals that somebody deleted, published all the same"] += 1
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
        # It may be gone since the start.
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
        if self._accepted >= _REMEMBERED_FOR:
            self._known = set()
        if len(new) < len(pushes):
            with self._changed:
                self._told["pushes that came again after a restart, left out"] += len(pushes) - len(new)
        return new

    def _take_over(self) -> None:
        for path in sorted(self._journals.glob(f"*{ENDING}")):
            stem = Stem.parse(path.name.removesuffix(ENDING))
            if stem is None or not (stem.host == self._host or self._orphaned(path)):
                continue
            try:
                journal = Journal.claim(path)
            except OSError as error:
                # Another user's, perhaps: it must not keep what comes now from being accepted.
                with self._changed:
                    self._told[f"journals that cannot be opened ({error})"] += 1
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

    # Everything below runs on the writer's own thread.

    def _publish_all(self) -> None:
        sweep_at = time.monotonic()
        while True:
            closing, journal = self._next(sweep_at)
            problem = None if journal is None else self._tried(functools.partial(self._publish, journal))
            # Also when publishing fails: it may be for the room that expired files take.
            if not closing and (time.monotonic() >= sweep_at or (journal is not None and problem is None)):
                sweep_at = time.monotonic() + _SWEEP_S
                problem = self._tried(self._sweep) or problem
            with self._changed:
                self._problem = problem
                if self._closing and (problem is not None or not (self._waiting or self._open)):
                    return
                if problem is not None:
                    self._changed.wait(_TRY_AGAIN_S)

    @staticmethod
    def _tried(act: Callable[[], None]) -> str | None:
        """Why it failed; whatever it is, the thread has to go on."""
        try:
            act()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None

    def _next(self, sweep_at: float) -> tuple[bool, Journal | None]:
        """Wait until there is something to do: whether to end, and the journal to publish."""
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
                self._told[what] += count

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
                    self._told["files removed at max_bytes, the oldest first"] += len(surplus)
        self._manifest.append(removed, datetime.now(UTC))
        self._take_over()
