"""Program that fills a spool on a disk of 1 MiB, in its own mount namespace.

The argument is an empty folder. Prints what went wrong and what was kept, as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from receiver.host.spool import SpoolError
from tests.unit.host.spool.support import append_each, bytes_on_disk, opened, read_all, some


def refusal(call: Callable[..., object], *arguments: object) -> str | None:
    try:
        call(*arguments)
    except SpoolError as error:
        return str(error)
    return None


def main() -> None:
    disk = Path(sys.argv[1])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=True)
    folder = disk / "spool"
    (disk / "other").write_bytes(bytes(100_000))
    one = opened(folder, max_bytes=1 << 30, segment_bytes=300_000)
    appended = 0
    while not (full := refusal(one.append, some(appended, appended + 10, size=1000))):
        appended += 10
    half_written = bytes_on_disk(folder) - one.statistics.bytes
    with (disk / "other").open("ab", buffering=0) as other, suppress(OSError):
        while other.write(bytes(512)):
            pass
    first = one.read(1, 1)[0]
    for _ in range(256):
        one.commit(first.position)
    cursor = one.statistics.problem
    (disk / "other").unlink()
    append_each(one, appended, appended + 3, size=1000)
    one.rewind()
    lost = set(range(1, appended + 3)) ^ set(read_all(one))
    one.close()
    problem = one.statistics.problem
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    outcome = {
        "full": full,
        "half_written": half_written,
        "cursor": cursor,
        "lost": sorted(lost),
        "problem": problem,
        "read_only": refusal(one.open),
    }
    sys.stdout.write(json.dumps(outcome))


main()
