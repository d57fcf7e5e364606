"""The metrics server answers scrapes, refuses other hosts, and bounds connections."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import httpx
import pytest

from spark_streaming.metrics import MetricsError, MetricsServer, RollupMetrics
from spark_streaming.scraping.server import MAX_CONNECTIONS
from tests.testbed.certificates import CertificateAuthority

WITHIN_S = 60


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with MetricsServer("127.0.0.1", 0, RollupMetrics(), allowed_hosts=["Rollup.example"]) as opened:
        yield opened


def get(server: MetricsServer, path: str = "/metrics", **headers: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{server.port}{path}", headers=headers, trust_env=False)


def test_a_scrape_has_the_text_format(server: MetricsServer) -> None:
    response = get(server)
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert "kafka_telemetry_rollup_lag_seconds NaN\n" in response.text
    assert "process_start_time_seconds " in response.text


def test_a_scrape_may_ask_for_openmetrics(server: MetricsServer) -> None:
    response = get(server, accept="application/openmetrics-text; version=1.0.0")
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")
    assert "_created" not in response.text


def test_there_is_no_other_page(server: MetricsServer) -> None:
    assert get(server, "/").status_code == 404
    assert get(server, "/metrics?x=y").status_code == 200
    answer = httpx.post(f"http://127.0.0.1:{server.port}/metrics", trust_env=False)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8643", 200),
        ("[::1]:8643", 200),
        ("localhost", 200),
        ("ROLLUP.example:8643", 200),
        ("elsewhere.example", 421),
        ("", 421),
    ],
)
def test_only_known_host_names_get_an_answer(server: MetricsServer, host: str, status: int) -> None:
    assert get(server, host=host).status_code == status


@pytest.mark.parametrize(
    "beginning", [b"", pytest.param(b"GET /metrics HTTP/1.1\r\n", marks=pytest.mark.full)]
)
def test_slow_clients_shut_out_no_scraper(server: MetricsServer, beginning: bytes) -> None:
    with contextlib.ExitStack() as opened:
        for _ in range(3):
            for _ in range(3 * MAX_CONNECTIONS):
                slow = socket.create_connection(("127.0.0.1", server.port), timeout=WITHIN_S)
                opened.enter_context(contextlib.closing(slow))
                slow.sendall(beginning)
            assert get(server).status_code == 200


def test_a_taken_port_is_an_error_that_names_the_setting(server: MetricsServer) -> None:
    with pytest.raises(
        MetricsError, match=r"^metrics\.bind: cannot listen on 127\.0\.0\.1:\d+: .* free port$"
    ):
        MetricsServer("127.0.0.1", server.port, RollupMetrics())


def test_head_has_no_body(server: MetricsServer) -> None:
    answer = httpx.head(f"http://127.0.0.1:{server.port}/metrics", trust_env=False)
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


def test_a_web_configuration_file_asks_for_tls_and_a_login(tmp_path: Path) -> None:
    CertificateAuthority().issue().write(tmp_path, "server")
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    file = tmp_path / "web.yaml"
    file.write_text(
        "tls_server_config: {cert_file: server.crt, key_file: server.key}\n"
        f"basic_auth_users: {{prometheus: {hashed}}}\n"
    )
    trusted = ssl.create_default_context(cafile=str(tmp_path / "server-ca.pem"))
    with (
        MetricsServer("127.0.0.1", 0, RollupMetrics(), web_config_file=file) as server,
        httpx.Client(verify=trusted, trust_env=False, timeout=WITHIN_S) as client,
    ):
        url = f"https://127.0.0.1:{server.port}/metrics"
        assert client.get(url, auth=("prometheus", "secret")).status_code == 200
        refused = client.get(url)
        assert refused.status_code == 401
        assert "metrics.web_config_file" in refused.text
        assert get(server).text == "this endpoint has TLS: ask it with https\n"


def test_an_invalid_web_configuration_file_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(MetricsError, match=r"^metrics\.web_config_file: .*away\.yaml: cannot be read"):
        MetricsServer("127.0.0.1", 0, RollupMetrics(), web_config_file=tmp_path / "away.yaml")
