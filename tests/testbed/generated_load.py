"""Writes to a generated store as a running roll-up does: batches, packing, maintenance.

Each batch has a load of each task, with the pushes of 10 seconds, and the driver's transaction that
lets them count. The values are random.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Self
from uuid import uuid4

import numpy as np
import psycopg
import pyarrow as pa

from spark_streaming.contributions import ClientState, Contribution
from spark_streaming.postgres import BatchStatistics, Horizons, Store, Sums, TaskStore
from spark_streaming.postgres.database import PACKING_LOCK, Database
from spark_streaming.postgres.packing import Packing
from spark_streaming.postgres.partitions import Partitions
from spark_streaming.postgres.tables import MINUTES
from spark_streaming.rows import ENTRY_ROWS, ROLLUP_ROWS, RULES
from spark_streaming.settings import RetentionSettings
from spark_streaming.watched import WATCHED
from tests.testbed.generated_store import INTERVAL_S, NOTHING_TO_CARRY, TASKS, TRIGGER_S

_MAINTENANCE_S: Final = 60.0
_STOP_S: Final = 120.0
_SPREAD: Final = RULES.index("distribution")
_WITH_PUSHED_SUM: Final = [RULES.index("rate"), RULES.index("last")]
#: Bytes of what a client's state and its contribution to a minute take.
_STATE_BYTES: Final = 400
#: How many packed hours are packed again in turn.
_HOURS: Final = 6
_SERIES: Final = (
    "SELECT client_id, array_agg(series_id ORDER BY series_id), array_agg(fleet_id ORDER BY series_id), "
    "array_agg(breakdown ORDER BY series_id), array_agg(rule ORDER BY series_id) "
    "FROM telemetry.series GROUP BY 1 ORDER BY 1"
)
_LABELS: Final = (
    "client_id", "client_software_name", "client_software_version", "principal", "group_id", "cluster_id",
    "client_source_address", "broker_id",
)  # fmt: skip
_CLIENTS: Final = (
    f"SELECT client_key, client_instance_id, {', '.join(_LABELS)} FROM telemetry.client_state "
    "WHERE to_carry ORDER BY client_key"
)


@dataclass(slots=True, kw_only=True)
class Done:
    """What was written.

    Attributes:
        batches: Batches that count.
        points: Their data points.
        late_s: The most seconds that a batch was committed after the next one was due.
        packing_steps: Transactions in which hours of minutes were opened or packed.
        maintenances: Maintenances.
    """

    batches: int = 0
    points: int = 0
    late_s: float = 0.0
    packing_steps: int = 0
    maintenances: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Series:
    """The series of a client id, as columns."""

    series_id: list[int]
    fleet_id: list[int]
    breakdown: list[bool]
    rule: list[int]


class GeneratedLoad:
    """Writes while a block runs.

    Args:
        url: The database of a :class:`~tests.testbed.generated_store.GeneratedStore`.

    Attributes:
        done: What was written until now.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        # Each load continues with batch 0 of its own query.
        self._query = f"generated load {uuid4()}"
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._chance = np.random.default_rng(17)
        self._retention = RetentionSettings()
        self.done = Done()
        with psycopg.connect(url) as connection:
            self._series = {
                str(client_id): _Series(series_id=ids, fleet_id=fleets, breakdown=breakdowns, rule=rules)
                for client_id, ids, fleets, breakdowns, rules in connection.execute(_SERIES)
            }
            self._clients = connection.execute(_CLIENTS).fetchall()
        tasks = {client_id: number % TASKS for number, client_id in enumerate(self._series)}
        self._task = [tasks[client[2]] for client in self._clients]
        self._threads = [
            threading.Thread(target=self._guarded, args=[work])
            for work in (self._write, self._pack, self._maintain)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(_STOP_S)
        self.check()

    def check(self) -> None:
        """Raise the first error of what writes, if there was one."""
        for error in self._errors:
            raise error

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        # Raised by check(), in the thread that waits for it.
        except BaseException as error:
            self._errors.append(error)
            self._stop.set()

    def _write(self) -> None:
        batches = INTERVAL_S // TRIGGER_S
        with Store(self._url, retention=self._retention) as store, closing(self._tasks()) as tasks:
            due = time.monotonic()
            number = 0
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                due += TRIGGER_S
                pushing = range(number % batches, len(self._clients), batches)
                self._batch(store, tasks, number, pushing)
                self.done.late_s = max(self.done.late_s, time.monotonic() - due)
                number += 1

    def _tasks(self) -> TaskStore:
        return TaskStore(self._url, retention=self._retention)

    def _batch(self, store: Store, tasks: TaskStore, number: int, pushing: Sequence[int]) -> None:
        began, now_ns = time.monotonic(), time.time_ns()
        points = rows = 0
        with store.batch(self._query, number) as batch:
            assert batch is not None
            loads, minutes = [], []
            for task in range(TASKS):
                own = [client for client in pushing if self._task[client] == task]
                load_id, sums, pushed = self._load(tasks, (self._query, number), own, now_ns)
                loads.append(load_id)
                points += pushed
                rows += sum(table.num_rows for _, _, table in sums.tables)
                minutes += sums.first_minutes()
            batch.enter(loads, minutes)
            batch.read_until(now_ns)
            batch.record(
                BatchStatistics(
                    pushes=len(pushing),
                    repeats=0,
                    points=points,
                    entries=len(pushing),
                    rows=rows,
                    dead_letters=0,
                    left_out=0,
                    overflowed=0,
                    newest_received_at_ns=now_ns,
                    duration_s=time.monotonic() - began,
                )
            )
        self.done.batches += 1
        self.done.points += points

    def _load(
        self, tasks: TaskStore, batch: tuple[str, int], pushing: Sequence[int], now_ns: int
    ) -> tuple[int, Sums, int]:
        """Write the load of a task, with the look-ups that a task does."""
        horizons: Horizons = tasks.begin()
        minute = now_ns // 60_000_000_000
        keys = [self._clients[client][0] for client in pushing]
        push_ids = [f"{batch} {key}" for key in keys]
        days = tasks.days_of(dict.fromkeys(push_ids, now_ns), horizons)
        assert not tasks.known_pushes(days)
        tasks.clients(keys)
        tasks.contributions({(key, minute) for key in keys})
        rows = self._rows([self._series[self._clients[client][2]] for client in pushing], minute)
        entries = self._entries(pushing, push_ids, now_ns)
        sums = Sums(horizons)
        sums.add(rows)
        sums.add_clients(entries)
        with tasks.load(horizons, sums, days, batch) as load:
            load.pushes(days)
            load.totals(sums)
            load.contributions(
                [
                    Contribution(
                        client_key=key,
                        minute=minute,
                        entries=1,
                        last_ns=now_ns,
                        packed=self._chance.bytes(_STATE_BYTES),
                    )
                    for key in keys
                ]
            )
            load.clients(
                [
                    ClientState(
                        client_key=key,
                        minute=minute,
                        last_ns=now_ns,
                        push_interval_ms=1000 * INTERVAL_S,
                        terminated=False,
                        covered_until=minute,
                        carried_from=minute + 1,
                        counts=os.urandom(_STATE_BYTES),
                        cumulative=os.urandom(_STATE_BYTES),
                    )
                    for key in keys
                ],
                entries,
            )
        return load.load_id, sums, rows.num_rows

    def _rows(self, pushed: Sequence[_Series], minute: int) -> pa.Table:
        """One data point of each series of each push."""
        columns = {
            name: np.concatenate([np.array(getattr(item, name)) for item in pushed])
            for name in ("series_id", "fleet_id", "breakdown", "rule")
        }
        rule = columns.pop("rule")
        size = len(rule)
        values = self._chance.uniform(1, 1000, size)
        values[rule == RULES.index("sum")] = self._chance.integers(0, 1000)
        observed = rule == _SPREAD
        return pa.table(
            {
                "minute": np.full(size, minute),
                **columns,
                "spread": pa.array(self._chance.integers(40, 65, size), pa.int16(), mask=~observed),
                "points": np.ones(size, np.int64),
                "sum": values,
                "min": values,
                "max": values,
                "observations": observed.astype(np.int64),
                "pushed_sum": pa.array(values, mask=~np.isin(rule, _WITH_PUSHED_SUM)),
            },
            schema=ROLLUP_ROWS,
        )

    def _entries(self, pushing: Sequence[int], push_ids: Sequence[str], now_ns: int) -> pa.Table:
        size = len(pushing)
        labels = list(zip(*(self._clients[client] for client in pushing), strict=True))
        known: dict[str, Any] = {
            "push_id": push_ids,
            "received_at_ns": [now_ns] * size,
            "terminating": [False] * size,
            "push_interval_ms": [1000 * INTERVAL_S] * size,
            "time_ns": [now_ns] * size,
            "minute": [now_ns // 60_000_000_000] * size,
            "pushes": [1] * size,
            "points": [len(self._series[client_id].series_id) for client_id in labels[2]],
            "watched": self._chance.uniform(0, 100, (size, len(WATCHED))).tolist(),
            **dict(zip(("client_key", "client_instance_id", *_LABELS), labels, strict=True)),
        }
        return pa.table(
            [pa.array(known.get(row.name, [None] * size), row.type) for row in ENTRY_ROWS], schema=ENTRY_ROWS
        )

    def _pack(self) -> None:
        """Pack without a pause: an hour that was packed is opened and packed again."""
        number = 0
        database = Database(self._url, application="generated load", connected=lambda: None)
        with closing(database), Store(self._url, retention=self._retention) as store:
            while not self._stop.is_set():
                with database.transaction(PACKING_LOCK) as connection:
                    cursor = connection.cursor()
                    packing = Packing(cursor, Partitions(cursor))
                    ago = timedelta(hours=1 + number % _HOURS)
                    packing.open_window(MINUTES, packing.until(MINUTES) - ago)
                # As the roll-up does: for some seconds at a time.
                left = 1
                while left and not self._stop.is_set():
                    self.done.packing_steps += 1
                    left = store.pack(time.time_ns())["hours_to_pack"]
                number += 1

    def _maintain(self) -> None:
        with Store(self._url, retention=self._retention) as store:
            while not self._stop.wait(_MAINTENANCE_S):
                with store.maintenance(time.time_ns()) as maintenance:
                    maintenance.carry(NOTHING_TO_CARRY)
                    maintenance.compute_hours_and_days()
                    maintenance.sweep()
                    maintenance.expire()
                self.done.maintenances += 1
