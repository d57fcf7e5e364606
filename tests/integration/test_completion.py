"""Completion in real shells: a terminal, a line, and the Tab key."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from typing import Final

import pytest

from tests.integration.gateway.support import GatewaySidecar, Raw, api_versions, config, get_subscriptions
from tests.testbed.ports import free_port
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import ScriptedBroker

_PROGRAM: Final = "kafka-telemetry"
_WITHIN_S: Final = 120.0
#: A shell that evaluates a name creates a file of this name.
_TRAP: Final = "evaluated"

#: For each shell: how it starts, and the lines of its own start-up file.
_START: Final[Mapping[str, tuple[list[str], str]]] = {
    "bash": (
        ["--noprofile", "--rcfile", "RC", "-i"],
        "PS1='ready> '\nbind 'set enable-bracketed-paste off'\n",
    ),
    "zsh": (["-i"], "autoload -U compinit; compinit -u -D\nPS1='ready> '\nunsetopt zle_bracketed_paste\n"),
    "fish": (["--no-config", "-i", "-C", "source RC"], "function fish_prompt; echo 'ready> '; end\n"),
}

_CONTROL: Final = re.compile(
    r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>])|[\x00-\x09\x0b-\x1f]"
)


class Terminal:
    """A shell in a terminal of 200 columns."""

    def __init__(self, master: int) -> None:
        self._master = master
        self._seen = ""

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def shows(self, pattern: str) -> str:
        """Wait for a text, and return it; what stands before is forgotten.

        Raises:
            AssertionError: It does not come.
        """
        ends = time.monotonic() + _WITHIN_S
        while (found := re.search(pattern, self._seen)) is None:
            assert time.monotonic() < ends, f"no {pattern!r} in {self._seen!r}"
            if select.select([self._master], [], [], 0.2)[0]:
                self._seen += _CONTROL.sub("", os.read(self._master, 65_536).decode("utf-8", "replace"))
        self._seen = self._seen[found.end() :]
        return found[0]


@contextmanager
def terminal(shell: str, folder: Path, environment: Mapping[str, str]) -> Iterator[Terminal]:
    """Run a shell that has loaded the program's completion."""
    arguments, rc = _START[shell]
    script = subprocess.run(
        [_program(), "--show-completion", shell],
        env={**environment, "SHELL": f"/bin/{shell}", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=_WITHIN_S,
    ).stdout
    file = folder / (".zshrc" if shell == "zsh" else "rc")
    file.write_text(f"{rc}{script}\n")
    master, slave = pty.openpty()
    ioctl(slave, TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    process = subprocess.Popen(
        ["setsid", "--ctty", shell, *(argument.replace("RC", str(file)) for argument in arguments)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        env={**environment, "ZDOTDIR": str(folder), "TERM": "xterm"},
    )
    os.close(slave)
    try:
        yield Terminal(master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def _program() -> Path:
    return Path(sys.executable).with_name(_PROGRAM)


@pytest.fixture(scope="module")
def sidecar() -> Iterator[GatewaySidecar]:
    """A sidecar with subscriptions and clients, some of which have hostile names."""
    with ExitStack() as running:
        broker = running.enter_context(ScriptedBroker())
        sidecar = running.enter_context(GatewaySidecar(config(broker.port)))
        for name in ("producers", "only-this", f"x$(touch {_TRAP})", f"x`touch {_TRAP}`"):
            sidecar.put_subscription(name, ["x."], 3_600_000)
        for client_id in ("shop-one", f'shop"$(touch {_TRAP})\\$(touch {_TRAP})'):
            # A client that has not pushed is forgotten when its connection ends.
            client = running.enter_context(Raw(sidecar.port()))
            client.exchange(api_versions(3))
            wait_until(
                lambda client=client, name=client_id: _known(sidecar, client, name),  # type: ignore[misc]
                timeout_s=_WITHIN_S,
                what=client_id,
            )
        yield sidecar


def _known(sidecar: GatewaySidecar, client: Raw, client_id: str) -> bool:
    """Ask for subscriptions, and return whether the core has answered."""
    client.exchange(get_subscriptions(client_id=client_id))
    return client_id in [item["client_id"] for item in sidecar.clients()]


@pytest.mark.full
@pytest.mark.parametrize("shell", list(_START))
def test_tab_completes_names(shell: str, sidecar: GatewaySidecar, tmp_path: Path) -> None:
    if shutil.which(shell) is None or shutil.which("setsid") is None:
        pytest.skip(f"{shell} is not installed")
    environment = {
        **os.environ,
        "PATH": f"{_program().parent}{os.pathsep}{os.environ['PATH']}",
        "KAFKA_TELEMETRY_URL": sidecar.url,
        "HOME": str(tmp_path),
    }
    ids = [client["client_instance_id"] for client in sidecar.clients()]
    first = min(ids)
    with terminal(shell, tmp_path, environment) as shown:
        shown.shows("ready> ")
        for line, completed in (
            ("subscriptions show prod", "ucers"),
            ("subscriptions patch only", "-this"),
            ("subscriptions put a -m x --match client_rac", "k="),
            ("clients list --subscription prod", "ucers"),
            ("clients list --client-id shop", "-one"),
            ("clients list --state push", "ing"),
            (f"clients show {first[:6]}", re.escape(first[6:])),
        ):
            shown.type(f"{_PROGRAM} {line}")
            shown.shows(re.escape(line))
            shown.type("\t")
            shown.shows(completed)
            shown.type("\x15")  # the line is deleted
        # Everything is offered, and nothing evaluated.
        shown.type(f"{_PROGRAM} clients show \t\t")
        for client_id in sorted(ids):
            shown.shows(re.escape(client_id))
    assert not (tmp_path / _TRAP).exists()


@pytest.mark.full
def test_without_a_sidecar_nothing_is_offered_or_said(tmp_path: Path) -> None:
    for arguments in ("subscriptions show ", "clients show ", f"subscriptions show --ca-file {tmp_path} "):
        done = subprocess.run(
            [_program()],
            env={
                **os.environ,
                "_KAFKA_TELEMETRY_COMPLETE": "complete_fish",
                "_TYPER_COMPLETE_FISH_ACTION": "get-args",
                "_TYPER_COMPLETE_ARGS": f"kafka-telemetry {arguments}",
                "KAFKA_TELEMETRY_URL": f"http://127.0.0.1:{free_port()}",
                "KAFKA_TELEMETRY_TOKEN": "two words",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=_WITHIN_S,
        )
        assert (done.stdout.strip(), done.stderr) == ("", "")
