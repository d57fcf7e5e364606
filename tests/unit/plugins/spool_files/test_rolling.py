"""For any batches, each push is in one file of its hour, and files are bounded."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.spool_files.layout import Hour
from tests.exploration import examples
from tests.unit.plugins.spool_files.support import AT, HOUR, manifest, numbers, published, push_at, started

ROLL_BYTES = 65_536
#: A push: its receive time in hours before another one, and its size.
PUSHES = st.tuples(st.integers(0, 3), st.one_of(st.integers(1, 100), st.integers(1, 40_000)))
BATCHES = st.lists(st.lists(PUSHES, min_size=1, max_size=6), max_size=12)


@pytest.mark.full
@settings(max_examples=examples(40), deadline=None)
@given(runs=st.lists(BATCHES, min_size=1, max_size=3))
def test_every_push_is_in_one_file_of_its_hour(runs: list[list[list[tuple[int, int]]]]) -> None:
    number = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        for batches in runs:
            with started(path, roll_seconds=3600, roll_bytes=ROLL_BYTES) as spool:
                for batch in batches:
                    spool.export_batch(
                        [push_at(number + n, AT - h * HOUR, data=bytes(s)) for n, (h, s) in enumerate(batch)]
                    )
                    number += len(batch)
        assert numbers(path) == list(range(number))
        for file in published(path):
            rows = pq.read_table(file, partitioning=None)
            hour = Hour.parse(*file.relative_to(path).parts[:2])
            assert {Hour.of(at) for at in rows["received_at_ns"].to_pylist()} == {hour}
            # The batch that fills a journal closes it.
            largest = 6 * 40_000
            assert sum(map(len, rows["otlp"].to_pylist())) <= ROLL_BYTES + largest
        listed = {line["file"]: line["rows"] for line in manifest(path)}
        assert listed == {
            file.relative_to(path).as_posix(): pq.read_metadata(file).num_rows for file in published(path)
        }
