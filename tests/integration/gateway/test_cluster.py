"""Three receivers of a cluster: each answers for all, through a death, a restart and a reload."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.gateway.support import (
    TIMEOUT_S,
    GatewaySidecar,
    Raw,
    api_versions,
    config,
    get_subscriptions,
    read_get,
)
from tests.testbed.ports import free_port
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import ScriptedBroker

pytestmark = pytest.mark.full

Page = Mapping[str, Any]


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


def listed(sidecar: GatewaySidecar, path: str, **query: str) -> Page:
    response = sidecar.http.get(path, params={"scope": "cluster", "limit": 1000, **query})
    response.raise_for_status()
    found: Page = response.json()
    return found


def ids(page: Page) -> set[str]:
    return {item["client_id"] for item in page["items"]}


def missing(page: Page) -> dict[str, str]:
    return {member["url"]: member["problem"] for member in page["members"] if not member["answered"]}


def command(*arguments: str) -> tuple[int, str, str]:
    program = Path(sys.executable).with_name("kafka-telemetry")
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_each_of_three_receivers_answers_for_all(broker: ScriptedBroker, tmp_path: Path) -> None:
    ports = [free_port() for _ in range(3)]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    cluster = {"members": urls, "connect_timeout_ms": 10_000, "timeout_ms": 20_000}
    (tmp_path / "pay.yaml").write_text('{match: {client_id: "client-1"}, expected: {principals: ["User:x"]}}')
    with ExitStack() as running:
        sidecars = []
        for port in ports:
            settings = config(broker.port, cluster=cluster, owners={"path": str(tmp_path)})
            settings["rest"]["bind"] = f"127.0.0.1:{port}"
            sidecars.append(running.enter_context(GatewaySidecar(settings)))
        raws = []
        for number, sidecar in enumerate(sidecars):
            for _ in range(2):
                raw = running.enter_context(Raw(sidecar.port()))
                raw.exchange(api_versions(3, client_id=f"client-{number}"))
                read_get(raw.exchange(get_subscriptions(client_id=f"client-{number}")))
                raws.append(raw)
        everybody = {"client-0", "client-1", "client-2"}
        for sidecar in sidecars:
            for path, count in (("/v1/connections", 6), ("/v1/clients", 6)):
                page = listed(sidecar, path)
                assert ids(page) == everybody
                assert (len(page["items"]), missing(page)) == (count, {})
                assert sum(member["itself"] for member in page["members"]) == 1
            assert ids(listed(sidecar, "/v1/connections", owner="pay")) == {"client-1"}
            (owner,) = listed(sidecar, "/v1/owners")["items"]
            assert (owner["connections"], owner["absent"]) == (2, ["User:x"])

        first, _, last = sidecars
        last.kill()
        page = listed(first, "/v1/connections", limit="2")
        items = list(page["items"])
        while page["next"] is not None:
            page = listed(first, "/v1/connections", limit="2", after=page["next"])
            items += page["items"]
        assert {item["client_id"] for item in items} == everybody - {"client-2"}
        assert missing(page) == {urls[2]: "nothing listens there"}
        status, shown, told = command("connections", "-o", "json", "--url", urls[0])
        assert (status, len(json.loads(shown))) == (1, 4)
        assert f"without {urls[2]}: nothing listens there" in told

        last.start()
        wait_until(lambda: not missing(listed(first, "/v1/clients")), timeout_s=TIMEOUT_S, what="its answer")
        last.kill()
        settings = dict(first.config)
        settings["cluster"] = {**cluster, "members": urls[:2]}
        del settings["owners"]
        first.config = settings
        first.reload()
        first.awaited("configuration reloaded")
        page = listed(first, "/v1/connections")
        assert not missing(page)
        assert ids(page) == everybody - {"client-2"}
        assert {item["owner"] for item in page["items"] if item["client_id"] == "client-0"} == {None}
        assert not first.http.get("/v1/owners").json()["items"]
