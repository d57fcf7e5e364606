"""Findings reach each Alertmanager, from a real PostgreSQL."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from spark_streaming.alertmanager import Alertmanager, AlertmanagerError
from spark_streaming.postgres import FindingReader
from spark_streaming.settings import AlertmanagerSettings
from tests.integration.rollup.findings.fleet import SETTINGS, Fleet
from tests.testbed.ports import free_port

TOKEN = "a-token-of-sixteen-letters"


class Web(ThreadingHTTPServer):
    """Keeps what is posted to it, with its path and its login."""

    def __init__(self, status: int) -> None:
        self.posted: list[tuple[str, str | None, Any]] = []
        self.status = status
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Web

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.posted.append((self.path, self.headers["authorization"], body))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(b"no\nroom" if self.server.status >= 400 else b"")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # http.server's own name
        """Log nothing."""


@contextmanager
def web(status: int = 200) -> Iterator[Web]:
    with Web(status) as server:
        thread = threading.Thread(target=lambda: server.serve_forever(0.01))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(120)


@contextmanager
def sender(fleet: Fleet, *urls: str, **settings: Any) -> Iterator[Alertmanager]:
    configured = AlertmanagerSettings.model_validate({"urls": urls, **settings})
    with (
        closing(FindingReader(fleet.url)) as reader,
        closing(Alertmanager(configured, SETTINGS, reader.read)) as opened,
    ):
        yield opened


@pytest.fixture
def throttled(fleet: Fleet) -> Fleet:
    """A warning."""
    fleet.client("pay-1", principal="User:pay", throttle_ms_max=1500.0, interval_ms=60_000, pushes=20)
    fleet.look()
    return fleet


def resolve(fleet: Fleet, at: datetime) -> None:
    fleet.connection.execute("UPDATE telemetry.finding SET ended_at = %s, resolved_at = %s", (at, at))


def test_each_alertmanager_gets_the_open_findings_and_their_ends(throttled: Fleet) -> None:
    now = datetime.now(UTC)
    with web() as first, web() as second, sender(throttled, first.url, f"{second.url}/", token=TOKEN) as job:
        assert job.send(now) == 1
        assert first.posted == second.posted
        ((path, login, (alert,)),) = first.posted
        assert (path, login) == ("/api/v2/alerts", f"Bearer {TOKEN}")
        assert alert["labels"]["client_id"] == "pay-1"
        assert datetime.fromisoformat(alert["endsAt"]) > now
        resolve(throttled, now)
        assert job.send(now) == 1
        (ended,) = first.posted[1][2]
        assert ended["labels"] == alert["labels"]
        assert datetime.fromisoformat(ended["endsAt"]) == now


def test_the_least_severity_is_a_setting(throttled: Fleet) -> None:
    with web() as server, sender(throttled, server.url, severity="critical") as job:
        assert job.send(datetime.now(UTC)) == 0
    assert server.posted == []


def test_one_that_fails_is_named_and_the_others_get_theirs(throttled: Fleet) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    with (
        web(503) as full,
        web() as server,
        sender(throttled, away, full.url, server.url, token=TOKEN) as job,
        pytest.raises(AlertmanagerError) as error,
    ):
        job.send(datetime.now(UTC))
    assert len(server.posted) == 1
    assert f"{away}: ConnectError" in str(error.value)
    assert f"{full.url}: status 503: no room" in str(error.value)
    assert server.url not in str(error.value)
    assert TOKEN not in str(error.value)


def test_a_missing_file_of_authorities_is_named(fleet: Fleet, tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    with pytest.raises(AlertmanagerError, match=r"alertmanager\.ca_file"), sender(fleet, ca_file=missing):
        pass
