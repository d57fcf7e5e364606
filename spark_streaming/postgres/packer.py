"""Merges minutes, and packs windows over several connections.

Each window has a transaction of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import datetime, timedelta
from math import inf
from time import monotonic
from typing import Final
from zlib import crc32

from spark_streaming.postgres import plan_statistics
from spark_streaming.postgres.database import APPLICATION, PACKING_LOCK, PLAN_LOCK, Database
from spark_streaming.postgres.merging import Merging
from spark_streaming.postgres.pack_window import Window, WindowChangedError, WindowPacking
from spark_streaming.postgres.packing import Packing
from spark_streaming.postgres.partitions import Partitions
from spark_streaming.postgres.values import StoreError, StoreUnavailableError
from spark_streaming.settings import RetentionSettings

#: No window and no step begins after so many seconds.
_BUDGET_S: Final = 10.0
#: The first of the advisory locks of windows, "pack" in ASCII. Two windows may share one.
_WINDOW_LOCKS: Final = 0x7061636B << 32
_NAMES: Final = {"1m": "hours_to_pack", "1h": "days_to_pack", "1d": "months_to_pack"}


class Packer:
    """Merges closed minutes and packs closed windows beside batches. Not thread-safe.

    It also gathers the statistics of packed tables once a day.

    Args:
        url: As for :class:`~spark_streaming.postgres.Store`.

    Raises:
        StoreError: The URL is invalid.
    """

    def __init__(self, url: str, *, retention: RetentionSettings) -> None:
        self._worth_merging: dict[str, bool] = {}
        self._after = timedelta(hours=retention.pack_after_hours)
        self._databases = [
            Database(url, application=f"{APPLICATION} packing", connected=lambda: None)
            for _ in range(retention.pack_connections)
        ]

    def pack(self, now_ns: int, *, all_of_them: bool = False) -> dict[str, int]:
        """Merge closed minutes, then pack closed hours of minutes, days and months.

        A window that fails does not undo others, and the others go on.

        Args:
            all_of_them: Go on until nothing is left, instead of for some seconds.

        Returns:
            The number of ``hours_to_pack``, ``days_to_pack`` and ``months_to_pack`` that are left.

        Raises:
            StoreError: A permanent error of one of the windows.
            StoreUnavailableError: Some transactions were rolled back. The next call does their
                work.
        """
        # No connection stays idle between two calls.
        with ExitStack() as stack:
            for database in self._databases:
                stack.enter_context(closing(database))
            if not all_of_them:
                # A job that reads all and ends packs what it can, and leaves few minutes.
                self._merge(now_ns)
            self._gather_statistics()
            while True:
                windows, closed = self._plan(now_ns)
                self._pack(windows, wait=all_of_them)
                left = self._backlog(closed)
                if not all_of_them or not any(left.values()):
                    return left

    def _merge(self, now_ns: int) -> None:
        deadline = monotonic() + _BUDGET_S
        is_done = False
        while not is_done and monotonic() <= deadline:
            with self._databases[0].transaction(PLAN_LOCK, shared=PACKING_LOCK) as connection:
                cursor = connection.cursor()
                merging = Merging(cursor, Partitions(cursor), self._worth_merging)
                is_done = merging.merge_next(now_ns) is None

    def _gather_statistics(self) -> None:
        with self._databases[0].transaction() as connection:
            tables = plan_statistics.lacking(connection.cursor())
        deadline = monotonic() + _BUDGET_S
        for table in tables:
            if monotonic() <= deadline:
                with self._databases[0].transaction() as connection:
                    plan_statistics.gather(connection.cursor(), table)

    def _plan(self, now_ns: int) -> tuple[list[Window], datetime]:
        with self._databases[0].transaction(PLAN_LOCK, shared=PACKING_LOCK) as connection:
            cursor = connection.cursor()
            packing = Packing(cursor, Partitions(cursor))
            closed = packing.closed(now_ns) - self._after
            return packing.plan(closed), closed

    def _backlog(self, closed: datetime) -> dict[str, int]:
        with self._databases[0].transaction() as connection:
            cursor = connection.cursor()
            left = Packing(cursor, Partitions(cursor)).backlog(closed)
        return {_NAMES[name]: count for name, count in left.items()}

    def _pack(self, windows: Sequence[Window], *, wait: bool) -> None:
        run = _Run(windows, deadline=inf if wait else monotonic() + _BUDGET_S, wait=wait)
        with ThreadPoolExecutor(len(self._databases), thread_name_prefix="packing") as pool:
            try:
                # Two connections for one window would only cost time.
                works = [pool.submit(run, database) for database in self._databases[: len(windows)]]
                for work in works:
                    work.result()
            except BaseException:
                run.stop()
                for database in self._databases:
                    database.cancel()
                raise
        if run.failure is not None:
            raise run.failure


class _Run:
    """Packs a list of windows. Several threads call it, each with a connection.

    Args:
        windows: The windows, in order.
        deadline: No window and no step begins after this time.
        wait: Whether to wait for windows that another job packs, instead of passing over them.

    Attributes:
        failure: The first failure, a permanent one if there is one.
    """

    def __init__(self, windows: Sequence[Window], *, deadline: float, wait: bool) -> None:
        self.failure: StoreError | None = None
        # A deque is thread-safe.
        self._windows = deque(windows)
        self._deadline = deadline
        self._wait = wait

    def __call__(self, database: Database) -> None:
        while monotonic() <= self._deadline:
            try:
                window = self._windows.popleft()
            except IndexError:
                return
            try:
                self._pack(database, window)
            except StoreError as error:
                is_passing = isinstance(error, StoreUnavailableError)
                if self.failure is None or not is_passing:
                    self.failure = error
                if is_passing:
                    # Each further try might wait for the server.
                    return

    def stop(self) -> None:
        """Begin no other window."""
        self._windows.clear()

    def _pack(self, database: Database, window: Window) -> None:
        try:
            self._try(database, window, as_whole=True)
        except WindowChangedError:
            self._try(database, window, as_whole=False)

    def _try(self, database: Database, window: Window, *, as_whole: bool) -> None:
        lock = _WINDOW_LOCKS + crc32(str(window).encode())
        with database.transaction(*([lock] if self._wait else []), shared=PACKING_LOCK) as connection:
            cursor = connection.cursor()
            ((is_free,),) = cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [lock])
            if is_free:
                packing = WindowPacking(cursor, Partitions(cursor), window)
                packing.pack(self._deadline, as_whole=as_whole)
