"""`/v1/findings`: what the roll-up's REST answers, and what is said when it does not."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from receiver.cluster.rest_client import RestFilesError
from receiver.cluster.rollup import Rollup
from receiver.settings.rollup import RollupSettings
from spark_streaming.findings.answers import FindingFilter
from spark_streaming.metrics import FindingsUnavailableError, MetricsServer, RollupMetrics
from tests.testbed.certificates import CertificateAuthority
from tests.unit.api.conftest import VIEWER_TOKEN, Api, bearer, problem_of, token_settings

#: Far more than a busy machine needs.
PATIENT = {"connect_timeout_ms": 10_000, "timeout_ms": 20_000}
TOKEN = "a-token-of-sixteen-letters"

FINDING: dict[str, Any] = {
    "kind": "throttled",
    "severity": "warning",
    "client_id": "orders",
    "client_instance_id": None,
    "client_software_name": None,
    "client_software_version": None,
    "principal": "User:pay",
    "group_id": None,
    "began_at": "2026-11-30T18:02:00+00:00",
    "held_at": "2026-11-30T19:40:00+00:00",
    "ended_at": None,
    "resolved_at": None,
    "summary": "the brokers delayed it by up to 1.5 s",
    "client_ids": {"count": 1, "first": ["orders"]},
    "principals": {"count": 1, "first": ["User:pay"]},
    "owners": {"count": 1, "first": ["payments"]},
    "advice": [
        {
            "rule": "quota",
            "now": "1.5 s in 5 minutes",
            "change": {"all": "producer_byte_rate"},
            "why": "the quota is too low",
            "source": "https://kafka.apache.org/documentation/#quotas",
            "cannot_see": "what the quota is",
        }
    ],
}
#: What the roll-up has beside it, of a newer version too.
MORE = {"id": 7, "cluster_id": None, "found_at": FINDING["began_at"], "evidence": {"minutes": 5}, "new": 1}


@contextmanager
def rollup(tmp_path: Path, found: list[dict[str, Any]], **keys: Any) -> Iterator[tuple[MetricsServer, Any]]:
    """The roll-up's server with a token; yields it, and the filters that it was asked for."""
    token = tmp_path / "rollup.token"
    token.write_text(TOKEN)
    asked: list[FindingFilter] = []

    def answer(wanted: FindingFilter) -> list[dict[str, Any]]:
        asked.append(wanted)
        return found

    with MetricsServer("127.0.0.1", 0, RollupMetrics(), token_files=[token], **keys) as server:
        server.findings = answer
        yield server, asked


def named(api: Api, url: str, **keys: Any) -> None:
    """Let the configuration name a roll-up."""
    settings = RollupSettings.model_validate({"url": url, **PATIENT, **keys})
    api.rollup = Rollup(settings, api.clock)


async def problem(rest: httpx.AsyncClient) -> str:
    """Why there are no findings."""
    answer = (await rest.get("/v1/findings")).json()
    assert (answer["items"], answer["total"], answer["configured"]) == ([], 0, True)
    return str(answer["problem"])


def test_without_a_roll_up_it_says_so(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        answer = (await rest.get("/v1/findings")).json()
        assert (answer["items"], answer["configured"]) == ([], False)
        assert "set `rollup: {url: http://127.0.0.1:8643}`" in answer["problem"]

    api.run(scenario)


def test_findings_come_from_the_roll_up(api: Api, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with rollup(tmp_path, [{**FINDING, **MORE}, FINDING]) as (server, asked):
        named(api, f"http://127.0.0.1:{server.port}", token={"file": tmp_path / "token"})

        async def scenario(rest: httpx.AsyncClient) -> None:
            path = "/v1/findings?client_id=ord.*&principal=User:pay&owner=p.*&group=g&severity=warning"
            answer = (await rest.get(path + "&limit=1")).json()
            assert answer == {"items": [FINDING], "total": 2, "configured": True, "problem": None}
            assert len((await rest.get(path + "&limit=2")).json()["items"]) == 2
            # Both are the same question, and so is that of ten consoles.
            await asyncio.gather(*(rest.get(path) for _ in range(10)))
            assert asked == [
                FindingFilter(
                    client_id="ord.*", principal="User:pay", owner="p.*", group="g", severity="warning"
                )
            ]
            api.clock.now += 10.0
            await rest.get(path + "&state=all")
            await rest.get(path)
            assert [wanted.is_open for wanted in asked] == [True, False, True]
            for wrong in ("client_id=(", "severity=loud", "state=closed", "limit=0", "kind=x"):
                problem_of(await rest.get(f"/v1/findings?{wrong}"), 422)

        api.run(scenario)


def test_a_roll_up_that_does_not_answer_is_said(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("another-token-of-many-letters")
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **named: resolve(
            "127.0.0.1" if host in ("rollup.example", b"rollup.example") else host, *rest, **named
        ),
    )

    async def scenario(_: httpx.AsyncClient) -> None:
        with rollup(tmp_path, [FINDING]) as (server, _):
            unknown = f"http://127.0.0.1:{server.port}"
            for keys in ({}, {"token": {"file": token}}):
                named(api, unknown, **keys)
                assert "it does not know the token: set rollup.token" in await of(api)
            token.write_text(TOKEN)
            named(api, unknown, token={"file": token})
            server.findings = None
            assert "status 503: the roll-up starts: try again" in await of(api)

            def away(_: FindingFilter) -> list[dict[str, Any]]:
                raise FindingsUnavailableError("PostgreSQL does not answer")

            named(api, unknown, token={"file": token})
            server.findings = away
            assert "status 503: PostgreSQL does not answer" in await of(api)
            named(api, unknown, token={"file": token})
            server.findings = lambda _: [{"kind": "throttled"}]
            assert "does it have the version of this receiver?" in await of(api)
            named(api, f"http://rollup.example:{server.port}", token={"file": token})
            assert "does not know the host name of rollup.url" in await of(api)
        named(api, unknown)
        assert "nothing listens there" in await of(api)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            named(api, f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_ms=50)
            assert "no answer within 50 ms" in await of(api)

    async def of(api: Api) -> str:
        transport = httpx.ASGITransport(await api.app())
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8642", timeout=60
        ) as rest:
            return await problem(rest)

    api.run(scenario)


def test_it_proves_itself_over_tls(api: Api, tmp_path: Path) -> None:
    authority = CertificateAuthority("the roll-up")
    files = authority.issue().write(tmp_path)
    trust = tmp_path / "trust.pem"
    trust.write_text(authority.ca_pem)
    web = tmp_path / "web.yaml"
    web.write_text(f"tls_server_config: {{cert_file: {files.chain}, key_file: {files.key}}}")
    api.settings = token_settings()
    with rollup(tmp_path, [FINDING], web_config_file=web) as (server, _):
        url = f"https://127.0.0.1:{server.port}"
        named(api, url, token={"file": tmp_path / "rollup.token"}, tls={"ca_file": trust})

        async def scenario(rest: httpx.AsyncClient) -> None:
            problem_of(await rest.get("/v1/findings"), 401)
            answer = (await rest.get("/v1/findings", headers=bearer(VIEWER_TOKEN))).json()
            assert answer["items"] == [FINDING]

        api.run(scenario)
        named(api, url, token={"file": tmp_path / "rollup.token"})

        async def untrusted(rest: httpx.AsyncClient) -> None:
            answer = (await rest.get("/v1/findings", headers=bearer(VIEWER_TOKEN))).json()
            assert "certificate" in answer["problem"]

        api.run(untrusted)


def test_a_file_that_cannot_be_used_is_an_error(api: Api, tmp_path: Path) -> None:
    with pytest.raises(RestFilesError, match=r"rollup\.token\.file: .*: No such file"):
        named(api, "http://127.0.0.1:1", token={"file": tmp_path / "absent"})
    with pytest.raises(RestFilesError, match=r"rollup\.tls"):
        named(api, "https://127.0.0.1:1", tls={"ca_file": tmp_path / "absent"})


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("127.0.0.1:8643", "expected the URL of the roll-up"),
        ("http://127.0.0.1:8643/v1/findings", "without a path"),
        ("http://ops:geheim@127.0.0.1:8643", "set rollup.token"),
    ],
)
def test_urls_that_are_refused(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RollupSettings.model_validate({"url": url})
