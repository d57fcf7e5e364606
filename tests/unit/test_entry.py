"""As process 1, to which the kernel sends only signals that it catches, a command ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.testbed.process import wait_until

PROGRAM = Path(sys.executable).with_name("kafka-telemetry")
TIMEOUT_S = 60.0
#: The status that a shell gives a program that SIGTERM has killed.
ENDED = 128 + signal.SIGTERM

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root here")


@contextmanager
def unshared(*command: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command as process 1; yield ``unshare``, whose status is the same."""
    within = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *command]
    with subprocess.Popen(within, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as unshare:
        try:
            yield unshare
        finally:
            unshare.kill()


@contextmanager
def process_1(*command: str | Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """As :func:`unshared`; yield the id of process 1 too, as it is here."""
    with unshared(*command) as unshare:
        children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
        wait_until(lambda: children.read_text() != "", timeout_s=TIMEOUT_S, what="process 1")
        yield unshare, int(children.read_text())


def catches_sigterm(pid: int) -> bool:
    """Whether a process has a handler: bits count from 0, signals from 1 (proc(5))."""
    fields = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(fields["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("closed", ["2>&-", "0<&- 1>&- 2>&-"])
def test_no_file_takes_the_place_of_a_closed_stream(closed: str, tmp_path: Path) -> None:
    """Or it would get the log."""
    places = tmp_path / "places"
    program = (
        "import os, pathlib; from receiver import entry; entry.open_standard_streams(); "
        "places = [os.readlink(f'/proc/self/fd/{number}') for number in range(3)]; "
        f"pathlib.Path({str(places)!r}).write_text(' '.join(places))"
    )
    subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, program],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    assert places.read_text() == "/dev/null /dev/null /dev/null"


def test_the_handler_comes_before_the_imports() -> None:
    program = (
        "import sys; before = set(sys.modules); import receiver.entry; print(*set(sys.modules) - before)"
    )
    imported = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert {name for name in imported.split() if name.startswith("receiver")} == {
        "receiver",
        "receiver.entry",
        "receiver.importing",
    }
    assert not {"typer", "pydantic", "asyncio"} & set(imported.split())


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration that nobody writes, so that no command gets past it."""
    os.mkfifo(tmp_path / "config.yaml")
    return tmp_path / "config.yaml"


each_command = pytest.mark.parametrize("command", [("serve",), ("rollup", "run")])


@needs_root
@each_command
def test_before_python_runs(config: Path, command: tuple[str, ...]) -> None:
    signalled: list[str | Path] = [
        "sh",
        "-c",
        'kill -TERM $$; exec "$@"',
        "sh",
        PROGRAM,
        *command,
        "--config",
        config,
    ]
    with unshared("env", "--block-signal=TERM", *signalled) as unshare:  # as in the images
        assert unshare.wait(TIMEOUT_S) == ENDED


@needs_root
@each_command
def test_before_the_imports(config: Path, command: tuple[str, ...]) -> None:
    with process_1(PROGRAM, *command, "--config", config) as (unshare, pid):
        wait_until(lambda: catches_sigterm(pid), timeout_s=TIMEOUT_S, what="a handler")
        os.kill(pid, signal.SIGTERM)
        assert unshare.wait(TIMEOUT_S) == ENDED


@needs_root
@each_command
def test_while_it_reads_its_settings(config: Path, command: tuple[str, ...]) -> None:
    with process_1(PROGRAM, *command, "--config", config) as (unshare, pid), config.open("wb"):
        # Python looks for signals before it reads. One that comes in between is seen after the
        # read, which only a file that nobody writes makes long, so another one follows.
        for _ in range(10):
            os.kill(pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                unshare.wait(TIMEOUT_S / 10)
                break
        assert unshare.wait(TIMEOUT_S) == ENDED
