"""The console in a real browser, on a made-up fleet, and its types.

The scenarios are in ``scenarios.mjs``. What depends on the machine, such as frames a second, is
printed and not judged.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from receiver.api import console
from receiver.api.cluster import Cluster
from receiver.cluster.members import Members
from receiver.cluster.rollup import Rollup
from receiver.settings.cluster import ClusterSettings
from receiver.settings.rollup import RollupSettings
from spark_streaming.findings.answers import FindingFilter
from spark_streaming.metrics import MetricsServer, RollupMetrics
from tests.console.fleet import FINDINGS, bridge, fleet, populate
from tests.testbed import parts
from tests.testbed.network import apart
from tests.unit.api.conftest import Api

HERE = Path(__file__).parent
CONSOLE = Path(console.__file__).parent


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages, and what the tests run with them."""
    folder = tmp_path_factory.mktemp("console")
    (folder / "node_modules").symlink_to(parts.CONSOLE.require() / "node_modules")
    shutil.copy(HERE / "scenarios.mjs", folder)
    shutil.copy(HERE / "tsconfig.json", folder)
    return folder


def type_errors(folder: Path) -> str:
    compiler = folder / "node_modules" / "typescript" / "bin" / "tsc"
    command = ["node", str(compiler), "--project", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False).stdout


def test_its_types_fit_the_rest_documents(tools: Path) -> None:
    for name in ("assets", "types"):
        shutil.copytree(CONSOLE / name, tools / name)
    assert type_errors(tools) == ""
    wrong = tools / "assets" / "wrong.js"
    wrong.write_text(
        "/** @param {import('../types/rest').ClientView} client */\n"
        "export const wrong = (client) => client.absent;\n"
    )
    found = type_errors(tools)
    assert re.search(r"wrong\.js\(2,\d+\): error TS2339", found), found


@asynccontextmanager
async def with_dead_member(api: Api) -> AsyncIterator[None]:
    """Name a second receiver of the cluster, at a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = ClusterSettings.model_validate({"members": [f"http://127.0.0.1:{port}"]})
    members = Members(settings, "receiver-1")
    api.cluster = Cluster(receiver_id="receiver-1", members=members)
    try:
        yield
    finally:
        await members.close()


@asynccontextmanager
async def with_rollup(api: Api, clock: Callable[[], float] = time.monotonic) -> AsyncIterator[None]:
    """Name a roll-up, with the findings of the fleet."""
    with MetricsServer("127.0.0.1", 0, RollupMetrics()) as server:

        def answer(wanted: FindingFilter) -> list[dict[str, Any]]:
            return [
                item
                for item in FINDINGS
                if wanted.selects([(item["client_id"], item["principal"], None, None)])
            ]

        server.findings = answer
        settings = RollupSettings(
            url=f"http://127.0.0.1:{server.port}", connect_timeout_ms=10_000, timeout_ms=20_000
        )
        api.rollup = Rollup(settings, clock)
        try:
            yield
        finally:
            await api.rollup.close()


def cost(begin: tuple[float, float], end: tuple[float, float]) -> str:
    """What the receiver's process used between two readings of its CPU time and the clock."""
    share = (end[0] - begin[0]) / (end[1] - begin[1])
    return f"the receiver uses {100 * share:.2f} % of a core\n"


@pytest.mark.parametrize(
    ("scenario", "clients", "guarded"),
    [
        ("pages", 30, False),
        ("empty", 0, False),
        ("many", 5_000, False),
        ("hostile", 30, False),
        ("login", 30, True),
        ("editor", 30, False),
        ("stale", 30, False),
        ("cluster", 30, False),
        ("culprit", 30, False),
        pytest.param("bridge", 1, False, marks=pytest.mark.full),
        pytest.param("ten", 5_000, False, marks=pytest.mark.full),
    ],
)
def test_a_scenario(tools: Path, tmp_path: Path, scenario: str, clients: int, guarded: bool) -> None:
    chromium = shutil.which("chromium")
    assert chromium is not None

    async def run() -> tuple[int | None, str]:
        api = fleet(tmp_path, clients, guarded=guarded)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(with_dead_member(api))
            if scenario == "culprit":
                await stack.enter_async_context(with_rollup(api))
            server = await stack.enter_async_context(api.serving())
            populate(api, clients)
            if scenario == "bridge":
                bridge(api)
            process = await asyncio.create_subprocess_exec(
                "node",
                "scenarios.mjs",
                scenario,
                f"http://{server.address}",
                chromium,
                cwd=tools,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            assert process.stdout is not None
            output, spent = "", {}
            async for line in process.stdout:
                output += line.decode()
                spent[line.decode().strip()] = time.process_time(), time.monotonic()
            if "measured" in spent:
                output += cost(spent["open"], spent["measured"])
            return await process.wait(), output

    status, output = apart(lambda: asyncio.run(run()))
    sys.stdout.write(output)
    assert status == 0, output
