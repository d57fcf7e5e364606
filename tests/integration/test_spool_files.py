"""The spool_files plugin loses no accepted push when its process is killed repeatedly."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

from tests.unit.plugins.spool_files.support import journals, manifest, numbers, published, started

ROUNDS = 12

#: Exports pushes from a number on, in batches, and prints the last accepted number.
PROGRAM = """
import random, sys
from pathlib import Path
from tests.unit.plugins.spool_files.support import plugin, push_at
folder, number = Path(sys.argv[1]), int(sys.argv[2])
spool = plugin(folder, roll_seconds=1, roll_bytes=65_536)
spool.start()
rng = random.Random(number)
while True:
    sizes = [rng.randrange(1, 2_000) for _ in range(rng.randrange(1, 40))]
    batch = [push_at(number + n, data=rng.randbytes(size)) for n, size in enumerate(sizes)]
    spool.export_batch(batch)
    number += len(batch)
    print(number, flush=True)
"""


def killed_run(folder: Path, start: int, lives_s: float) -> int:
    """Run the program until a while after its first batch; return the accepted number."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), str(start)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            first = process.stdout.readline()
            assert first, "the program ended"
            time.sleep(lives_s)
        finally:
            process.kill()
        rest = process.stdout.read().splitlines(keepends=True)
        # The kill may cut a line, or happen between the acceptance of a batch and its line.
        return int([first, *(line for line in rest if line.endswith("\n"))][-1])


def readable(folder: Path) -> None:
    for file in published(folder):
        assert pq.read_table(file, partitioning=None).num_rows > 0


def test_killed_at_random_every_accepted_push_is_published_exactly_once(tmp_path: Path) -> None:
    rng = random.Random(714)
    accepted = recovered = 0
    rounds = 0
    while rounds < ROUNDS or accepted <= 1000:
        rounds += 1
        # A spool whose last commits were not on disk repeats these pushes.
        accepted = killed_run(tmp_path, max(0, accepted - rng.randrange(0, 200)), rng.uniform(0, 0.3))
        readable(tmp_path)
        recovered += len(journals(tmp_path))
    with started(tmp_path):
        pass
    assert recovered, "no run was killed with a journal that had to be recovered"
    found = numbers(tmp_path)
    # Pushes that the last run wrote when it was killed may be there too.
    assert found == list(range(len(found)))
    assert len(found) >= accepted
    assert sum(line["rows"] for line in {line["file"]: line for line in manifest(tmp_path)}.values()) == len(
        found
    )
    assert not list((tmp_path / "_journal").iterdir())
