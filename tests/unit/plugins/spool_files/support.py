"""Test helpers for spool_files: a plugin, numbered pushes, and readers of its folder."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from plugins.spool_files import SpoolFilesReceiver
from receiver.host.discovery import load_plugins
from receiver.plugin import Push
from tests.unit.host.support import push, wait_for

#: 2026-01-31 13:05:12 UTC, in nanoseconds.
AT = 1_769_864_712_000_000_000
HOUR = 3_600_000_000_000


def plugin(path: Path, **settings: Any) -> SpoolFilesReceiver:
    """Return the plugin, not started. It keeps pushes of any age."""
    (hosted,) = load_plugins([{"type": "spool_files", "path": str(path), "retain_hours": None, **settings}])
    assert isinstance(hosted.plugin, SpoolFilesReceiver)
    return hosted.plugin


@contextmanager
def started(path: Path, **settings: Any) -> Iterator[SpoolFilesReceiver]:
    one = plugin(path, **settings)
    one.start()
    try:
        yield one
    finally:
        one.stop()


def push_at(number: int, at: int = AT, *, data: bytes = b"\x0a\x00") -> Push:
    one = push(number, data=data)
    return dataclasses.replace(one, context=dataclasses.replace(one.context, received_at_ns=at + number))


def pushes(count: int, start: int = 0) -> list[Push]:
    return [push_at(n) for n in range(start, start + count)]


def published(path: Path) -> list[Path]:
    """Return the published files. Unlike ``glob``, it allows folders to be deleted meanwhile."""
    files = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
    return sorted(file for file in files if fnmatch(str(file.relative_to(path)), "date=*/hour=??/*.parquet"))


def journals(path: Path) -> list[Path]:
    return sorted((path / "_journal").glob("*.journal"))


def rows(path: Path) -> pa.Table:
    """Read the whole folder as one table, like Spark."""
    return ds.dataset(path, format="parquet", partitioning="hive").to_table()


def numbers(path: Path) -> list[int]:
    """Return the numbers of the pushes in published files, sorted."""
    return numbers_in(published(path))


def numbers_in(files: Iterable[Path]) -> list[int]:
    """Return the numbers of the pushes in those files that still exist, sorted."""
    found: list[int] = []
    for file in files:
        with suppress(FileNotFoundError):
            found += (n - 1 for n in pq.read_table(file, partitioning=None)["sequence"].to_pylist())
    return sorted(found)


def manifest(path: Path) -> list[dict[str, Any]]:
    files = sorted((path / "_manifest").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def first_message(spool: SpoolFilesReceiver) -> str:
    """Return the plugin's next message; its thread may still be about to say something."""
    found: list[str] = []

    def said() -> bool:
        found.append(message(spool))
        return bool(found[-1])

    wait_for(said)
    return found[-1]


def message(spool: SpoolFilesReceiver, number: int = 100) -> str:
    """Return the plugin's message at its next export."""
    result = spool.export_batch([push_at(number)])
    return "" if result is None else result.message
