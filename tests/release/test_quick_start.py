"""The quick start word for word: from `pip install` to the first push of a client.

The page's commands run on a host of their own, so that its ports are free whatever runs here.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from markdown_it import MarkdownIt

from tests.release.conftest import TREE, Distributions
from tests.release.test_installed import CLEAN
from tests.testbed import jvm, kafka_tools, network, parts
from tests.testbed.broker import NODE_ID, SERVER_PROPERTIES
from tests.testbed.network import Host, Network
from tests.testbed.process import ChildProcess, wait_until

PAGE: Final = TREE / "docs" / "quick-start.md"
PRODUCER: Final = "kafka-console-producer.sh"


def blocks() -> dict[str, list[tuple[str, str]]]:
    """Return the page's blocks of code by heading: language and text."""
    found: dict[str, list[tuple[str, str]]] = {}
    heading = ""
    tokens = MarkdownIt("commonmark").parse(PAGE.read_text())
    for token, following in zip(tokens, [*tokens[1:], tokens[-1]], strict=True):
        if token.type == "heading_open":
            heading = following.content
        elif token.type == "fence":
            found.setdefault(heading, []).append((token.info, token.content))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Where a reader of the page works.

    Attributes:
        host: The machine.
        home: The home folder, which is the working folder after the installation.
        programs: Kafka's scripts.
    """

    host: Host
    home: Path
    programs: Path

    @property
    def environ(self) -> dict[str, str]:
        """The variables of the reader's shell, with the environment of the installation active."""
        path = os.pathsep.join(map(str, (self.home / "telemetry/bin", self.programs, CLEAN["PATH"])))
        return {**CLEAN, "HOME": str(self.home), "PATH": path}

    def shell(self, script: str, *, statuses: tuple[int, ...] = (0,)) -> str:
        """Run what the reader pastes, and return its output."""
        done = subprocess.run(
            self.host.command(["bash", "-euo", "pipefail", "-c", script]),
            cwd=self.home,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode in statuses, f"{script}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, name: str, script: str) -> ChildProcess:
        """Start what runs in a terminal of its own."""
        words = self.host.command(["env", "-i", *map("=".join, self.environ.items()), "bash", "-c", script])
        return ChildProcess(
            name, words, log=self.home / f"{name}.log", output=self.home / f"{name}.out", cwd=self.home
        )


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    if (problem := network.problem()) is not None:
        pytest.skip(problem)
    programs = tmp_path / "programs"
    programs.mkdir()
    tool = programs / PRODUCER
    tool.write_text(f'#!/bin/sh\nexec {shlex.join(kafka_tools.command(PRODUCER, []))} "$@"\n')
    tool.chmod(0o755)
    with Network() as hosts:
        yield Desk(host=hosts.host("quick-start"), home=tmp_path, programs=programs)


def start_broker(desk: Desk, properties: str) -> ChildProcess:
    """Start a broker with the page's properties."""
    folder = desk.home / "broker"
    shutil.copytree(parts.KAFKA_IMAGE.require() / "data", folder / "data")
    own = {
        **SERVER_PROPERTIES,
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:29094",
        "log.dirs": str(folder / "data"),
        # A busy machine is no reason to fence the only broker.
        "broker.session.timeout.ms": "120000",
    }
    file = folder / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in own.items()) + properties)
    words = desk.host.command(jvm.command("kafka.Kafka", file))
    broker = ChildProcess("broker", words, log=folder / "log", cwd=folder)
    broker.wait_until_ready(lambda: "Kafka Server started" in broker.log_text(), timeout_s=120)
    return broker


def test_the_page_leads_to_the_first_push(
    built: Distributions, desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    page = blocks()
    (_, properties), (_, configuration) = page["2. Configure"]
    broker = start_broker(desk, properties)
    started = time.monotonic()

    (_, install) = page["1. Install"][0]
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", install],
        cwd=built.unpacked,
        env={**CLEAN, "HOME": str(desk.home)},
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=900,
    )
    installed = time.monotonic()
    assert configuration.startswith("# receiver.yaml\n")
    (desk.home / "receiver.yaml").write_text(configuration)
    (_, commands) = page["3. Start"][0]
    check, serve = commands.splitlines()
    assert "good" in desk.shell(check)
    sidecar = desk.start("sidecar", serve)
    ready = "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8642/readyz"
    sidecar.wait_until_ready(lambda: desk.shell(ready, statuses=(0, 7)) == "200", timeout_s=120)

    (_, commands) = page["5. Run a client"][0]
    produce, show = commands.splitlines()
    # Before anything was asked for, one command says why nothing comes.
    (_, why) = page["5. Run a client"][1]
    client = desk.start("client", f"(echo record; exec sleep infinity) | {produce}")
    # The table shortens a long client id.
    client.wait_until_ready(lambda: "console-" in desk.shell(show), timeout_s=120)
    said = desk.shell(why, statuses=(1,))
    assert "there are none, so no client is asked for metrics" in said

    # The client that is there asks again after a minute, and needs no restart.
    (_, subscribe) = page["4. Subscribe"][0]
    desk.shell(subscribe)
    printed = desk.home / "sidecar.out"
    wait_until(
        lambda: "client_id=console-producer" in printed.read_text(), timeout_s=300, what="a push's line"
    )
    took, whole = installed - started, time.monotonic() - started
    for process in (client, sidecar, broker):
        process.kill()
    with capsys.disabled():
        sys.stdout.write(
            f"\nfrom `pip install` to the first push: {whole:.0f} s, of which pip {took:.0f} s\n"
        )
