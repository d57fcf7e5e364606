"""``python -m benchmarks.rollup_packing FILE BEGIN ARGUMENTS``: the command with measured packing.

The job merges minutes, but packs nothing before the file BEGIN exists. FILE gets a line for each
transaction that packs a window: the CPU seconds of its connection in PostgreSQL, and its bytes of
the write-ahead log. Plans and merged minutes are not among them, because they belong to the live
pushes.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spark_streaming import cli
from spark_streaming.postgres.database import PLAN_LOCK, Database
from spark_streaming.postgres.packer import Packer
from tests.testbed.cpu import cpu_seconds

#: In the name of the connection.
_PACKING = "packing"
_WAL = "SELECT wal_bytes FROM pg_stat_get_backend_wal(pg_backend_pid())"


def main() -> None:
    """Run the command."""
    file, begin, *arguments = sys.argv[1:]
    database: Any = Database
    database.transaction = _measured(Database.transaction, Path(file))
    packer: Any = Packer
    packer._plan = _delayed(Packer._plan, Path(begin))  # noqa: SLF001 -- merging goes on before
    cli.app(arguments)


def _measured(transaction: Any, file: Path) -> Any:
    @functools.wraps(transaction)
    @contextmanager
    def call(database: Any, *locks: int, **others: Any) -> Iterator[Any]:
        is_packing = _PACKING in database._application  # noqa: SLF001 -- tells connections apart
        if not is_packing or PLAN_LOCK in locks:
            with transaction(database, *locks, **others) as connection:
                yield connection
            return
        with transaction(database, *locks, **others) as connection:
            cpu_s = cpu_seconds(connection.info.backend_pid)
            ((wal_bytes,),) = connection.execute(_WAL)
            yield connection
        # Committed, and still connected.
        cpu_s = cpu_seconds(connection.info.backend_pid) - cpu_s
        connection.execute("SELECT pg_stat_force_next_flush()")
        ((wal_until,),) = connection.execute(_WAL)
        with file.open("a") as output:
            output.write(f"{cpu_s} {wal_until - wal_bytes}\n")

    return call


def _delayed(plan: Any, begin: Path) -> Any:
    @functools.wraps(plan)
    def call(packer: Any, now_ns: int) -> Any:
        # No hour is closed before 1970.
        return plan(packer, now_ns if begin.exists() else 0)

    return call


if __name__ == "__main__":
    main()
