"""Findings reach each Alertmanager, from a real PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spark_streaming.alertmanager import Alertmanager, AlertmanagerError
from spark_streaming.postgres import FindingReader
from spark_streaming.settings import AlertmanagerSettings
from tests.integration.rollup.findings.fleet import SETTINGS, Fleet
from tests.testbed.alertmanager import Alertmanager as RealAlertmanager
from tests.testbed.ports import free_port
from tests.testbed.process import wait_until
from tests.unit.plugins.destinations import HttpDestination, Reply, http_destination

WITHIN_S = 120
TOKEN = "a-token-of-sixteen-letters"


@contextmanager
def web(status: int = 200) -> Iterator[HttpDestination]:
    """Run what takes alerts, or refuses them."""
    with http_destination() as destination:
        destination.answer = lambda _: Reply(status, b"no\nroom" if status >= 400 else b"", {})
        yield destination


def url(destination: HttpDestination) -> str:
    return f"http://127.0.0.1:{destination.port}"


def posted(destination: HttpDestination) -> list[tuple[str, str | None, Any]]:
    """Return the path, the login and the document of each request."""
    logins = [headers.get("authorization") for headers in destination.headers]
    documents = [json.loads(body) for body in destination.bodies]
    return list(zip(destination.paths, logins, documents, strict=True))


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
    with (
        web() as first,
        web() as second,
        sender(throttled, url(first), f"{url(second)}/", token=TOKEN) as job,
    ):
        assert job.send(now) == 1
        assert posted(first) == posted(second)
        ((path, login, (alert,)),) = posted(first)
        assert (path, login) == ("/api/v2/alerts", f"Bearer {TOKEN}")
        assert alert["labels"]["client_id"] == "pay-1"
        assert datetime.fromisoformat(alert["endsAt"]) > now
        resolve(throttled, now)
        assert job.send(now) == 1
        (ended,) = posted(first)[1][2]
        assert ended["labels"] == alert["labels"]
        assert datetime.fromisoformat(ended["endsAt"]) == now


@pytest.mark.full
def test_a_real_alertmanager_tells_a_webhook_of_a_finding_and_of_its_end(throttled: Fleet) -> None:
    with (
        web() as webhook,
        RealAlertmanager(url(webhook)) as alertmanager,
        sender(throttled, alertmanager.url, labels={"team": "kafka"}) as job,
    ):
        now = datetime.now(UTC)
        assert job.send(now) == 1
        wait_until(lambda: len(webhook.bodies) == 1, timeout_s=WITHIN_S, what="the webhook's request")
        told = json.loads(webhook.bodies[0])
        (alert,) = told["alerts"]
        assert (told["status"], alert["status"]) == ("firing", "firing")
        assert alert["labels"] == {
            "alertname": "KafkaClientFinding",
            "client_id": "pay-1",
            "cluster_id": "c1",
            "kind": "throttled",
            "principal": "User:pay",
            "severity": "warning",
            "team": "kafka",
        }
        (sent,) = alertmanager.alerts()
        assert sent["annotations"] == alert["annotations"]
        assert "summary" in alert["annotations"]
        # The same finding again is no new alert.
        assert job.send(datetime.now(UTC)) == 1
        assert len(alertmanager.alerts()) == 1
        resolve(throttled, datetime.now(UTC))
        assert job.send(datetime.now(UTC)) == 1
        wait_until(lambda: len(webhook.bodies) == 2, timeout_s=WITHIN_S, what="the end of the alert")
        told = json.loads(webhook.bodies[1])
        assert told["status"] == "resolved"
        assert [ended["labels"] for ended in told["alerts"]] == [alert["labels"]]
        assert alertmanager.alerts() == []


def test_the_least_severity_is_a_setting(throttled: Fleet) -> None:
    with web() as server, sender(throttled, url(server), severity="critical") as job:
        assert job.send(datetime.now(UTC)) == 0
    assert posted(server) == []


def test_one_that_fails_is_named_and_the_others_get_theirs(throttled: Fleet) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    with (
        web(503) as full,
        web() as server,
        sender(throttled, away, url(full), url(server), token=TOKEN) as job,
        pytest.raises(AlertmanagerError) as error,
    ):
        job.send(datetime.now(UTC))
    assert len(posted(server)) == 1
    assert f"{away}: cannot connect" in str(error.value)
    assert f"{url(full)}: status 503: no room" in str(error.value)
    assert url(server) not in str(error.value)
    assert TOKEN not in str(error.value)


def test_a_missing_file_of_authorities_is_named(fleet: Fleet, tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    with pytest.raises(AlertmanagerError, match=r"alertmanager\.ca_file"), sender(fleet, ca_file=missing):
        pass
