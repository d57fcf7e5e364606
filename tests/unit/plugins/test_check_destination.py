"""Each plugin type proves its destination, and changes nothing there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from receiver.host.discovery import load_plugins
from receiver.plugin import ClientTelemetryReceiver, ExportError, RetryableError
from tests.testbed.ports import free_port
from tests.unit.plugins.destinations import GrpcDestination, HttpDestination, Reply

TIMEOUT_S = 30.0


def plugin(**entry: Any) -> ClientTelemetryReceiver:
    (hosted,) = load_plugins([entry])
    return hosted.plugin


def nowhere() -> str:
    return f"127.0.0.1:{free_port()}"


def test_otlp_over_grpc_exports_nothing(grpc_server: GrpcDestination) -> None:
    endpoint = f"http://127.0.0.1:{grpc_server.port}"
    checked = plugin(type="otlp", endpoint=endpoint, headers={"x-key": "v"})
    assert checked.check_destination(TIMEOUT_S) == f"{endpoint}: takes OTLP over grpc"
    assert grpc_server.bodies == [b""]
    assert grpc_server.metadata[0]["x-key"] == "v"


def test_each_endpoint_of_otlp_is_checked(http_server: HttpDestination) -> None:
    good, bad = f"http://127.0.0.1:{http_server.port}", f"http://{nowhere()}"
    checked = plugin(type="otlp", protocol="http", endpoints=[good, bad])
    with pytest.raises(RetryableError, match=f"^{bad}: "):
        checked.check_destination(TIMEOUT_S)
    assert (http_server.bodies, http_server.paths) == ([b""], ["/v1/metrics"])


def test_a_refused_token_is_told_without_the_token(http_server: HttpDestination) -> None:
    http_server.answer = lambda body: Reply(401, b"bad token: hush-hush", {"content-type": "text/plain"})
    endpoint = f"http://127.0.0.1:{http_server.port}"
    checked = plugin(type="otlp", protocol="http", endpoint=endpoint, headers={"authorization": "hush-hush"})
    with pytest.raises(RetryableError, match="HTTP 401") as refused:
        checked.check_destination(TIMEOUT_S)
    assert "hush-hush" not in str(refused.value)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_prometheus_writes_no_sample(http_server: HttpDestination, version: str) -> None:
    url = f"http://127.0.0.1:{http_server.port}/api/v1/write"
    http_server.answer = lambda body: Reply(headers={"x-prometheus-remote-write-samples-written": "0"})
    checked = plugin(type="prometheus", remote_write={"url": url, "version": version})
    assert checked.check_destination(TIMEOUT_S) == f"{url}: takes remote write {version}"
    assert len(http_server.bodies) == 1
    http_server.answer = lambda body: Reply(503)
    with pytest.raises(RetryableError, match=f"^{url}: "):
        checked.check_destination(TIMEOUT_S)


def test_prometheus_is_only_scraped() -> None:
    bind = nowhere()
    assert plugin(type="prometheus", bind=bind).check_destination(TIMEOUT_S) == f"is scraped at {bind}"


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "kafka_topic", "topic": "t", "bootstrap_servers": None},
        {"type": "prometheus", "remote_write": None},
        {"type": "otlp", "endpoint": None},
    ],
    ids=lambda entry: str(entry["type"]),
)
def test_a_destination_that_is_away(entry: Mapping[str, Any]) -> None:
    address = nowhere()
    given = {
        "bootstrap_servers": address,
        "remote_write": {"url": f"http://{address}/write"},
        "endpoint": f"http://{address}",
    }
    checked = plugin(**{key: given.get(key, value) for key, value in entry.items()})
    with pytest.raises(RetryableError, match=address):
        checked.check_destination(0.5)


def test_spool_files_looks_at_its_folder_and_creates_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "telemetry"
    assert (
        plugin(type="spool_files", path=str(folder)).check_destination(TIMEOUT_S)
        == f"{folder}: can be written"
    )
    assert list(tmp_path.iterdir()) == []
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ExportError, match=f"{file} is no folder"):
        plugin(type="spool_files", path=str(file / "telemetry")).check_destination(TIMEOUT_S)
    if os.geteuid() != 0:  # root may write anywhere
        tmp_path.chmod(0o500)
        with pytest.raises(ExportError, match="this user can't write"):
            plugin(type="spool_files", path=str(folder)).check_destination(TIMEOUT_S)


def test_console_always_works_and_others_may_prove_nothing() -> None:
    checked = plugin(type="console")
    assert checked.check_destination(TIMEOUT_S) == "prints on stdout"
    assert ClientTelemetryReceiver.check_destination(checked, TIMEOUT_S) is None
