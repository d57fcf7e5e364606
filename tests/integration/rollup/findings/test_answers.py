"""Findings by REST and the command line, from a real PostgreSQL: filters, times, rights, advice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from typer.testing import CliRunner

from receiver.cluster.rollup import Rollup
from receiver.settings.rollup import RollupSettings
from receiver.store.sqlite import SqliteSubscriptionStore
from spark_streaming.cli import app
from spark_streaming.findings.answers import FindingFilter
from spark_streaming.findings.settings import KINDS
from spark_streaming.metrics import FindingsUnavailableError, MetricsServer, RollupMetrics
from spark_streaming.postgres import FindingReader
from tests.integration.rollup.findings.fleet import NOW, Fleet, minutes
from tests.integration.rollup.findings.test_alerts import everything_wrong
from tests.unit.api.conftest import Api

TOKEN = "a-token-of-sixteen-letters"


@pytest.fixture(autouse=True)
def log_of_its_own() -> Iterator[None]:
    """Reset structlog, because the runner closes the command's stderr."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def teams(fleet: Fleet) -> Fleet:
    """Two teams: one is throttled, and a member of the other's group is bound."""
    paying: dict[str, Any] = {"principal": "User:pay", "client_owner": "payments"}
    fleet.client("pay-1", **paying, throttle_ms_max=1500.0, interval_ms=60_000, pushes=20)
    slow: dict[str, Any] = {"poll_idle_ratio_sum": 0.01, "poll_idle_ratio_points": 1.0, "group_id": "stock"}
    librdkafka: dict[str, Any] = {"client_software_name": "librdkafka", "client_software_version": "2.12.1"}
    fleet.client("stock-1", principal="User:stock", **slow, **librdkafka)
    fleet.client("stock-2", principal="User:stock", client_owner="stock", **slow)
    fleet.look()
    return fleet


@pytest.fixture
def server(teams: Fleet, tmp_path: Path) -> Iterator[MetricsServer]:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    with (
        closing(FindingReader(teams.url)) as reader,
        MetricsServer("127.0.0.1", 0, RollupMetrics(), token_files=[token]) as opened,
    ):
        opened.findings = reader.read
        yield opened


def ask(server: MetricsServer, query: str = "", token: str = TOKEN) -> httpx.Response:
    return httpx.get(
        f"http://127.0.0.1:{server.port}/v1/findings{query}",
        headers={"authorization": f"Bearer {token}"} if token else {},
        trust_env=False,
        timeout=60,
    )


def kinds(server: MetricsServer, query: str) -> list[str]:
    response = ask(server, query)
    assert response.status_code == 200, response.text
    return [finding["kind"] for finding in response.json()["findings"]]


def run(fleet: Fleet, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["findings", "--postgres", fleet.url, *options])
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["throttled", "poll_bound"]),
        ("?kind=throttled&kind=silent", ["throttled"]),
        ("?principal=User:pay", ["throttled"]),
        # Also of a group whose members it selects.
        ("?client_id=stock-.*", ["poll_bound"]),
        ("?client_id=stock-1&principal=User:pay", []),
        ("?client_id=stock", []),
        ("?group=stock", ["poll_bound"]),
        ("?owner=pay.*", ["throttled"]),
        ("?owner=stock", ["poll_bound"]),
        ("?client_id=stock-1&owner=stock", []),
        ("?severity=critical", []),
        ("?since=1h", ["throttled", "poll_bound"]),
        ("?state=all", ["throttled", "poll_bound"]),
    ],
)
def test_filters(server: MetricsServer, query: str, found: list[str]) -> None:
    assert kinds(server, query) == found


def test_a_resolved_finding_has_its_end(fleet: Fleet, server: MetricsServer) -> None:
    fleet.connection.execute(
        "UPDATE telemetry.finding SET resolved_at = %s, ended_at = %s WHERE kind = 'throttled'",
        (NOW, NOW - minutes(20)),
    )
    assert kinds(server, "") == ["poll_bound"]
    assert kinds(server, "?state=all") == ["throttled", "poll_bound"]
    assert kinds(server, "?state=all&since=2026-03-04T11:41:00Z") == ["poll_bound"]


def test_an_answer_says_since_when_and_what_to_change(server: MetricsServer) -> None:
    throttled, bound = ask(server).json()["findings"]
    assert throttled["began_at"] == (NOW - minutes(20)).isoformat()
    assert throttled["held_at"] == (NOW - minutes(1)).isoformat()
    assert throttled["ended_at"] is None
    assert throttled["principals"] == {"count": 1, "first": ["User:pay"]}
    assert throttled["owners"] == {"count": 1, "first": ["payments"]}
    assert [change["rule"] for change in throttled["advice"]] == ["raise_quota", "send_less"]
    assert set(throttled["advice"][1]["change"]) == {"java"}
    assert bound["client_ids"] == {"count": 2, "first": ["stock-1", "stock-2"]}
    # Its members are of both libraries, each with keys of its own.
    assert set(bound["advice"][1]["change"]) == {"java", "librdkafka"}
    assert all(change["why"] and change["source"] and change["cannot_see"] for change in bound["advice"])


def test_each_kind_has_advice_from_its_evidence(fleet: Fleet) -> None:
    everything_wrong(fleet)
    fleet.look()
    with closing(FindingReader(fleet.url)) as reader:
        found = {finding["kind"]: finding["advice"] for finding in reader.read(FindingFilter())}
    assert found.keys() == set(KINDS)
    for changes in found.values():
        assert changes
        assert not re.search(r"[{}]|None", " ".join(change["now"] for change in changes))


def test_the_receiver_shows_findings_of_each_kind(fleet: Fleet, tmp_path: Path) -> None:
    everything_wrong(fleet)
    fleet.look()
    api = Api(SqliteSubscriptionStore(tmp_path / "subscriptions.db"))
    with (
        closing(api.store),
        closing(FindingReader(fleet.url)) as reader,
        MetricsServer("127.0.0.1", 0, RollupMetrics()) as server,
    ):
        server.findings = reader.read
        api.rollup = Rollup(RollupSettings(url=f"http://127.0.0.1:{server.port}", timeout_ms=20_000))

        async def scenario(rest: httpx.AsyncClient) -> None:
            shown = (await rest.get("/v1/findings")).json()
            assert (shown["configured"], shown["problem"]) == (True, None)
            assert {finding["kind"] for finding in shown["items"]} == set(KINDS)
            assert shown["total"] == len(shown["items"])
            assert all(finding["advice"] for finding in shown["items"])

        api.run(scenario)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("?kind=slow", "kind: 'slow': expected one of throttled, "),
        ("?severity=bad", "severity: 'bad': expected info, warning, critical"),
        ("?client_id=(", "client_id: '(' is no regular expression"),
        ("?since=soon", "since: 'soon': expected a time such as"),
        ("?since=1h&since=2h", "since: given 2 times"),
        ("?state=closed", "state: 'closed': expected open or all"),
        ("?limit=1", "limit: unknown; expected client_id"),
    ],
)
def test_a_wrong_filter_is_named(server: MetricsServer, query: str, problem: str) -> None:
    response = ask(server, query)
    assert response.status_code == 400
    assert response.headers["content-type"].startswith("application/problem+json")
    assert problem in response.json()["detail"]


def test_findings_need_a_token_and_metrics_do_not(server: MetricsServer, tmp_path: Path) -> None:
    assert ask(server, token="").status_code == 401
    refused = ask(server, token="another-token-of-letters")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert (
        httpx.get(f"http://127.0.0.1:{server.port}/metrics", trust_env=False, timeout=60).status_code == 200
    )
    (tmp_path / "token").write_text("a-new-token-of-sixteen-letters")
    assert ask(server).status_code == 401


def test_a_database_that_does_not_answer_is_a_problem_of_the_server(server: MetricsServer) -> None:
    def fails(asked: FindingFilter) -> list[dict[str, Any]]:
        raise FindingsUnavailableError("PostgreSQL: connection refused")

    server.findings = fails
    assert (ask(server).status_code, ask(server).json()["detail"]) == (503, "PostgreSQL: connection refused")
    server.findings = None
    assert ask(server).status_code == 503


def test_the_command_answers_who_since_when_and_what_to_change(teams: Fleet) -> None:
    status, text = run(teams, "--kind", "throttled", "--owner", "payments")
    assert status == 0
    assert text.startswith(
        "warning  throttled  since 2026-03-04T11:40Z  cluster c1\n  Client id pay-1 of User:pay"
    )
    assert "  owners: payments\n" in text
    assert "  change (java): compression.type=lz4" in text
    assert "poll_bound" not in text
    status, text = run(teams, "-o", "json")
    assert [finding["kind"] for finding in json.loads(text)["findings"]] == ["throttled", "poll_bound"]


def test_the_status_is_for_scripts(teams: Fleet) -> None:
    assert run(teams, "--check")[0] == 3
    assert run(teams, "--check", "--severity", "critical") == (0, "no findings\n")
    assert run(teams, "--kind", "nothing")[0] == 2


def test_a_name_cannot_write_to_the_terminal(fleet: Fleet) -> None:
    fleet.client("evil\x1b[2J", throttle_ms_max=500.0)
    fleet.look()
    _, text = run(fleet)
    assert "\x1b" not in text
    assert "evil\\u001b[2J" in text
