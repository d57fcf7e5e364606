"""The log's stream: it neither waits nor fails, and says what it dropped."""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import plugins
import receiver
import spark_streaming
from spark_streaming.log_writer import LogWriter
from tests.unit.finalizers import at_every_line

#: Files that may name the streams: the writer, the commands of people, the child's own channel, and
#: the plugin whose purpose is to print.
_MAY_WRITE = (
    "spark_streaming/log_writer.py",
    "receiver/cli/",
    "receiver/catalogue/__main__.py",
    "plugins/console/",
    "spark_streaming/cli.py",
    "spark_streaming/jars.py",
)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe: where to read, and where to write.

    A writer goes on trying for ever. So its end stays open, or it would write into another's file.
    """
    reading, writing = os.pipe()
    yield reading, writing
    with contextlib.suppress(OSError):
        os.close(reading)


def read_until(reading: int, text: bytes) -> bytes:
    found = b""
    while text not in found:
        found += os.read(reading, 65_536)
    return found


def test_lines_arrive_whole_and_in_order(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    log = LogWriter(writing)
    for number in range(100):
        log.write(f"line {number}\n")
    log.write("in ")
    log.write("pieces\nand more")
    assert read_until(reading, b"pieces\n").decode().splitlines() == [
        *(f"line {number}" for number in range(100)),
        "in pieces",
    ]
    log.finish()
    assert read_until(reading, b"\n") == b"and more\n"


#: Writes a thousand lines to a standard error that nobody reads, and says how many it dropped.
_CHILD = """
import sys
from spark_streaming import log_writer

writer = log_writer.install()
for _ in range(1_000):
    print("x" * 9_999, file=sys.stderr)
print(writer.dropped, flush=True)
sys.stdin.readline()
writer.finish(120)
print("more", file=sys.stderr)
writer.finish(120)
"""


def test_a_pipe_that_nobody_reads_delays_nobody() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        # Ten megabytes: one waits, and a pipe holds one at most.
        dropped = int(child.stdout.readline())
        assert dropped > 700
        _, text = child.communicate("\n")
    lines = text.splitlines()
    said = [int(line.rpartition(": ")[2]) for line in lines if line.startswith("log lines dropped because")]
    assert lines.count("x" * 9_999) == 1_000 - dropped
    assert sum(said) == dropped
    assert lines[-1] == "more"


@pytest.mark.parametrize("failure", ["reader gone", "disk full"])
def test_an_error_reaches_nobody(pipe: tuple[int, int], failure: str) -> None:
    reading, writing = pipe
    if failure == "reader gone":
        os.close(reading)
    else:
        writing = os.open("/dev/full", os.O_WRONLY)
    log = LogWriter(writing, max_bytes=1_000)
    for _ in range(100):
        log.write("line of the log\n")
    assert log.dropped > 0
    log.finish(seconds=0.01)
    log.flush()


#: Configures the roll-up's log on a full disk, as `rollup run` does, and logs what a batch does.
_ROLLUP = """
import structlog
from spark_streaming import cli
from spark_streaming.settings import RollupSettings

cli._log_in_thread(RollupSettings())
structlog.get_logger().info("batch", number=1)
print("went on")
"""


def test_a_full_disk_of_the_log_fails_no_batch() -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123 -- a descriptor
        done = subprocess.run(
            [sys.executable, "-c", _ROLLUP], stdout=subprocess.PIPE, stderr=full, check=False
        )
    assert (done.stdout, done.returncode) == (b"went on\n", 0)


def test_a_child_writes_its_own_lines_alone(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    log = LogWriter(writing)
    log.write("unfinished of the parent")
    child = os.fork()
    if not child:
        log.write("of the child\n")
        log.finish(60)
        os._exit(0)
    os.waitpid(child, 0)
    log.write("\n")
    assert read_until(reading, b"parent\n") == b"of the child\nunfinished of the parent\n"
    assert threading.active_count() >= 2


def test_a_finalizer_may_log_in_the_middle_of_a_line(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    log = LogWriter(writing)
    numbers = iter(range(2_000))

    def finalizer() -> None:
        if (number := next(numbers, None)) is not None:
            log.write(f"finalizer {number}\n")

    trace = at_every_line("log_writer.py", finalizer)

    def run() -> None:
        sys.settrace(trace)
        for number in range(50):
            log.write(f"line {number}\n")
        sys.settrace(None)
        log.finish(120)

    threading.settrace(trace)
    try:
        caller = threading.Thread(target=run, daemon=True)
        caller.start()
        found = b""
        while found.count(b"\n") < 2_050:
            assert select.select([reading], [], [], 120)[0]
            found += os.read(reading, 65_536)
        caller.join(120)
    finally:
        threading.settrace(None)
    assert not caller.is_alive()
    lines = found.decode().splitlines()
    own = [f"line {number}" for number in range(50)]
    assert [line for line in lines if line.startswith("line")] == own
    assert sorted(lines) == sorted([*own, *(f"finalizer {number}" for number in range(2_000))])
    assert log._bytes == 0


def test_a_line_without_an_end_is_bounded() -> None:
    log = LogWriter(os.open("/dev/full", os.O_WRONLY), max_bytes=1_000)
    for _ in range(100):
        log.write("x" * 99)
    assert log.dropped == 9
    assert len(log._partial) <= 1_000


def test_nothing_else_writes_to_the_streams() -> None:
    pattern = re.compile(r"sys\.(__)?std(err|out)|StreamHandler|\bprint\(|PrintLogger|typer\.echo")
    wrong = [
        f"{path.relative_to(root)}:{number}"
        for package in (receiver, plugins, spark_streaming)
        for root in [Path(package.__file__ or "").parents[1]]
        for path in sorted(Path(package.__file__ or "").parent.rglob("*.py"))
        if not str(path.relative_to(root)).startswith(_MAY_WRITE)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if pattern.search(line) and "flush()" not in line
    ]
    assert [
        place for place in wrong if not place.startswith(("receiver/log.py", "spark_streaming/log.py"))
    ] == []
