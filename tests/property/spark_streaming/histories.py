"""Random histories of pushes, and what numpy and PostgreSQL make of them.

Many histories share their batches, because a batch in PostgreSQL costs as much for one as for a
thousand. Each has clients and series of its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

import psycopg
import pyarrow as pa

from spark_streaming import tasks
from spark_streaming.contributions import reconcile, required_pairs
from spark_streaming.postgres import Store as PostgresStore
from spark_streaming.rows import ENTRY_ROWS, SERIES_ROWS
from spark_streaming.settings import NewSeriesSettings, RetentionSettings
from spark_streaming.watched import WATCHED
from tests.integration.rollup.store.rows import MINUTE, statistics
from tests.unit.spark_streaming.contributions.support import (
    DISTRIBUTION,
    LAST,
    MINUTE_NS,
    RATE,
    Entry,
    Point,
    Store,
    table,
)

RULE_OF: Final = {1: LAST, 2: LAST, 3: RATE, 4: RATE, 5: DISTRIBUTION, 6: DISTRIBUTION}
#: From the series of one history to those of the next.
STRIDE: Final = 10
#: Batches have windows of so many minutes. What arrives in its window is no later than the batch.
WINDOW: Final = 3
BATCHES: Final = 6
#: The last complete minute at the end: all gauges have ended.
CLOSED: Final = 36

_CLIENTS: Final = 3
_INTERVALS_MS: Final = (5_000, 60_000, 100_000, 300_000)
#: The first minute in the database.
_BASE: Final = MINUTE - 2 * CLOSED

Sums = dict[tuple[int, int], float]
Spread = dict[tuple[int, int, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Pushes that arrive together, each with its entries.

    Attributes:
        closed: The last complete minute when they arrive.
        carried: That of the maintenance after them; None without one.
    """

    pushes: list[tuple[Entry, ...]]
    closed: int
    carried: int | None

    @property
    def entries(self) -> list[Entry]:
        """Those of all pushes."""
        return [entry for push in self.pushes for entry in push]


def generate(random: Random, histories: int) -> list[Batch]:
    """Generate the batches of many histories.

    A third of the histories arrives in order. Only these have pushes without points.
    """
    pushes: list[list[tuple[Entry, ...]]] = [[] for _ in range(BATCHES)]
    for number in range(histories):
        of_one = _in_order(random, number) if number % 3 == 0 else _in_any_order(random, number)
        for batch, push in of_one:
            pushes[batch].append(push)
    batches, closed = [], 0
    for number, arrived in enumerate(pushes):
        random.shuffle(arrived)
        closed = random.randint(closed, max(closed, number * WINDOW - 1))
        carried = random.randint(closed, (number + 1) * WINDOW - 1) if random.random() < 0.5 else None
        batches.append(Batch(pushes=arrived, closed=closed, carried=carried))
        closed = carried or closed
    return batches


def repeated(random: Random, batches: Sequence[Batch]) -> list[Batch]:
    """Return the batches with pushes that come again, at once or later."""
    arrived: list[tuple[Entry, ...]] = []
    found = []
    for batch in batches:
        arrived += batch.pushes
        again = random.sample(arrived, len(arrived) // 8)
        found.append(replace(batch, pushes=[*batch.pushes, *again]))
    return found


def of_history(batches: Sequence[Batch], number: int) -> list[Batch]:
    """Return the batches with one history alone."""
    own = range(number * _CLIENTS, (number + 1) * _CLIENTS)
    return [
        replace(batch, pushes=[push for push in batch.pushes if push[0].client in own]) for batch in batches
    ]


def by_numpy(batches: Sequence[Batch]) -> tuple[Sums, Spread]:
    """Return what the code without a database makes of batches."""
    store = Store()
    for batch in batches:
        store.batch(batch.entries, closed=batch.closed)
        if batch.carried is not None:
            store.maintenance(batch.carried)
    store.maintenance(CLOSED)
    return store.total(), store.observed()


def by_postgres(store: PostgresStore, url: str, batches: Sequence[Batch]) -> tuple[Sums, Spread]:
    """Return what tasks and maintenance of the job make of batches, in an empty database."""
    query = "histories"
    for number, batch in enumerate(batches):
        closed = _BASE + batch.closed
        with store.batch(query, number) as transaction, _connections_closed():
            assert transaction is not None
            (result,) = pa.Table.from_batches(
                tasks.run([_decoded(batch)], _settings(url, query, number, closed))
            ).to_pylist()
            assert result["error"] is None, result["text"]
            transaction.enter([result["load_id"]], result["first_minutes"])
            transaction.record(statistics(pushes=result["pushes"], repeats=result["repeats"]))
        if batch.carried is not None:
            _maintain(store, _BASE + batch.carried)
    _maintain(store, _BASE + CLOSED)
    return _read(url)


def differing(found: Sums, expected: Sums) -> set[int]:
    """Return the histories whose sums differ."""
    return {
        series // STRIDE
        for minute, series in found.keys() | expected.keys()
        if not math.isclose(
            found.get((minute, series), math.nan), expected.get((minute, series), math.nan), abs_tol=1e-9
        )
    }


def _in_order(random: Random, number: int) -> Iterator[tuple[int, tuple[Entry, ...]]]:
    """Yield pushes in the window of their batch, some without points, one of a client in each."""
    for client in range(random.randint(1, _CLIENTS)):
        interval_ms = random.choice(_INTERVALS_MS)
        for batch in range(BATCHES):
            if random.random() < 0.5:
                begin = (batch * WINDOW * 60) + random.randrange(WINDOW * 60 - 1)
                empty = random.random() < 0.3
                times = {begin} if empty else {begin, begin + random.choice((0, 0, 1))}
                yield batch, _push(random, number, client, batch, times, interval_ms, empty=empty)


def _in_any_order(random: Random, number: int) -> Iterator[tuple[int, tuple[Entry, ...]]]:
    """Yield pushes of any time in any batch."""
    intervals = [random.choice(_INTERVALS_MS) for _ in range(random.randint(1, _CLIENTS))]
    for push in range(random.randint(1, 8)):
        client = random.randrange(len(intervals))
        begin = 5 * random.randrange(14 * 12)
        times = {begin, begin + random.choice((0, 0, 0, 1, 70))}
        yield (
            random.randrange(BATCHES),
            _push(random, number, client, push, times, intervals[client], empty=False),
        )


def _push(
    random: Random, number: int, client: int, push: int, times: set[int], interval_ms: int, *, empty: bool
) -> tuple[Entry, ...]:
    terminating = random.random() < 0.15
    return tuple(
        Entry(
            time_ns=time * 1_000_000_000,
            client=number * _CLIENTS + client,
            push=f"{number}-{client}-{push}",
            points=() if empty else _points(random, number),
            interval_ms=interval_ms,
            terminating=terminating,
        )
        for time in sorted(times)
    )


def _points(random: Random, number: int) -> tuple[Point, ...]:
    chosen = [random.choice(tuple(RULE_OF)) for _ in range(random.randint(1, 6))]
    return tuple(
        Point(number * STRIDE + series, float(random.randint(-3, 60)), RULE_OF[series], breakdown=series == 2)
        for series in chosen
    )


def _maintain(store: PostgresStore, closed: int) -> None:
    """Carry forward, as the job's maintenance does."""
    nothing = ENTRY_ROWS.empty_table()
    with store.maintenance(MINUTE * MINUTE_NS) as maintenance:
        clients = maintenance.clients_to_carry(closed)
        stored = maintenance.contributions(required_pairs(nothing, clients))
        maintenance.carry(reconcile(nothing, stored, clients, closed=closed))


def _settings(url: str, query: str, number: int, closed: int) -> tasks.TaskSettings:
    return tasks.TaskSettings(
        url=url,
        retention=RetentionSettings(),
        new_series=NewSeriesSettings(client_per_hour=None, principal_per_hour=None, per_minute=None),
        source="histories",
        query_id=query,
        batch_id=number,
        closed=closed,
        min_minute=None,
        first_minute=None,
        with_rows=False,
    )


@contextmanager
def _connections_closed() -> Iterator[None]:
    """Close what tasks keep open from batch to batch, because databases go."""
    try:
        yield
    finally:
        for store in tasks._stores.values():
            store.close()
        tasks._stores.clear()


def _decoded(batch: Batch) -> pa.RecordBatch:
    """Return the entries of a batch as the decoder does, in the database's time."""
    rows = table([replace(entry, time_ns=entry.time_ns + _BASE * MINUTE_NS) for entry in batch.entries])
    instances = [f"instance {key}" for key in rows["client_key"].to_pylist()]
    first, positions = [], []
    for position, push in enumerate(batch.pushes):
        first += [True] + [False] * (len(push) - 1)
        positions += [f"{position}"] * len(push)
    described = sorted({(p.series, p.rule, p.breakdown) for entry in batch.entries for p in entry.points})
    series = [
        {"series_high": key, "series_low": key + 1000, "metric": f"m{key}", "breakdown": detail, "rule": rule}
        for key, rule, detail in described
    ]
    columns = {
        **{name: rows[name] for name in ENTRY_ROWS.names if name != "client_key"},
        "client_instance_id": instances,
        "watched": pa.array([[None] * len(WATCHED)] * len(rows), pa.list_(pa.float64())),
        "position": positions,
        "disconnected": [False] * len(rows),
        "reason": pa.nulls(len(rows), pa.string()),
        "bytes": pa.nulls(len(rows), pa.int32()),
        "payload": pa.nulls(len(rows), pa.binary()),
        "is_first": first,
        "slot": pa.array([0] * len(rows), pa.int32()),
        "series": pa.array([series] + [None] * (len(rows) - 1), pa.list_(pa.struct(SERIES_ROWS))),
        "histograms": pa.nulls(len(rows), pa.list_(pa.null())),
    }
    return pa.table(columns).combine_chunks().to_batches()[0]


def _read(url: str) -> tuple[Sums, Spread]:
    """Return the totals in a database, by the model's minutes and series."""
    counted = "load_id NOT IN (SELECT load_id FROM pending_load)"
    minute = "extract(epoch FROM bucket)::bigint / 60 - %s"
    with closing(psycopg.connect(url, options="-c search_path=telemetry")) as connection:
        sums: Counter[tuple[int, int]] = Counter()
        for at, series, value in connection.execute(
            f"SELECT {minute}, substr(metric, 2)::bigint, sum(sum) FROM rollup_1m "
            f"JOIN series USING (series_id) WHERE {counted} GROUP BY 1, 2",
            [_BASE],
        ):
            sums[at, series] = value
        spread: dict[tuple[int, int, int], int] = {
            (at, series, bucket): int(observed)
            for at, series, bucket, observed in _spread(connection, minute, counted)
        }
    return {k: v for k, v in sums.items() if not math.isclose(v, 0, abs_tol=1e-9)}, spread


def _spread(connection: psycopg.Connection[Any], minute: str, counted: str) -> Iterator[Any]:
    return iter(
        connection.execute(
            f"SELECT {minute}, substr(metric, 2)::bigint, spread, sum(observations) FROM fleet_spread_1m "
            f"JOIN fleet_series USING (fleet_id) WHERE {counted} GROUP BY 1, 2, 3 "
            "HAVING sum(observations) <> 0",
            [_BASE],
        )
    )
