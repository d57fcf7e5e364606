"""The MCP server answers the SDK's own client with the documents of the REST API."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from receiver.telemetry.owners import Owner, Owners
from receiver.wire.uuid import uuid_to_text
from tests.testbed.ports import free_port
from tests.testbed.process import ChildProcess
from tests.unit.api.conftest import ask, connection, instance_id
from tests.unit.cli.conftest import Run, Sidecar

PROGRAM = Path(sys.executable).with_name("kafka-telemetry")


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    text = result.content[0].text  # type: ignore[union-attr]
    return text if result.is_error else json.loads(text)


@pytest.mark.full
def test_a_model_reads_clients_findings_and_usage(sidecar: Sidecar) -> None:
    sidecar.telemetry.owners = Owners(
        [Owner(team="pay", match={"principal": "User:pay"}, principals=("User:pay",))]
    )
    sidecar.warnings.append("a warning")
    sidecar.connections.append(connection(2))
    ask(sidecar.telemetry, 2, 1000.0)
    text = uuid_to_text(instance_id(2))
    arguments = ["mcp", "--url", sidecar.url, "--config", "receiver.yaml"]

    async def scenario() -> None:
        async with Client(StdioServerParameters(command=str(PROGRAM), args=arguments)) as client:
            tools = (await client.list_tools()).tools
            names = {"clients", "connections", "explain", "findings", "usage", "doctor"}
            assert {tool.name for tool in tools} == names
            assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
            (shown,) = (await call(client, "clients", owner="", client_id="orders"))["items"]
            assert (shown["client_instance_id"], shown["receiver"]) == (text, "subscriptions")
            groups = await call(client, "connections", by="client_id", order_by="-bytes_in")
            assert [group["client_id"] for group in groups["items"]] == ["orders"]
            assert (await call(client, "explain", client_instance_id=text))["client_id"] == "orders"
            found = await call(client, "findings")
            assert (found["warnings"], found["absent"]) == (["a warning"], {"pay": ["User:pay"]})
            assert [row["client_id"] for row in found["undeclared"]] == ["orders"]
            assert (await call(client, "usage", by="principal"))["items"] == []
            assert "is no regular expression" in await call(client, "clients", client_id="(")
            assert "unknown client instance" in await call(client, "explain", client_instance_id="A" * 22)
            assert (await call(client, "doctor"))["findings"]

    asyncio.run(scenario())


def test_http_needs_a_token(run: Run) -> None:
    refused = run("mcp", "--http", "127.0.0.1:8750")
    assert refused.exit_code == 2
    assert "--http-token-file" in refused.stderr
    several = run("mcp", "--url", "http://127.0.0.1:1", "--url", "http://127.0.0.1:2")
    assert (several.exit_code, "one --url" in several.stderr) == (2, True)


@pytest.mark.full
def test_a_model_reads_over_http_with_the_token(sidecar: Sidecar, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-the-tests\n")
    url = f"http://127.0.0.1:{(port := free_port())}/mcp"
    command: list[str | Path] = [PROGRAM, "mcp", "--url", sidecar.url, "--http", f"127.0.0.1:{port}"]
    server = ChildProcess(
        "mcp", [*command, "--http-token-file", token], log=tmp_path / "mcp.log", cwd=tmp_path
    )
    try:

        def answers() -> bool:
            try:
                return httpx.post(url, trust_env=False, timeout=60).status_code == 401
            except httpx.TransportError:
                return False

        server.wait_until_ready(answers, timeout_s=120)
        wrong = {"authorization": "Bearer another-token"}
        assert httpx.post(url, headers=wrong, trust_env=False, timeout=60).status_code == 401

        async def scenario() -> None:
            known = {"Authorization": "Bearer a-token-of-the-tests"}
            async with (
                httpx2.AsyncClient(headers=known, timeout=120, trust_env=False) as http,
                Client(streamable_http_client(url, http_client=http)) as client,
            ):
                assert (await call(client, "clients"))["items"] == []

        asyncio.run(scenario())
    finally:
        server.terminate()
