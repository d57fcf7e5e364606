"""Process 1 and its keeper start what dies again, and end when that does not help.

The roll-up's process 1 starts its program once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from spark_streaming import process_1
from tests.images import dockerfile
from tests.images.test_files import IMAGES
from tests.testbed.process import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root here")

TIMEOUT_S = 120.0
#: A supervisor that writes a line at each start, and then does what the test says.
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from receiver.process_1 import in_keeper, start_keeper, start_supervisor
from spark_streaming import process_1

process_1.FIRST_DELAY_S = 0.0
start_keeper()
print("imports", flush=True)
assert in_keeper()
start_supervisor()
assert not in_keeper()
signal.signal(signal.SIGHUP, lambda *_: print("SIGHUP", flush=True))
print(process_1.restarts(), flush=True)
exec(sys.argv[1])
"""
STAYS = "time.sleep(600)"


@contextmanager
def started(does: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the program as process 1; what it prints is in ``log``."""
    with unshared("env", "--block-signal=TERM", sys.executable, "-c", PROGRAM, does, log=log) as unshare:
        yield unshare


@contextmanager
def unshared(*command: str | Path, log: Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command as process 1; what it prints is in ``log``."""
    within = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *command]
    with (
        log.open("wb") as file,
        subprocess.Popen(within, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **env}) as unshare,
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
    says = "from spark_streaming import process_1; process_1._say('x' * 100_000); print('went on')"
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


# -- The roll-up's process 1 -----------------------------------------------------------------------

ROLLUP = IMAGES / "rollup"


def rollup(*arguments: str, log: Path, **env: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Run the roll-up's image's entry point as process 1, with the programs of these tests."""
    (entry,) = [item for item in dockerfile.read(ROLLUP / "Dockerfile") if item.name == "ENTRYPOINT"]
    *words, script = entry.words
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return unshared(*words, ROLLUP / f"{script}.sh", *arguments, log=log, PATH=path, **env)


@pytest.mark.parametrize(
    ("variable", "file", "arguments"),
    [
        ("BASH_ENV", "", ["rollup", "run"]),
        # What Spark's own scripts read before they start Java.
        ("SPARK_CONF_DIR", "spark-env.sh", ["spark-submit", "--version"]),
    ],
)
def test_sigterm_ends_the_roll_up_while_its_scripts_start_it(
    variable: str, file: str, arguments: list[str], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "never")
    script = tmp_path / (file or "environment.sh")
    script.write_text(f"echo starts\nread -r _ <{tmp_path}/never\n")
    log = tmp_path / "log"
    with rollup(*arguments, log=log, **{variable: str(tmp_path if file else script)}) as unshare:
        wait_for("starts", log)
        os.kill(child_of(unshare.pid), signal.SIGTERM)
        assert unshare.wait(TIMEOUT_S) == 128 + signal.SIGTERM


def test_the_roll_ups_process_1_loses_no_sigterm_of_its_first_moment(tmp_path: Path) -> None:
    signalled = ["env", "--block-signal=TERM", "sh", "-c", 'kill -TERM $$; exec "$@"', "sh"]
    program = [sys.executable, "-I", "-m", "spark_streaming.process_1", "sleep", "600"]
    with unshared(*signalled, *program, log=tmp_path / "log") as unshare:
        assert unshare.wait(TIMEOUT_S) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("program", "status", "says"),
    [
        (["sh", "-c", "exit 3"], 3, ""),
        (["sh", "-c", "kill -KILL $$"], 137, "the program died: killed by SIGKILL; process 1 ends"),
        (["no-such-program"], 127, "no-such-program: No such file or directory"),
        (["/"], 126, "/: Permission denied"),
        ([], 2, "process 1 needs a program to start: name it, and its arguments"),
    ],
)
def test_the_roll_ups_process_1_ends_with_its_program(
    program: list[str], status: int, says: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-I", "-m", "spark_streaming.process_1", *program]
    with unshared(*command, log=tmp_path / "log") as unshare:
        assert unshare.wait(TIMEOUT_S) == status
    assert (tmp_path / "log").read_text() == (f"kafka-telemetry: {says}\n" if says else "")


def test_the_roll_ups_process_1_reaps_orphans(tmp_path: Path) -> None:
    log = tmp_path / "log"
    # The inner shell ends before its child, which then belongs to process 1.
    leaves = "sh -c 'sleep 0.1 & echo left'; exec sleep 600"
    command = [sys.executable, "-I", "-m", "spark_streaming.process_1", "sh", "-c", leaves]
    with unshared(*command, log=log) as unshare:
        wait_for("left", log)
        process = child_of(unshare.pid)
        children = Path(f"/proc/{process}/task/{process}/children")
        program = min(children.read_text().split(), key=int)
        wait_until(
            lambda: children.read_text().split() == [program],
            timeout_s=TIMEOUT_S,
            what="the end of the orphan",
        )
        assert not Path(f"/proc/{program}/task/{program}/children").read_text()
