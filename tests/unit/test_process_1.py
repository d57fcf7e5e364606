"""Process 1 and its keeper start what dies again, and end when that does not help."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from receiver import process_1
from tests.testbed.process import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root here")

TIMEOUT_S = 120.0
#: A supervisor that writes a line at each start, and then does what the test says.
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from receiver import process_1

process_1.FIRST_DELAY_S = 0.0
process_1.start_keeper()
print("imports", flush=True)
assert process_1.in_keeper()
process_1.start_supervisor()
assert not process_1.in_keeper()
signal.signal(signal.SIGHUP, lambda *_: print("SIGHUP", flush=True))
print(process_1.restarts(), flush=True)
exec(sys.argv[1])
"""
STAYS = "time.sleep(600)"


@contextmanager
def started(does: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the program as process 1; what it prints is in ``log``."""
    within = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = [*within, "env", "--block-signal=TERM", sys.executable, "-c", PROGRAM, does]
    with (
        log.open("wb") as file,
        subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT) as unshare,
    ):
        try:
            yield unshare
        finally:
            unshare.kill()


def child_of(pid: int) -> int:
    """The only child of a process, once it has one."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    wait_until(lambda: len(children.read_text().split()) == 1, timeout_s=TIMEOUT_S, what=f"a child of {pid}")
    return int(children.read_text())


def keeper_of(unshare: subprocess.Popen[bytes]) -> int:
    """The keeper: the child of process 1, which is the child of ``unshare``."""
    return child_of(child_of(unshare.pid))


def lines_of(log: Path, wanted: str) -> list[str]:
    """The lines that are a text, or numbers with ``number``."""
    lines = log.read_text().splitlines()
    return [line for line in lines if (line.isdigit() if wanted == "number" else line == wanted)]


def wait_for(line: str, log: Path) -> None:
    """Wait until a line was printed."""
    wait_until(lambda: line in log.read_text().splitlines(), timeout_s=TIMEOUT_S, what=f"the line {line!r}")


def test_it_is_started_again_however_it_dies(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with started(STAYS, log) as unshare:
        process = child_of(unshare.pid)
        keeper = child_of(process)
        for death in range(4):
            wait_for(str(death), log)
            os.kill(child_of(keeper), signal.SIGKILL if death % 2 else signal.SIGSEGV)
        wait_for("4", log)
        os.kill(process, signal.SIGTERM)
        assert unshare.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    assert "kafka-telemetry: the supervisor died: killed by SIGSEGV; it is started again in 0 s" in (
        log.read_text()
    )
    assert lines_of(log, "imports") == ["imports"]


def test_the_keeper_is_started_again_and_takes_the_supervisor_with_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with started(STAYS, log) as unshare:
        process = child_of(unshare.pid)
        for death in range(3):
            wait_for(str(death), log)
            keeper = child_of(process)
            supervisor = Path(f"/proc/{child_of(keeper)}")
            os.kill(keeper, signal.SIGKILL)
            wait_until(lambda: not supervisor.exists(), timeout_s=TIMEOUT_S, what="its end")  # noqa: B023
        wait_for("3", log)
        os.kill(process, signal.SIGTERM)
        assert unshare.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    assert "kafka-telemetry: the keeper died: killed by SIGKILL; it is started again in 0 s" in (
        log.read_text()
    )


@pytest.mark.parametrize("status", [0, 2])
def test_it_ends_with_a_drain_and_with_a_wrong_configuration(status: int, tmp_path: Path) -> None:
    with started(f"os._exit({status})", tmp_path / "log") as unshare:
        assert unshare.wait(TIMEOUT_S) == status
    assert (tmp_path / "log").read_text() == "imports\n0\n"


@pytest.mark.parametrize(
    ("does", "status"), [("os._exit(1)", 1), ("os.kill(os.getpid(), signal.SIGKILL)", 137)]
)
def test_it_ends_when_no_start_lasts(does: str, status: int, tmp_path: Path) -> None:
    with started(does, tmp_path / "log") as unshare:
        assert unshare.wait(TIMEOUT_S) == status
    log = tmp_path / "log"
    assert lines_of(log, "number") == [str(number) for number in range(process_1.MAX_DEATHS)]
    assert "10 times in a row" in log.read_text().splitlines()[-1]


def test_signals_reach_the_supervisor(tmp_path: Path) -> None:
    log = tmp_path / "log"
    drains = "signal.signal(signal.SIGTERM, lambda *_: os._exit(5)); print('waits', flush=True);" + STAYS
    with started(drains, log) as unshare:
        wait_for("waits", log)
        process = child_of(unshare.pid)
        os.kill(process, signal.SIGHUP)
        wait_for("SIGHUP", log)
        os.kill(process, signal.SIGTERM)
        assert unshare.wait(TIMEOUT_S) == 5


def test_orphans_are_reaped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    # Its child ends before its grandchild, which then belongs to the keeper.
    leaves = "os.fork() or (os.fork() and os._exit(0) or time.sleep(0.1) or os._exit(0)); os.wait();"
    with started(leaves + "print('left', flush=True);" + STAYS, log) as unshare:
        wait_for("left", log)
        keeper = keeper_of(unshare)
        children = Path(f"/proc/{keeper}/task/{keeper}/children")
        supervisor = min(children.read_text().split(), key=int)
        wait_until(
            lambda: children.read_text().split() == [supervisor],
            timeout_s=TIMEOUT_S,
            what="the end of the orphan",
        )


@pytest.mark.parametrize("keeper_dies", [False, True])
def test_a_new_start_waits_for_the_sockets_of_the_one_before(keeper_dies: bool, tmp_path: Path) -> None:
    # As the supervisor's processes, the child dies with its parent, and holds a socket until then.
    binds = """
import ctypes, socket
bound = socket.socket(socket.AF_UNIX)
bound.bind("\\0NAME")  # abstract: it is free again when nobody holds it
reads, writes = os.pipe()
if not os.fork():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    os.write(writes, b".")
    time.sleep(600)
os.read(reads, 1)  # a death before the child asks for its own would leave it, with the socket
print("bound", process_1.restarts(), flush=True)
time.sleep(600)
"""
    log = tmp_path / "log"
    with started(binds.replace("NAME", str(tmp_path)), log) as unshare:
        process = child_of(unshare.pid)
        for death in range(5):
            wait_for(f"bound {death}", log)
            parent = process if keeper_dies else child_of(process)
            children = Path(f"/proc/{parent}/task/{parent}/children")
            os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
        wait_for("bound 5", log)


def test_a_line_of_process_1_waits_for_no_reader() -> None:
    # The pipe has room for a page, and the line needs more: as if another process took the room.
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(4096))
    os.set_blocking(writing, True)
    os.read(reading, 4096)
    says = "from receiver import process_1; process_1._say('x' * 100_000); print('went on')"
    with subprocess.Popen([sys.executable, "-c", says], stdout=subprocess.PIPE, stderr=writing) as child:
        out, _ = child.communicate(timeout=TIMEOUT_S)
    os.close(reading)
    os.close(writing)
    assert (out, child.returncode) == (b"went on\n", 0)


def test_the_delays_grow_and_end() -> None:
    deaths = process_1.Deaths()
    assert [deaths.add(0.0) for _ in range(10)] == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, None]
    lasting = process_1.Deaths()
    assert [lasting.add(process_1.STABLE_S) for _ in range(20)] == [0.0] * 20
    assert lasting.total == 20
