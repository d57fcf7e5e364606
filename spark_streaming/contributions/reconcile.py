"""Reconciles entries: aggregates points and corrects for other pushes.

``spark_streaming/contributions/README.md`` says what a minute is worth.

For any batches and any order of arrival, the points plus all corrections of a series and minute
equal

- rule last: the values of each instance's newest push in the minute (by time, then push id), or
  those carried forward into it (see ``carry_forward``), added over instances. A push that has
  points in several minutes also keeps the values of its minute before, unless it has newer ones;
- rule rate: the mean over each instance's entries that have the series, added over instances;
- rule distribution: ``sum`` of all points, and one observation for each instance, the mean of its
  points;
- cumulative sums and histograms: their growth (see ``cumulative``, which says where the order of
  arrival matters).

Sums of whole numbers are exact. An entry has the points of one push, instance and time. Clients
that stamp each metric separately send several entries in a push.

An entry older than the stored contributions is added without being combined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_streaming.contributions.aggregate import aggregate
from spark_streaming.contributions.carry_forward import (
    CarryResult,
    Source,
    carry_forward,
    carry_limit,
    carry_limits,
)
from spark_streaming.contributions.codec import (
    COMBINED_ROW,
    COUNT_ROW,
    DISTRIBUTION,
    LAST,
    NO_COUNTS,
    POINT,
    PointColumns,
    decode_contribution,
    decode_points,
    encode_contribution,
)
from spark_streaming.contributions.combine import Parts, combine
from spark_streaming.contributions.corrections import Corrections
from spark_streaming.contributions.cumulative import reconcile_cumulative
from spark_streaming.contributions.ranges import KnownContributions, carries, in_ranges
from spark_streaming.contributions.values import ClientState, Contribution, Reconciliation

Integers = npt.NDArray[np.int64]

_MIX_FACTOR: Final = 0x1E3779B97F4A7C15


def split_by_client(entries: pa.Table, *, points: int) -> Iterator[pa.Table]:
    """Split entries by client into parts that can be reconciled separately.

    Clients of one client id are neighbours, because then its series have fewer rows.

    Args:
        entries: ``ENTRY_ROWS``.
        points: Approximate number of data points in a part. Clients are not split.
    """
    clients = (
        entries.group_by("client_key")
        .aggregate([("client_id", "max"), ("points", "sum")])
        .sort_by([("client_id_max", "ascending"), ("client_key", "ascending")])
    )
    part = pc.cumulative_sum(clients["points_sum"]).to_numpy() // points
    part_of_entry = part[pc.index_in(entries["client_key"], clients["client_key"]).to_numpy()]
    for number in np.unique(part):
        yield entries.filter(pa.array(part_of_entry == number))


def required_pairs(entries: pa.Table, clients: Mapping[int, ClientState]) -> set[tuple[int, int]]:
    """Return (client_key, minute) of the contributions that ``reconcile`` needs.

    These are the pairs of the entries, and the later minutes to which counts may have been carried,
    without those that the states imply. Without entries none are needed.

    Args:
        entries: ``ENTRY_ROWS``.
    """
    pairs: set[tuple[int, int]] = set()
    columns = ("client_key", "minute", "time_ns", "push_interval_ms")
    for key, minute, time_ns, interval in zip(*(entries[x].to_pylist() for x in columns), strict=True):
        state = clients.get(key)
        if state is not None and minute <= max(state.minute, state.covered_until):
            # A newer push of this minute, perhaps an empty one, may have been carried further.
            newest_ns = max(time_ns, state.last_ns) if minute == state.minute else time_ns
            reach = carry_limit(minute, newest_ns, max(interval, state.push_interval_ms))
            until = min(reach, max(state.minute, state.covered_until))
            pairs.update((key, m) for m in range(minute, until + 1) if not carries(state, m))
    return pairs


def reconcile(
    entries: pa.Table,
    stored: Mapping[tuple[int, int], Contribution],
    clients: Mapping[int, ClientState],
    *,
    closed: int,
) -> Reconciliation:
    """Reconcile entries, and carry counts forward into complete minutes.

    Args:
        entries: New ``ENTRY_ROWS``, with all entries of their clients in the batch.
        stored: Stored contributions by client and minute, at least those of ``required_pairs``.
        clients: Stored states of the entries' clients, and of others to carry forward.
        closed: The last minute that is complete. It must not decrease.

    Raises:
        CodecError: Bytes of another version, in the entries or in the store.
    """
    corrections, carried = Corrections(), CarryResult()
    columns = _entry_columns(entries)
    with_values = columns.filter(columns.has_values)
    gauges = decode_points(with_values.gauges, POINT)
    known = KnownContributions(stored, clients)
    contributions, sources = _contributions(with_values, gauges, known, corrections, carried)
    silent = np.flatnonzero(~columns.has_values)
    for key, source in zip(
        columns.client[silent].tolist(), columns.sources(silent, [None] * len(silent)), strict=True
    ):
        sources.setdefault(key, []).append(source)
    cumulative, buckets = reconcile_cumulative(
        columns.cumulative,
        columns.cumulative_histograms,
        client=columns.client,
        minute=columns.minute,
        push_interval_ms=columns.push_interval_ms,
        clients=clients,
        corrections=corrections,
    )
    for key in sources.keys() | clients.keys():
        carry_forward(
            key,
            sources.get(key, ()),
            state=clients.get(key),
            cumulative=cumulative.get(key),
            known=known,
            closed=closed,
            carried=carried,
        )
    _add_carried(carried, corrections)
    ranges, states = in_ranges(
        carried.contributions, carried.new, contributions, before=clients, after=carried.clients
    )
    return Reconciliation(
        rows=pa.concat_tables(
            [
                aggregate(with_values.minute, gauges, decode_points(with_values.added, POINT)),
                corrections.table(),
            ]
        ),
        buckets=buckets,
        contributions=contributions + ranges,
        clients=states,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _EntryColumns:
    """Columns of entries, sorted by client, minute, time and push id rank."""

    client: Integers
    minute: Integers
    time_ns: Integers
    push_interval_ms: Integers
    terminating: npt.NDArray[np.bool_]
    push: Integers
    push_id: list[str]
    gauges: list[bytes]
    added: list[bytes]
    cumulative: list[bytes]
    cumulative_histograms: list[bytes]

    @property
    def has_values(self) -> npt.NDArray[np.bool_]:
        """Mask of entries with values. A push without entries has none."""
        return np.array([bool(x or y) for x, y in zip(self.gauges, self.added, strict=True)], np.bool_)

    def filter(self, which: npt.NDArray[np.bool_]) -> _EntryColumns:
        if which.all():
            return self
        at = np.flatnonzero(which)
        return _EntryColumns(
            client=self.client[at],
            minute=self.minute[at],
            time_ns=self.time_ns[at],
            push_interval_ms=self.push_interval_ms[at],
            terminating=self.terminating[at],
            push=self.push[at],
            push_id=[self.push_id[i] for i in at],
            gauges=[self.gauges[i] for i in at],
            added=[self.added[i] for i in at],
            cumulative=[self.cumulative[i] for i in at],
            cumulative_histograms=[self.cumulative_histograms[i] for i in at],
        )

    def sources(self, at: Integers, counts: Sequence[bytes | None]) -> Iterator[Source]:
        """Return the entries at these indexes as sources of counts."""
        columns = (self.minute, self.time_ns, self.push_interval_ms, self.terminating)
        return map(Source, *(column[at].tolist() for column in columns), counts)


def _entry_columns(entries: pa.Table) -> _EntryColumns:
    client, minute, time_ns, interval = (
        entries[name].to_numpy() for name in ("client_key", "minute", "time_ns", "push_interval_ms")
    )
    push = pc.rank(entries["push_id"], tiebreaker="dense").to_numpy().astype(np.int64)
    order = np.lexsort((push, time_ns, minute, client))
    at = order.tolist()
    push_ids = entries["push_id"].to_pylist()
    gauges, added, cumulative, histograms = (
        entries[x].to_pylist() for x in ("gauges", "added", "cumulative", "cumulative_histograms")
    )
    return _EntryColumns(
        client=client[order],
        minute=minute[order],
        time_ns=time_ns[order],
        push_interval_ms=interval[order],
        terminating=entries["terminating"].to_numpy()[order],
        push=push[order],
        push_id=[push_ids[i] for i in at],
        gauges=[gauges[i] or b"" for i in at],
        added=[added[i] or b"" for i in at],
        cumulative=[cumulative[i] or b"" for i in at],
        cumulative_histograms=[histograms[i] or b"" for i in at],
    )


def _contributions(
    columns: _EntryColumns,
    points: PointColumns,
    known: KnownContributions,
    corrections: Corrections,
    carried: CarryResult,
) -> tuple[list[Contribution], dict[int, list[Source]]]:
    """Reconcile the gauges of each instance and minute.

    Returns:
        The contributions, and by client the minutes whose newest push is in this batch.
    """
    begins = np.ones(len(columns.client), np.bool_)
    begins[1:] = (columns.client[1:] != columns.client[:-1]) | (columns.minute[1:] != columns.minute[:-1])
    starts = np.flatnonzero(begins)
    pair = np.cumsum(begins) - 1
    entries = np.diff(np.append(starts, len(pair)))
    newest = starts + entries - 1
    clients, minutes = columns.client[starts].tolist(), columns.minute[starts].tolist()
    existing = [known.get(key) for key in zip(clients, minutes, strict=True)]
    for contribution in existing:
        if contribution is not None and not contribution.entries:
            carried.subtract(contribution)
    before = {i: c for i, c in enumerate(existing) if c is not None and c.entries}
    across = _across_minutes(columns, points, pair, newest)
    several = entries > 1
    several[list(before)] = True
    several[across.pair] = True

    pair_of_point = pair[points.entry]
    alone = ~several[pair_of_point]
    outdated = np.zeros(len(starts), np.bool_)
    parts = _stored_parts(before, columns, newest, outdated)
    chosen = np.flatnonzero(~alone | _repeated(points, pair_of_point, alone))
    pushes = columns.push[newest[pair]]
    parts = parts.concat(
        Parts(
            pair=pair_of_point[chosen],
            entry=points.entry[chosen],
            series=points.integers["series"][chosen],
            fleet=points.integers["fleet"][chosen],
            value=points.value[chosen],
            flags=points.flags[chosen],
            weight=np.ones(len(chosen), np.int64),
            stored=np.zeros(len(chosen), np.bool_),
            newest=((columns.push == pushes) & ~outdated[pair])[points.entry[chosen]],
            carried=np.zeros(len(chosen), np.bool_),
        )
    ).concat(replace(across, newest=~outdated[across.pair]))
    combined = combine(parts, columns.minute[starts], corrections)
    rows = combined.rows
    bodies = _by_pair(rows, combined.pair, len(starts))

    plain = np.flatnonzero(alone & (points.flags & 15 == LAST))
    counted = np.flatnonzero(((rows["flags"] & 15) == LAST) & several[combined.pair])
    count_rows = np.empty(len(plain) + len(counted), COUNT_ROW)
    point_columns: dict[str, npt.NDArray[np.generic]] = {
        **points.integers,
        "value": points.value,
        "flags": points.flags,
    }
    for name, column in point_columns.items():
        count_rows[name] = np.concatenate((column[plain], rows[name][counted]))
    count_pair = np.concatenate((pair_of_point[plain], combined.pair[counted]))
    order = np.argsort(count_pair, kind="stable")
    counts = _by_pair(count_rows[order], count_pair[order], len(starts))

    contributions: list[Contribution] = []
    sources: dict[int, list[Source]] = {}
    for i, (key, count, source, at) in enumerate(
        zip(
            clients,
            entries.tolist(),
            columns.sources(newest, [NO_COUNTS + x for x in counts]),
            newest.tolist(),
            strict=True,
        )
    ):
        time_ns, push_id, stored_one = source.time_ns, columns.push_id[at], before.get(i)
        if stored_one is not None and outdated[i]:
            time_ns, push_id = stored_one.last_ns, decode_contribution(stored_one.packed).push_id
        else:
            sources.setdefault(key, []).append(source)
        contributions.append(
            Contribution(
                key,
                source.minute,
                count + (stored_one.entries if stored_one is not None else 0),
                time_ns,
                encode_contribution("combined", push_id, bodies[i])
                if several[i]
                else encode_contribution("entry", push_id, columns.gauges[at]),
            )
        )
    return contributions, sources


def _stored_parts(
    before: Mapping[int, Contribution],
    columns: _EntryColumns,
    newest: Integers,
    outdated: npt.NDArray[np.bool_],
) -> Parts:
    """Return the parts of stored contributions.

    Sets ``outdated`` where a stored push is newer than those of the batch.
    """
    single: dict[int, bytes] = {}
    combined: dict[int, bytes] = {}
    for i, contribution in before.items():
        contents = decode_contribution(contribution.packed)
        at = newest[i]
        outdated[i] = (contribution.last_ns, contents.push_id) > (columns.time_ns[at], columns.push_id[at])
        (single if contents.form == "entry" else combined)[i] = contents.body
    points = decode_points(list(single.values()), POINT)
    rows = np.frombuffer(b"".join(combined.values()), COMBINED_ROW)
    sizes = [len(body) // COMBINED_ROW.itemsize for body in combined.values()]
    pair = np.concatenate(
        (np.array(list(single), np.int64)[points.entry], np.repeat(np.array(list(combined), np.int64), sizes))
    )

    return Parts(
        pair=pair,
        entry=np.concatenate((len(columns.client) + points.entry, np.full(len(rows), -1))),
        series=np.concatenate((points.integers["series"], rows["series"])),
        fleet=np.concatenate((points.integers["fleet"], rows["fleet"])),
        value=np.concatenate((points.value, rows["value"])),
        flags=np.concatenate((points.flags, rows["flags"])),
        weight=np.concatenate((np.ones(len(points.entry), np.int64), rows["weight"])),
        stored=np.ones(len(pair), np.bool_),
        newest=outdated[pair],
        carried=np.zeros(len(pair), np.bool_),
    )


def _across_minutes(columns: _EntryColumns, points: PointColumns, pair: Integers, newest: Integers) -> Parts:
    """Return the counts that the newest push of a pair has in its minute before.

    A client that stamps each metric separately may push at the end of a minute. Then each of the
    two minutes has only some of its counts. Without those of the first one, the client would lose
    them from the second one until its next push.

    They are at most as many as the points, because only one minute before counts.

    Args:
        points: The gauges of the entries.

    Returns:
        Parts of the later pairs, all ``carried`` and ``newest``.
    """
    # Runs: the entries of one push, client and minute. The runs of one push and client follow each
    # other in order of time.
    order = np.lexsort((np.arange(len(pair)), columns.push, columns.client))
    client, push, own = columns.client[order], columns.push[order], pair[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (client[1:] != client[:-1]) | (push[1:] != push[:-1]) | (own[1:] != own[:-1])
    start = np.flatnonzero(begins)
    after, last = own[start[1:]], order[start[1:] - 1]
    reaches = columns.minute[newest[after]] <= carry_limits(
        columns.time_ns[last], columns.push_interval_ms[last]
    )
    follows = (client[start[1:]] == client[start[:-1]]) & (push[start[1:]] == push[start[:-1]])
    is_newest = columns.push[newest[after]] == push[start[1:]]
    target = np.full(len(start), -1)
    target[:-1] = np.where(follows & reaches & is_newest, after, -1)
    target_of_entry = np.empty(len(order), np.int64)
    target_of_entry[order] = target[np.cumsum(begins) - 1]

    at = np.flatnonzero((target_of_entry[points.entry] >= 0) & (points.flags & 15 == LAST))
    return Parts(
        pair=target_of_entry[points.entry[at]],
        entry=points.entry[at],
        series=points.integers["series"][at],
        fleet=points.integers["fleet"][at],
        value=points.value[at],
        flags=points.flags[at],
        weight=np.ones(len(at), np.int64),
        stored=np.zeros(len(at), np.bool_),
        newest=np.ones(len(at), np.bool_),
        carried=np.ones(len(at), np.bool_),
    )


def _repeated(points: PointColumns, pair: Integers, alone: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return a mask of points with another point of their series and entry."""
    repeated = np.zeros(len(pair), np.bool_)
    at = np.flatnonzero(alone & (points.flags & 15 == DISTRIBUTION))
    # Mixed, not numbered: two that fall together by chance are columns apart when they are
    # combined.
    key = points.integers["series"][at] ^ (pair[at] * _MIX_FACTOR)
    ordered = np.sort(key)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        repeated[at[np.isin(key, twice)]] = True
    return repeated


def _by_pair(rows: npt.NDArray[np.void], pair: Integers, pairs: int) -> list[bytes]:
    bounds = (np.searchsorted(pair, np.arange(pairs + 1)) * rows.itemsize).tolist()
    packed = rows.tobytes()
    return [packed[begin:end] for begin, end in pairwise(bounds)]


def _add_carried(carried: CarryResult, corrections: Corrections) -> None:
    firsts, lasts, bodies, signs = zip(*carried.counts, strict=True) if carried.counts else ((), (), (), ())
    rows = np.frombuffer(b"".join(bodies), COUNT_ROW)
    change = np.repeat(np.arange(len(bodies)), [len(body) // COUNT_ROW.itemsize for body in bodies])
    first = np.array(firsts, np.int64)
    # Each row once for each minute.
    minutes = (np.array(lasts, np.int64) - first + 1)[change]
    row = np.repeat(np.arange(len(rows)), minutes)
    passed = np.arange(len(row)) - np.repeat(np.cumsum(minutes) - minutes, minutes)
    corrections.add(
        minute=first[change][row] + passed,
        series=rows["series"][row],
        fleet=rows["fleet"][row],
        flags=rows["flags"][row],
        total=(rows["value"] * np.array(signs, np.float64)[change])[row],
    )
