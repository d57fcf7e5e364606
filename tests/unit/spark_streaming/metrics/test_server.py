"""The metrics server answers scrapes, refuses other hosts, and bounds connections."""

from __future__ import annotations

import contextlib
import errno
import itertools
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import bcrypt
import httpx
import pytest

from spark_streaming.metrics import MetricsError, MetricsServer, RollupMetrics
from spark_streaming.scraping import server as scraping
from spark_streaming.scraping.server import MAX_CONNECTIONS
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.process import wait_until
from tests.unit.hostile_values import NUMBERS, PATTERNS, TEXTS, TIMES

WITHIN_S = 60


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with MetricsServer("127.0.0.1", 0, RollupMetrics(), allowed_hosts=["Rollup.example"]) as opened:
        yield opened


def get(server: MetricsServer, path: str = "/metrics", **headers: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{server.port}{path}", headers=headers, trust_env=False, timeout=60)


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
    answer = httpx.post(f"http://127.0.0.1:{server.port}/metrics", trust_env=False, timeout=60)
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


#: The parameters that take a regular expression.
_PATTERNS = ("client_id", "principal", "group", "owner")


@pytest.fixture
def defects(monkeypatch: pytest.MonkeyPatch) -> list[type[BaseException] | None]:
    """The exceptions that were reported as those of threads."""
    found: list[type[BaseException] | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda ended: found.append(ended.exc_type))
    return found


def test_no_value_of_a_query_is_a_defect(
    server: MetricsServer, defects: list[type[BaseException] | None]
) -> None:
    server.findings = lambda _: []
    names = (*_PATTERNS, "kind", "severity", "since", "state", "x")
    texts = (*TIMES, *NUMBERS, *TEXTS, *PATTERNS, *(f"{number}d" for number in NUMBERS), "999999d")
    with httpx.Client(trust_env=False, timeout=WITHIN_S) as client:
        for name, text in itertools.product(names, texts):
            value = quote(text.encode("utf-8", "surrogatepass"), safe="")
            answer = client.get(f"http://127.0.0.1:{server.port}/v1/findings?{name}={value}")
            assert answer.status_code in {200, 400}, (name, text)
            if text in {"999999d", "٣d"}:
                assert answer.status_code == 400 or name in _PATTERNS, (name, text)
    assert defects == []


def test_a_defect_is_reported_and_ends_nothing(
    server: MetricsServer, defects: list[type[BaseException] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise LookupError

    for owner, name in (
        (server.metrics, "exposition"),
        (server.web, "tls"),
        (server, "process_request"),
        (threading.Timer, "start"),
    ):
        before = len(defects)
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, broken)
            with pytest.raises(httpx.TransportError):
                get(server)
        assert get(server).status_code == 200
        # The client may see the end of its connection before.
        wait_until(lambda: len(defects) > before, timeout_s=WITHIN_S, what=f"the report of {name}")  # noqa: B023
        assert defects[before:] == [LookupError], name
    wait_until(lambda: not server.slots._sources, timeout_s=WITHIN_S, what="the end of all connections")


def test_a_scraper_that_disconnects_is_no_defect(
    server: MetricsServer, defects: list[type[BaseException] | None]
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=WITHIN_S) as gone:
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        gone.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert get(server).status_code == 200
    assert defects == []


def test_a_system_without_room_is_not_asked_at_once(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    # The module's own, because other threads sleep too.
    monkeypatch.setattr(scraping, "time", SimpleNamespace(sleep=pauses.append))
    monkeypatch.setattr(server, "socket", _Full())
    with pytest.raises(OSError, match="full"):
        server.get_request()
    assert pauses == [scraping._PAUSE_S]


class _Full:
    """A listening socket of a process that has no descriptor left."""

    def accept(self) -> None:
        raise OSError(errno.EMFILE, "full")


def test_addresses_of_one_network_are_one_source(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[object] = []
    monkeypatch.setattr(scraping, "_shut", closed.append)
    slots, many = scraping._Slots(), [socket.socket() for _ in range(MAX_CONNECTIONS + 1)]
    with contextlib.ExitStack() as opened:
        for connection in many:
            opened.enter_context(connection)
        slots.take(many[0], "2001:db8:1::1")
        slots.take(many[1], "::ffff:192.0.2.1")
        for number, connection in enumerate(many[2:]):
            slots.take(connection, f"2001:db8:2::{number}")
        assert closed == [many[2]], "the oldest of the busiest network, though each address has one"


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
