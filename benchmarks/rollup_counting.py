"""``python -m benchmarks.rollup_counting``: Spark's Python daemon, whose tasks count totals.

With ``spark.python.daemon.module`` set to this module, tasks do all their work up to the COPY of
minutes. Then they write the table, the rows and the bytes of that COPY into the file
``COUNTED_ROWS``, and send nothing. All else goes to PostgreSQL, because later batches read it: push
ids, contributions, client states, series, and the load itself.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark import daemon

#: Environment variable that names the file.
FILE = "COUNTED_ROWS"


class _Cursor:
    """Takes what is copied instead of PostgreSQL."""

    def __init__(self) -> None:
        self.bytes = 0

    @contextmanager
    def copy(self, _: object) -> Iterator[_Cursor]:
        yield self

    def write(self, data: bytes) -> None:
        self.bytes += len(data)


def main() -> None:
    """Run the daemon."""
    module: Any = daemon
    work = module.worker

    count = functools.cache(_count_minutes)

    def worker(*arguments: Any) -> Any:
        # In the forked process, because the daemon must not have threads. It calls this again for
        # each task.
        count()
        return work(*arguments)

    module.worker = worker
    module.manager()


def _count_minutes() -> None:
    from spark_streaming.postgres.tables import MINUTES, Grain, Totals

    patched: Any = Totals
    append = Totals.append

    def count(totals: Totals, cursor: Any, grain: Grain, rows: pa.Table, load_id: int) -> None:
        if grain is not MINUTES:
            append(totals, cursor, grain, rows, load_id)
            return
        counted: Any = _Cursor()
        append(totals, counted, grain, rows, load_id)
        line = f"{totals.table(grain)} {rows.num_rows} {counted.bytes}\n"
        file = os.open(os.environ[FILE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    patched.append = count


if __name__ == "__main__":
    main()
