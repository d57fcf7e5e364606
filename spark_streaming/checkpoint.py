"""Finds the damaged file of a checkpoint, which Spark often does not name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

#: Files of a log that may be damaged: the newest, which a power failure cuts off.
_NEWEST: Final = 3
_MAX_BYTES: Final = 16 << 20
#: Spark's errors about a file that it can't read.
_NAMED: Final = re.compile(r"Failed to read log file (\S+?)\.?(?:\s|$)")
#: An offset that a source does not have yet.
_NO_OFFSET: Final = "-"


def damaged_file(checkpoint: str, failure: str) -> str | None:
    """Return the file of a checkpoint that Spark can't read; None if all can be read.

    Args:
        checkpoint: Its folder, a path or a URL.
        failure: The text of Spark's error.
    """
    if (named := _NAMED.search(failure)) is not None:
        return named[1]
    parts = urlsplit(checkpoint)
    if parts.scheme not in {"", "file"}:
        return None
    folder = Path(unquote(parts.path)) if parts.scheme else Path(checkpoint)
    try:
        return next((str(file) for file in _files(folder) if not _is_whole(file)), None)
    except OSError:
        return None


def _files(folder: Path) -> Iterator[Path]:
    if (metadata := folder / "metadata").is_file():
        yield metadata
    for log in (folder / "offsets", folder / "commits", *sorted((folder / "sources").glob("*"))):
        names = log.glob("*") if log.is_dir() else ()
        batches = [file for file in names if re.fullmatch("[0-9]{1,18}", file.name)]
        yield from sorted(batches, key=lambda file: int(file.name))[-_NEWEST:]


def _is_whole(file: Path) -> bool:
    """Return whether a file is a JSON document, or a version and JSON lines."""
    if file.stat().st_size > _MAX_BYTES:
        return True
    # The log of a Kafka source begins with a zero byte, for Spark 2.1 (SPARK-19517).
    lines = file.read_text("utf-8", "replace").removeprefix("\0").splitlines()
    if file.name != "metadata":
        if not lines or not re.fullmatch(r"v\d+", lines[0]):
            return False
        lines = lines[1:]
    try:
        for line in lines:
            if line and line != _NO_OFFSET:
                json.loads(line)
    except ValueError:
        return False
    return bool(lines) or file.name != "metadata"
