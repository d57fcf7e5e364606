"""Which new series are added: the bounds hold for any candidates, and no client starves another."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_streaming.admission import Candidate, admit, counts
from spark_streaming.contributions import (
    HASHED_CUMULATIVE,
    HASHED_CUMULATIVE_HISTOGRAM,
    HASHED_POINT,
    HISTOGRAM_COUNT,
    LAST,
    EncodedPoints,
)
from spark_streaming.contributions.codec import HISTOGRAM_BUCKET, POINT, Integers, decode_points
from spark_streaming.series_hashes import NOT_ADDED, replace_hashes
from spark_streaming.settings import NewSeriesSettings

_BOUND = st.none() | st.integers(1, 6)
_SETTINGS = st.builds(NewSeriesSettings, client_per_hour=_BOUND, principal_per_hour=_BOUND, per_minute=_BOUND)
_CANDIDATES = st.lists(
    st.builds(
        Candidate,
        cluster_id=st.just("c"),
        principal=st.sampled_from(("User:alice", "User:bob", "User:ANONYMOUS", None)),
        client_id=st.sampled_from(("a", "b", "c", None)),
        minute=st.integers(58, 62),
    ),
    max_size=40,
)


@given(batches=st.lists(_CANDIDATES, max_size=3), settings=_SETTINGS)
def test_no_counter_exceeds_its_bound(batches: list[list[Candidate]], settings: NewSeriesSettings) -> None:
    bounds: dict[str, int | None] = {
        "client": settings.client_per_hour,
        "principal": settings.principal_per_hour,
        "minute": settings.per_minute,
    }
    counted: Counter[Any] = Counter()
    for candidates in batches:
        over, added = admit(candidates, counted, settings)
        stay = [candidate for candidate, bound in zip(candidates, over, strict=True) if bound is None]
        assert added == Counter(counter for item in stay for counter in counts(item))
        counted += added
        for (kind, _, _), number in counted.items():
            bound = bounds[kind]
            assert bound is None or number <= bound
        for candidate, kind in zip(candidates, over, strict=True):
            # Nothing is refused while there is room.
            if kind is not None:
                (counter,) = (counter for counter in counts(candidate) if counter[0] == kind)
                assert counted[counter] == bounds[kind]


@given(flood=st.integers(0, 200), others=st.integers(1, 10), room=st.integers(11, 50))
def test_a_client_with_many_leaves_room_for_the_others(flood: int, others: int, room: int) -> None:
    candidates = [Candidate("c", None, "flood", 0)] * flood
    candidates += [Candidate("c", None, f"client-{number}", 0) for number in range(others)]
    over, _ = admit(candidates, {}, NewSeriesSettings(per_minute=room))
    assert over[flood:] == [None] * others
    assert over.count("minute") == max(0, flood + others - room)


def test_names_of_any_text_are_told_apart() -> None:
    names = ["a", "b", "a', 'b", "\ud800", "", None]
    keys = {
        next(counts(Candidate("c", principal, client_id, 0))) for principal in names for client_id in names
    }
    assert len(keys) == len(names) ** 2


@pytest.mark.parametrize("names", [HASHED_POINT, HASHED_CUMULATIVE])
@given(entries=st.lists(st.lists(st.booleans(), max_size=5), max_size=6))
def test_points_without_an_id_leave_their_entries(names: tuple[str, ...], entries: list[list[bool]]) -> None:
    size = len(names) + 1
    blobs, expected = [], []
    for number, stays in enumerate(entries):
        columns = np.arange(size * len(stays), dtype=np.int64).reshape(size, -1) + 1000 * number
        flags = np.arange(len(stays), dtype=np.int8)
        mask = np.array(stays, np.bool_)
        blobs.append(columns.tobytes() + flags.tobytes())
        kept = columns.copy()
        kept[0], kept[1] = 7, 8
        expected.append(kept[:, mask].tobytes() + flags[mask].tobytes())
    points = EncodedPoints(blobs, names)
    high, _ = points.hashes()
    # The points are found by their hash, because the parts are sorted by length.
    stay = {1000 * number + at: item for number, stays in enumerate(entries) for at, item in enumerate(stays)}
    kept_points = np.array([stay[item] for item in high.tolist()], np.bool_)
    ids = np.full(len(high), 7), np.full(len(high), 8)
    assert points.with_ids(*ids, kept_points) == expected


@given(
    entries=st.lists(
        st.tuples(*[st.lists(st.sampled_from([1, 2, 7, 8]), max_size=4)] * 3, st.integers(0, 2)), max_size=5
    )
)
def test_an_overflow_series_counts_what_an_entry_loses(
    entries: list[tuple[list[int], list[int], list[int], int]],
) -> None:
    """Series 7 and 8 are not added, and the third client has no overflow series."""
    table = pa.table(
        {
            "client": pa.array([client for _, _, _, client in entries], pa.int64()),
            "gauges": pa.array([points(hashes, 2) for hashes, _, _, _ in entries], pa.binary()),
            "added": pa.array([points(hashes, 2) for _, hashes, _, _ in entries], pa.binary()),
            "cumulative": pa.array([b""] * len(entries), pa.binary()),
            # Of two parts each.
            "cumulative_histograms": pa.array(
                [histograms(hashes) for _, _, hashes, _ in entries], pa.binary()
            ),
        }
    )
    hashed = pa.schema([("series_high", pa.int64()), ("series_low", pa.int64())])
    deltas = pa.table({"series_high": [1, 7], "series_low": [1, 7]}, hashed)

    def ids(high: Integers, _: Integers) -> tuple[Integers, Integers]:
        return np.where(high < 7, high, NOT_ADDED), high

    def overflow(of: pa.Table) -> tuple[Integers, Integers]:
        client = of["client"].to_numpy()
        return np.where(client < 2, 100 + client, NOT_ADDED), 200 + client

    replaced, kept_deltas, _, total = replace_hashes(table, deltas, hashed.empty_table(), ids, overflow)
    gauges = decode_points(replaced["gauges"].to_pylist(), POINT)
    lost = [sum(at > 2 for at in (*first, *second, *third)) for first, second, third, _ in entries]
    expected = {
        row: (100 + client, 200 + client, float(number), LAST)
        for row, (number, (_, _, _, client)) in enumerate(zip(lost, entries, strict=True))
        if number and client < 2
    }
    columns = (gauges.integers["series"], gauges.integers["fleet"], gauges.value, gauges.flags)
    found = list(zip(gauges.entry.tolist(), *(column.tolist() for column in columns), strict=True))
    assert {row: rest for row, *rest in found if rest[0] >= 100} == {
        row: list(rest) for row, rest in expected.items()
    }
    assert sorted((row, series) for row, series, *_ in found if series < 100) == sorted(
        (row, at) for row, (hashes, _, _, _) in enumerate(entries) for at in hashes if at <= 2
    )
    assert total == sum(lost) + 1
    assert kept_deltas["series_id"].to_pylist() == [1]


def points(hashes: list[int], integers: int, flags: int = 0) -> bytes:
    columns = [hashes, hashes, *[[0] * len(hashes)] * (integers - 2)]
    return np.array([*columns, [0] * len(hashes)], np.int64).tobytes() + bytes([flags]) * len(hashes)


def histograms(hashes: list[int]) -> bytes:
    twice = [at for at in hashes for _ in range(2)]
    words = points(twice, len(HASHED_CUMULATIVE_HISTOGRAM))
    return words[: -len(twice) or None] + bytes([HISTOGRAM_COUNT, HISTOGRAM_BUCKET]) * len(hashes)
