"""Memory does not grow with the journal while publishing or recovering."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.unit.plugins.spool_files.support import AT, HOUR, journals, manifest, numbers, published

BATCHES = 300
ROWS = 4
#: Bytes of a push.
BYTES = 100_000
#: Memory that the process may use beyond that of its start: less than the journal's 120 MB.
BEYOND = 96 << 20

#: Exports the given pushes, then publishes them or is killed. At the end it prints that it got so
#: far.
PROGRAM = f"""
import os, resource, sys
from pathlib import Path
from tests.unit.plugins.spool_files.support import AT, HOUR, plugin, push_at

folder, batches, end = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
spool = plugin(folder, roll_seconds=3600, roll_bytes=256 << 20)
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + {BEYOND}, resource.RLIM_INFINITY))
spool.start()
for batch in range(batches):
    numbers = range(batch * {ROWS}, batch * {ROWS} + {ROWS})
    spool.export_batch(
        [push_at(n, AT + n % 2 * HOUR, data=n.to_bytes(4) * {BYTES // 4}) for n in numbers]
    )
if end == "stop":
    spool.stop()
print("done", flush=True)
os._exit(0)
"""


def run(folder: Path, batches: int, end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(batches), end],
        capture_output=True,
        text=True,
        check=False,
        # The host starts a plugin's process with it too. Without it, each thread's arena counts 64
        # MiB.
        env={**os.environ, "MALLOC_ARENA_MAX": "2"},
        timeout=120,
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


@pytest.mark.parametrize("recovered", [False, True])
def test_a_journal_larger_than_the_memory_is_published(tmp_path: Path, recovered: bool) -> None:
    if recovered:
        run(tmp_path, BATCHES, "die")
        (journal,) = journals(tmp_path)
        assert journal.stat().st_size > 1.1 * BEYOND
        run(tmp_path, 0, "stop")
    else:
        run(tmp_path, BATCHES, "stop")
    assert journals(tmp_path) == []
    assert numbers(tmp_path) == list(range(BATCHES * ROWS))
    files = published(tmp_path)
    assert len(files) == len(manifest(tmp_path)) == 2
    for hour, file in enumerate(files):
        found = pq.ParquetFile(file)
        groups = [found.metadata.row_group(n).total_byte_size for n in range(found.num_row_groups)]
        # Small row groups would make reading slow.
        assert len(groups) == BATCHES * ROWS * BYTES // 2 // (8 << 20) + 1
        assert min(groups) > 1_000_000
        rows = found.read(columns=["received_at_ns", "sequence", "otlp"])
        of_hour = range(hour, BATCHES * ROWS, 2)
        assert rows["sequence"].to_pylist() == [n + 1 for n in of_hour]
        assert rows["received_at_ns"].to_pylist() == [AT + hour * HOUR + n for n in of_hour]
        assert rows["otlp"].to_pylist() == [n.to_bytes(4) * (BYTES // 4) for n in of_hour]
