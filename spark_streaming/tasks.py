"""What a task on an executor does with the entries of its clients.

It leaves out pushes that were counted before, looks up what its clients pushed last, reconciles,
and writes one load. The load counts once the driver enters it. A task never changes what another
one reads, so any number of attempts may run, and any of them may die.
"""

from __future__ import annotations

import gc
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_streaming import dumps
from spark_streaming.admission import Bound
from spark_streaming.contributions import (
    ClientState,
    CodecError,
    Contribution,
    reconcile,
    required_pairs,
    split_by_client,
)
from spark_streaming.postgres import (
    DEAD_LETTER_ROWS,
    MAX_PAYLOADS,
    MAX_ROWS,
    Horizons,
    Newcomers,
    Refused,
    StoreDataError,
    StoreError,
    StoreUnavailableError,
    Sums,
    TaskStore,
)
from spark_streaming.routing import MAX_NAMES
from spark_streaming.rows import (
    BUCKET_ROWS,
    CLIENT_DIMENSIONS,
    ENTRY_ROWS,
    MAX_TOTAL,
    ROLLUP_ROWS,
    SERIES_ROWS,
    cast,
)
from spark_streaming.series_hashes import NOT_ADDED, replace_hashes
from spark_streaming.settings import NewSeriesSettings, RetentionSettings

#: A part of a task.
TaskStage = Literal["deduplicate", "series", "look_up", "reconcile", "write"]

Integers = npt.NDArray[np.int64]

_MINUTE_NS: Final = 60_000_000_000
#: Points reconciled at once. Each takes about 200 bytes.
_RECONCILED_POINTS: Final = 400_000
_STATISTICS: Final = (
    *("load_id", "pushes", "repeats", "departures", "points", "entries", "rows", "dead_letters", "left_out"),
    *("newest_received_at_ns", "folded", "most_points"),
    *("overflowed", "refused_client", "refused_principal", "refused_minute"),
)
#: One row of each task. ``error`` is the type of an error, ``text`` its message. ``load_id`` is
#: null without anything to write. ``first_minutes`` are the first ones of each hour, since the
#: epoch. ``folded`` is the number of series that are added up as another one. ``overflowed`` are
#: data points of series over a bound of new ones, ``refused_...`` such series by bound, and
#: ``refused_of`` is the client id with most of them, and its principal. ``most`` is the
#: client id with the most points. ``several`` are client instances with several slots. ``slots``
#: and ``slot_points`` are the slots of the task with their points. ``gone`` are
#: client instances whose connection ended, and ``gone_ns`` when. With a lake, a task also returns
#: the positions of what are no new pushes (``repeated``), and rows that have only ``row``: its
#: ``ROLLUP_ROWS``.
RESULT_ROWS: Final = pa.schema(
    [
        pa.field("error", pa.string()),
        pa.field("text", pa.string()),
        *(pa.field(name, pa.int64()) for name in _STATISTICS),
        pa.field("most", pa.string()),
        pa.field("refused_of", pa.list_(pa.string())),
        pa.field("first_minutes", pa.list_(pa.int64())),
        pa.field("several", pa.list_(pa.string())),
        pa.field("slots", pa.list_(pa.int64())),
        pa.field("slot_points", pa.list_(pa.int64())),
        pa.field("repeated", pa.list_(pa.string())),
        pa.field("gone", pa.list_(pa.string())),
        pa.field("gone_ns", pa.list_(pa.int64())),
        *(pa.field(f"{stage}_s", pa.float64()) for stage in get_args(TaskStage)),
        pa.field("row", pa.struct(ROLLUP_ROWS)),
    ]
)


class UndescribedError(Exception):
    """A series is new, and its dimensions went to an attempt that failed."""


#: Errors that the driver handles as if they were its own. Others fail the Spark job.
_ERRORS: Final = (
    UndescribedError,
    CodecError,
    StoreDataError,
    StoreUnavailableError,
    StoreError,
    ArithmeticError,
    ValueError,
    struct.error,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """What the driver tells the tasks of a batch."""

    url: str = field(repr=False)
    """The database, with its password."""
    retention: RetentionSettings
    """How long rows are kept."""
    new_series: NewSeriesSettings
    source: str
    query_id: str
    """Spark's id of the query."""
    batch_id: int
    closed: int
    """The last complete minute when the batch began."""
    min_minute: int | None
    """Change no earlier minute, for a rebuild."""
    first_minute: int | None
    """Ignore data points before it, for a rebuild."""
    with_rows: bool
    """Return the ``ROLLUP_ROWS``, for a lake."""


def run(batches: Iterable[pa.RecordBatch], settings: TaskSettings) -> Iterator[pa.RecordBatch]:
    """Process the entries of a partition, and write a load.

    Args:
        batches: Columns as :mod:`spark_streaming.batch` selects them. A push has one row with
            ``is_first`` in all partitions together.

    Yields:
        ``RESULT_ROWS``.
    """
    found = list(batches)
    if not any(batch.num_rows for batch in found):
        return
    task = _Task(_store(settings), settings)
    try:
        task.process(pa.Table.from_batches(found))
    except _ERRORS as error:
        kind = next(kind for kind in _ERRORS if isinstance(error, kind))
        text = str(error) if type(error) is kind else f"{type(error).__name__}: {error}"
        yield _result(error=kind.__name__, text=text)
        return
    _freeze_imports()
    yield task.result()
    if settings.with_rows:
        for rows in task.rows.to_batches(max_chunksize=10_000):
            yield _rows_of(rows)


def failure(error: str, text: str) -> Exception:
    """Return the exception for an error that a task returned."""
    kind = next(kind for kind in _ERRORS if kind.__name__ == error)
    return kind(text)


@cache
def _freeze_imports() -> None:
    """Keep the garbage collector from looking at what this process has imported.

    Spark collects garbage after each task. Modules have some 110,000 objects, and looking at them
    takes 57 ms, nearly as long as the rest of a small task. The first task imports some of these
    modules, so it calls this at its end.
    """
    gc.collect()
    gc.freeze()


_stores: dict[str, TaskStore] = {}


def _store(settings: TaskSettings) -> TaskStore:
    """Return this process' store, which outlives a task: Spark reuses processes."""
    if settings.url not in _stores:
        dumps.forbid()
        for store in _stores.values():
            store.close()
        _stores.clear()
        _stores[settings.url] = TaskStore(settings.url, retention=settings.retention)
    return _stores[settings.url]


class _Task:
    def __init__(self, store: TaskStore, settings: TaskSettings) -> None:
        self._store = store
        self._settings = settings
        self._seconds = dict.fromkeys(get_args(TaskStage), 0.0)
        self._statistics: dict[str, int | None] = dict.fromkeys(_STATISTICS)
        self._first_minutes: list[int] = []
        self._repeated: list[str] = []
        self._gone: list[str] = []
        self._gone_ns: list[int] = []
        self._most: str | None = None
        self._slots: list[int] = []
        self._slot_points: list[int] = []
        self._several: list[str] = []
        self._described = SERIES_ROWS.empty_table()
        self._described_at: list[int] = []  # when their pushes were received, in minutes
        self._folded = 0
        self._overflowed = 0
        self._refused: list[Refused] = []
        self.rows = ROLLUP_ROWS.empty_table()

    def process(self, decoded: pa.Table) -> None:
        settings = self._settings
        decoded = self._without_departures(decoded)
        if not decoded.num_rows:
            return
        with self._stage("deduplicate"):
            horizons = self._store.begin()
            self._described, self._described_at = _described(decoded)
            records = decoded["position"].filter(decoded["is_first"])
            decoded, fresh = self._without_repeats(decoded, horizons)
        by_slot = decoded.group_by("slot").aggregate([("points", "sum")])
        self._slots, self._slot_points = by_slot["slot"].to_pylist(), by_slot["points_sum"].to_pylist()
        self._several = _with_several_slots(decoded)
        dead = decoded.filter(pc.is_valid(decoded["reason"]))
        newest = pc.max(decoded["received_at_ns"]).as_py()
        # Few columns, because the encoded points would be copied.
        first = decoded.select(["push_id", "position", "received_at_ns", "histograms"])
        first = first.filter(decoded["is_first"])
        days = self._store.days_of(
            dict(zip(first["push_id"].to_pylist(), first["received_at_ns"].to_pylist(), strict=True)),
            horizons,
        )
        if settings.with_rows and first.num_rows < len(records):
            repeated = pc.invert(pc.is_in(records, first["position"].combine_chunks()))
            self._repeated += records.filter(repeated).to_pylist()
        histograms = _flat(first["histograms"])
        decoded = _from(decoded, settings.first_minute)
        entries = decoded
        if entries["client_instance_id"].null_count:
            entries = entries.filter(pc.is_valid(entries["client_instance_id"]))
        sums = Sums(horizons)
        states: list[ClientState] = []
        contributions: list[Contribution] = []
        if entries.num_rows:
            entries, states, contributions = self._reconcile(entries, histograms, sums)
        self._statistics |= {
            "pushes": first.num_rows,
            "repeats": len(records) - first.num_rows,
            "points": _total(_from(decoded, settings.min_minute)["points"]),
            "entries": entries.num_rows,
            "rows": self.rows.num_rows,
            "dead_letters": dead.num_rows,
            "left_out": sums.left_out + _total(_from(decoded, settings.min_minute)["left_out"]),
            "newest_received_at_ns": newest,
            "folded": self._folded,
            "overflowed": self._overflowed,
            **{f"refused_{bound}": self._refused_by(bound) for bound in get_args(Bound)},
        }
        if not fresh:
            return
        self._first_minutes = sums.first_minutes()
        self._most, self._statistics["most_points"] = _most(entries)
        batch = (settings.query_id, settings.batch_id)
        with self._stage("write"), self._store.load(horizons, sums, days, batch) as load:
            load.pushes(days)
            load.totals(sums)
            load.contributions(contributions)
            if entries.num_rows:
                load.clients(states, entries)
            if dead.num_rows:
                load.dead_letters(_letters(dead, settings), batch)
            self._statistics["load_id"] = load.load_id

    def result(self) -> pa.RecordBatch:
        seconds = {f"{stage}_s": spent for stage, spent in self._seconds.items()}
        return _result(
            **self._statistics,
            **seconds,
            first_minutes=self._first_minutes,
            repeated=self._repeated,
            gone=self._gone,
            gone_ns=self._gone_ns,
            most=self._most,
            refused_of=self._refused_of(),
            several=self._several,
            slots=self._slots,
            slot_points=self._slot_points,
        )

    def _without_departures(self, decoded: pa.Table) -> pa.Table:
        """Return the rows of pushes; keep the ends of connections, which change no totals."""
        ends = decoded.filter(decoded["disconnected"])
        if not ends.num_rows:
            return decoded
        if self._settings.with_rows:
            self._repeated += ends["position"].to_pylist()
        self._statistics["departures"] = ends.num_rows
        ends = ends.filter(pc.is_valid(ends["client_instance_id"]))
        self._gone = ends["client_instance_id"].to_pylist()
        self._gone_ns = ends["received_at_ns"].to_pylist()
        return decoded.filter(pc.invert(decoded["disconnected"]))

    def _without_repeats(self, decoded: pa.Table, horizons: Horizons) -> tuple[pa.Table, bool]:
        """Return the rows of pushes not counted before, and whether there are any.

        Of several records of a push, the first one by time of receipt and position counts.
        """
        pushes = (
            decoded.select(["position", "push_id", "received_at_ns"])
            .group_by("position", use_threads=False)
            .aggregate([("push_id", "first"), ("received_at_ns", "first")])
            .sort_by([("received_at_ns_first", "ascending"), ("position", "ascending")])
        )
        once = pushes.group_by("push_id_first", use_threads=False).aggregate(
            [("position", "first"), ("received_at_ns_first", "first")]
        )
        ids, times = once["push_id_first"].to_pylist(), once["received_at_ns_first_first"].to_pylist()
        known = self._store.known_pushes(self._store.days_of(dict(zip(ids, times, strict=True)), horizons))
        fresh = once.filter(pc.invert(pc.is_in(once["push_id_first"], pa.array(known, pa.string()))))
        if fresh.num_rows < pushes.num_rows:
            decoded = decoded.filter(pc.is_in(decoded["position"], fresh["position_first"].combine_chunks()))
        return decoded, bool(fresh.num_rows)

    def _reconcile(
        self, entries: pa.Table, histograms: pa.Table | None, sums: Sums
    ) -> tuple[pa.Table, list[ClientState], list[Contribution]]:
        min_minute = self._settings.min_minute
        with self._stage("series"):
            entries, histogram_rows, buckets, self._overflowed = replace_hashes(
                self._with_client_keys(entries),
                *_histogram_rows(histograms),
                self._series_ids,
                self._overflow_ids,
            )
            entries = cast(entries, ENTRY_ROWS)
        with self._stage("look_up"):
            clients = self._store.clients(entries["client_key"].unique().to_pylist())
            pairs = required_pairs(entries, clients)
            if min_minute is not None:
                # Others are left out below.
                pairs = {pair for pair in pairs if pair[1] >= min_minute}
            stored = self._store.contributions(pairs)
        with self._stage("reconcile"):
            states: list[ClientState] = []
            contributions: list[Contribution] = []
            parts = [_from(cast(histogram_rows, ROLLUP_ROWS), min_minute)]
            counted = [_from(cast(buckets, BUCKET_ROWS), min_minute)]
            for part in split_by_client(entries, points=_RECONCILED_POINTS):
                keys = part["client_key"].unique().to_pylist()
                before = {key: clients[key] for key in keys if key in clients}
                reconciled = reconcile(part, stored, before, closed=self._settings.closed)
                if min_minute is not None:
                    reconciled = reconciled.since(min_minute)
                parts.append(reconciled.rows)
                counted.append(reconciled.buckets)
                states += reconciled.clients
                contributions += reconciled.contributions
            self.rows = pa.concat_tables(parts)
            sums.add(self.rows)
            sums.add_buckets(pa.concat_tables(counted))
            sums.add_clients(_from(entries, min_minute))
        return entries, states, contributions

    def _with_client_keys(self, entries: pa.Table) -> pa.Table:
        instances = entries["client_instance_id"].combine_chunks().dictionary_encode()
        texts = instances.dictionary.to_pylist()
        keys = self._store.client_keys(texts)
        column = pa.array([keys[text] for text in texts], pa.int64()).take(instances.indices)
        return entries.append_column("client_key", column)

    def _series_ids(self, high: Integers, low: Integers) -> tuple[Integers, Integers]:
        """Return the series and fleet ids of distinct hashes. Adds new series."""
        found = self._store.find_series(high, low)
        unknown = np.flatnonzero(~found.known)
        unknown = unknown[~self._store.were_refused(high[unknown])]
        if len(unknown):
            rows = _of_hashes(self._described, high[unknown], low[unknown])
            if len(rows) < len(unknown):
                raise UndescribedError(f"{len(unknown) - len(rows)} series have no dimensions")
            minutes = [self._described_at[row] for row in rows]
            added = self._store.add_series(
                self._described.take(pa.array(rows, pa.int64())),
                Newcomers(minutes=minutes, settings=self._settings.new_series),
            )
            self._folded += added.folded
            if added.refused is not None:
                self._refused.append(added.refused)
            found = self._store.find_series(high, low)
        return np.where(found.known, found.series, NOT_ADDED), found.fleet

    def _overflow_ids(self, entries: pa.Table) -> tuple[Integers, Integers]:
        """Return the series and fleet ids of the overflow series of each entry's client."""
        clients = entries.select(CLIENT_DIMENSIONS).append_column("row", pa.array(range(entries.num_rows)))
        distinct = clients.group_by(list(CLIENT_DIMENSIONS), use_threads=False).aggregate([("row", "list")])
        found = self._store.overflow_series(distinct.select(CLIENT_DIMENSIONS))
        rows = distinct["row_list"].combine_chunks()
        of, at = pc.list_parent_indices(rows).to_numpy(), np.argsort(pc.list_flatten(rows).to_numpy())
        return np.where(found.known, found.series, NOT_ADDED)[of[at]], found.fleet[of[at]]

    def _refused_by(self, bound: Bound) -> int:
        return sum(refused.bounds.get(bound, 0) for refused in self._refused)

    def _refused_of(self) -> list[str | None]:
        if not self._refused:
            return []
        most = max(self._refused, key=lambda refused: len(refused.high))
        return [most.client_id, most.principal]

    @contextmanager
    def _stage(self, stage: TaskStage) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds[stage] += time.monotonic() - began


def _described(decoded: pa.Table) -> tuple[pa.Table, list[int]]:
    """Return the described series, and when the push of each was received (minutes)."""
    lists = decoded["series"].combine_chunks()
    described = _flat(decoded["series"], SERIES_ROWS)
    received_at_ns = decoded["received_at_ns"].combine_chunks().take(pc.list_parent_indices(lists))
    return described, (received_at_ns.to_numpy() // _MINUTE_NS).tolist()


def _of_hashes(described: pa.Table, high: Integers, low: Integers) -> list[int]:
    """Return a row for each of these hashes that is described."""
    wanted = set(zip(high.tolist(), low.tolist(), strict=True))
    pairs = zip(described["series_high"].to_pylist(), described["series_low"].to_pylist(), strict=True)
    return list({pair: row for row, pair in enumerate(pairs) if pair in wanted}.values())


def _histogram_rows(histograms: pa.Table | None) -> tuple[pa.Table, pa.Table]:
    """Return histograms and buckets with hashes (``ROLLUP_ROWS``, ``BUCKET_ROWS``)."""
    names = ("series_high", "series_low")
    hashes = [pa.field(name, pa.int64()) for name in names]
    rows = pa.schema([*ROLLUP_ROWS, *hashes]).empty_table().drop(["series_id", "fleet_id"])
    counts = pa.schema([*BUCKET_ROWS, *hashes]).empty_table().drop(["series_id"])
    if histograms is None or not histograms.num_rows:
        return rows, counts
    # A sum of bounded counts fits into the type, but it must not exceed the bound of totals.
    points = pc.min_element_wise(histograms["points"], pa.scalar(MAX_TOTAL))
    same = {"points": points, "spread": None, "observations": 0, "pushed_sum": None}
    rows = pa.table(
        {
            column.name: _filled(same[column.name], column.type, histograms.num_rows)
            if column.name in same
            else histograms[column.name]
            for column in rows.schema
        }
    )
    lists = histograms["buckets"].combine_chunks()
    of = pc.list_parent_indices(lists)
    flat = pc.list_flatten(lists)
    counts = pa.table(
        {
            "minute": histograms["minute"].combine_chunks().take(of),
            **{name: pc.struct_field(flat, name) for name in ("lower", "upper", "count")},
            **{name: histograms[name].combine_chunks().take(of) for name in names},
        }
    )
    return rows, counts


def _filled(value: object, kind: pa.DataType, size: int) -> pa.Array | pa.ChunkedArray:
    return value if isinstance(value, pa.ChunkedArray) else pa.array([value] * size, kind)


def _letters(dead: pa.Table, settings: TaskSettings) -> pa.Table:
    # The first of all tasks are kept at the commit.
    dead = dead.sort_by("position").slice(0, MAX_ROWS)
    kept = pa.array(np.arange(dead.num_rows) < MAX_PAYLOADS)
    return pa.table(
        [
            pa.array([settings.source] * dead.num_rows, pa.string()),
            dead["position"],
            dead["reason"],
            dead["bytes"].cast(pa.int64()).fill_null(0),
            pc.if_else(kept, dead["payload"].fill_null(b""), b""),
        ],
        schema=DEAD_LETTER_ROWS,
    )


def _most(entries: pa.Table) -> tuple[str | None, int]:
    """Return the client id with the most points, and their number."""
    if not entries.num_rows:
        return None, 0
    points = entries.group_by("client_id").aggregate([("points", "sum")])
    at = int(np.argmax(points["points_sum"].to_numpy()))
    return points["client_id"][at].as_py(), points["points_sum"][at].as_py()


def _with_several_slots(decoded: pa.Table) -> list[str]:
    """Return client instances whose entries have several slots."""
    slots = decoded.group_by("client_instance_id").aggregate([("slot", "min"), ("slot", "max")])
    several = slots.filter(pc.not_equal(slots["slot_min"], slots["slot_max"]))["client_instance_id"]
    found: list[str] = several.drop_null().to_pylist()
    return found[:MAX_NAMES]


def _flat(lists: pa.ChunkedArray, schema: pa.Schema | None = None) -> pa.Table | None:
    flat = pc.list_flatten(lists.combine_chunks())
    table = pa.Table.from_struct_array(flat) if len(flat) else None
    if schema is None:
        return table
    return schema.empty_table() if table is None else cast(table, schema)


def _from(rows: pa.Table, minute: int | None) -> pa.Table:
    """Return the rows from a minute on."""
    return rows if minute is None else rows.filter(pc.greater_equal(rows["minute"], minute))


def _total(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)


def _result(**values: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{name: values.get(name) for name in RESULT_ROWS.names}], RESULT_ROWS)


def _rows_of(rows: pa.RecordBatch) -> pa.RecordBatch:
    nothing = [pa.nulls(rows.num_rows, row.type) for row in RESULT_ROWS if row.name != "row"]
    return pa.RecordBatch.from_arrays([*nothing, rows.to_struct_array()], schema=RESULT_ROWS)
