"""The scrape endpoint over HTTP: formats, bounds, and series of silent clients."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from plugins.prometheus import PrometheusReceiver, scrape
from plugins.prometheus.receiver import PrometheusReceiver as Receiver
from receiver.host.discovery import load_plugins
from receiver.telemetry.otlp import label_metrics
from spark_streaming.scraping import server
from tests.testbed.ports import free_port
from tests.unit.host.support import wait_for
from tests.unit.plugins._shared.cumulative.support import counter, gauge, metrics_data, number
from tests.unit.plugins.prometheus.support import push
from tests.unit.telemetry.otlp_parts import EXPECTED, LABELS

OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3"


@contextmanager
def serving(**settings: Any) -> Iterator[tuple[PrometheusReceiver, httpx.Client]]:
    bind = f"127.0.0.1:{free_port()}"
    (hosted,) = load_plugins([{"type": "prometheus", "bind": bind, "metric_prefixes": [""], **settings}])
    plugin = hosted.plugin
    assert isinstance(plugin, Receiver)
    plugin.start()
    try:
        with httpx.Client(base_url=f"http://{bind}", trust_env=False, timeout=120) as client:
            yield plugin, client
    finally:
        plugin.stop()


def test_the_format_is_the_requested_one() -> None:
    with serving() as (plugin, client):
        plugin.export_batch([push(counter("c", number(5, since=4, at=10)), at=10)])
        text = client.get("/metrics")
        openmetrics = client.get("/metrics?x=1", headers={"accept": OPENMETRICS})
    assert text.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "# TYPE c_total counter\n" in text.text
    assert "# EOF" not in text.text
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert "# TYPE c counter\n" in openmetrics.text
    assert openmetrics.text.endswith("# EOF\n")


def test_a_scrape_that_accepts_gzip_is_compressed() -> None:
    with serving() as (plugin, client):
        plugin.export_batch([push(gauge("g", number(1, at=10)), at=10)])
        plain = client.get("/metrics", headers={"accept-encoding": "identity"})
        with client.stream("GET", "/metrics", headers={"accept-encoding": "gzip"}) as response:
            raw = b"".join(response.iter_raw())
    assert response.headers["content-encoding"] == "gzip"
    assert gzip.decompress(raw) == plain.content


@pytest.mark.parametrize("header", ["gzip;q=0", "identity", "gzip;q=0.000, *;q=1", "br, *;q=0", ""])
def test_a_scrape_that_refuses_gzip_is_not_compressed(header: str) -> None:
    with serving() as (_, client):
        answer = client.get("/metrics", headers={"accept-encoding": header})
    assert "content-encoding" not in answer.headers


def test_head_has_the_headers_of_get() -> None:
    with serving() as (plugin, client):
        plugin.export_batch([push(gauge("g", number(1, at=10)), at=10)])
        got, asked = client.get("/metrics"), client.head("/metrics")
        assert client.head("/other").status_code == 404
    assert (asked.status_code, asked.content) == (200, b"")
    assert asked.headers["content-type"] == got.headers["content-type"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/metrics/x", 404), ("POST", "/", 404), ("BREW", "/metrics", 501)],
)
def test_other_paths_and_unknown_methods_are_refused(method: str, path: str, status: int) -> None:
    with serving() as (_, client):
        assert client.request(method, path).status_code == status


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_other_methods_than_get_and_head_are_not_allowed(method: str) -> None:
    with serving() as (_, client):
        answer = client.request(method, "/metrics", content=b"x" * 40_000)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert answer.text == "this endpoint only answers GET and HEAD\n"


def test_an_address_in_use_fails_the_start() -> None:
    with serving() as (plugin, _):
        other = Receiver(plugin.config)  # type: ignore[arg-type]
        with pytest.raises(OSError, match=r"bind: cannot listen on 127\.0\.0\.1:\d+: Address already in use"):
            other.start()
        other.stop()


def test_a_start_looks_up_no_host_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda name: pytest.fail(f"looked up {name}"))
    with serving() as (_, client):
        assert client.get("/metrics").status_code == 200


def test_the_server_can_restart_on_the_same_address() -> None:
    with serving() as (plugin, _):
        config = plugin.config
    again = Receiver(config)  # type: ignore[arg-type]
    again.start()
    again.stop()


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        pytest.param(b"GET /metrics HTTP/1.1\r\n", marks=pytest.mark.full),
        pytest.param(b"GET /metrics HTTP/1.0\r\n\r\n", marks=pytest.mark.full),
    ],
)
def test_slow_clients_shut_out_no_scraper(beginning: bytes) -> None:
    """Connections that are silent, send half a request, or read nothing."""
    with serving() as (plugin, client), contextlib.ExitStack() as opened:
        for index in range(2_000):
            plugin.export_batch([push(gauge(f"gauge_{index}", number(1, at=10)), at=10)])
        address = (client.base_url.host, client.base_url.port or 0)
        for _ in range(3):
            for _ in range(3 * server.MAX_CONNECTIONS):
                slow = opened.enter_context(contextlib.closing(socket.create_connection(address)))
                slow.sendall(beginning)
            assert client.get("/metrics").status_code == 200


def test_a_connection_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "_MAX_SECONDS", 0.5)
    with serving() as (_, client):
        address = (client.base_url.host, client.base_url.port or 0)
        with contextlib.closing(socket.create_connection(address, timeout=120)) as slow:
            slow.sendall(b"GET /metrics HTTP/1.1\r\n")
            assert slow.recv(1) == b""


def test_room_is_made_by_the_source_with_most_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[object] = []
    monkeypatch.setattr(server, "_shut", closed.append)
    slots, many = server._Slots(), [socket.socket() for _ in range(server.MAX_CONNECTIONS)]
    with contextlib.ExitStack() as opened:
        for connection in many:
            opened.enter_context(connection)
        alone, new = many[0], opened.enter_context(socket.socket())
        slots.take(alone, "192.0.2.1")
        for connection in many[1:]:
            slots.take(connection, "192.0.2.2")
        slots.asked(many[1])
        slots.take(new, "192.0.2.2")
        assert closed == [many[2]], "the oldest of the busiest source that has not asked"


def test_silent_series_end_while_there_are_no_pushes() -> None:
    with serving() as (plugin, client):
        plugin.export_batch([push(gauge("g", number(1, at=10)), at=10, interval_ms=3_600_000)])
        assert "\ng{" in client.get("/metrics").text
        # The same client, now with a short interval.
        plugin.export_batch([push(gauge("g", number(1, at=11)), at=11, interval_ms=10)])
        wait_for(lambda: "g{" not in client.get("/metrics").text)


def test_no_client_counts_as_silent_while_pushes_wait() -> None:
    settings = {"remote_write": {"url": f"http://127.0.0.1:{free_port()}/w"}}
    with serving(**settings) as (plugin, client):
        with pytest.raises(Exception, match="Connect"):
            plugin.export_batch([push(gauge("g", number(1, at=10)), at=10, interval_ms=10)])
        time.sleep(1.2)
        assert "\ng{" in client.get("/metrics").text


def test_scrapes_during_pushes_read_whole_points() -> None:
    with serving() as (plugin, client):
        stopping = threading.Event()

        def pushing() -> None:
            at = 10
            while not stopping.is_set():
                at += 1
                metrics = [counter("c", number(1, since=at - 1, at=at, labels={"n": n})) for n in range(20)]
                plugin.export_batch([push(*metrics, at=at, instance=str(at % 3), terminating=at % 7 == 0)])

        thread = threading.Thread(target=pushing)
        thread.start()
        try:
            for _ in range(30):
                text = client.get("/metrics", headers={"accept": OPENMETRICS}).text
                families: Callable[[str], Iterator[Any]] = text_string_to_metric_families
                assert all(family.samples for family in families(text))
        finally:
            stopping.set()
            thread.join()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9464", 200),
        ("10.1.2.3:9464", 200),
        ("[2001:db8::1]:9464", 200),
        ("LOCALHOST", 200),
        ("receiver.example.com:9464", 200),
        ("attacker.example:9464", 421),
        ("127.0.0.1.attacker.example", 421),
        ("", 421),
    ],
)
def test_a_scrape_with_another_host_name_is_refused(host: str, status: int) -> None:
    """A web page whose name resolves to this address (DNS rebinding) must read nothing."""
    with serving(allowed_hosts=["Receiver.example.com"]) as (plugin, client):
        plugin.export_batch([push(gauge("g", number(1, at=10)), at=10)])
        answer = client.get("/metrics", headers={"host": host})
    assert (answer.status_code, "g{" in answer.text) == (status, status == 200)


def test_http_1_0_reads_until_the_end() -> None:
    with serving() as (plugin, client):
        plugin.export_batch([push(gauge("g", number(1, at=10)), at=10)])
        with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as connection:
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            answer = b""
            while some := connection.recv(65_536):
                answer += some
    assert b"transfer-encoding" not in answer
    assert answer.endswith(b"} 1.0\n")


def test_slow_scrapers_hold_chunks_only() -> None:
    """Eight scrapers that read nothing hold less memory than one whole text."""
    with serving(max_bytes=1 << 28, max_series=100_000) as (plugin, client):
        for n in range(10):
            labels = {"n": "x" * 3_000}
            metrics = [gauge(f"g{m}", number(1, at=10, labels=labels)) for m in range(150)]
            plugin.export_batch(
                [push(*metrics, at=10, instance=str(n), resource={"client_instance_id": str(n)})]
            )
        text = len(client.get("/metrics", headers={"accept-encoding": "identity"}).content)
        assert text > 4_500_000
        tracemalloc.start()
        try:
            with contextlib.ExitStack() as scrapers:
                for _ in range(server.MAX_CONNECTIONS):
                    address = (client.base_url.host, client.base_url.port or 0)
                    one = scrapers.enter_context(contextlib.closing(socket.socket()))
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                    one.connect(address)
                    one.sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
                    assert one.recv(12) == b"HTTP/1.1 200"
                time.sleep(0.3)
                assert tracemalloc.get_traced_memory()[1] < text // 2
        finally:
            tracemalloc.stop()


def test_the_broker_of_requests_is_another_label_than_the_receivers() -> None:
    """A client of KIP-714's draft names the broker of its requests ``broker_id`` as well."""
    requests = counter(
        "org.apache.kafka.client.request.errors",
        *(number(value, at=10, labels={"broker_id": broker}) for broker, value in (("1", 4), ("2", 8))),
    )
    data = label_metrics(metrics_data(requests), LABELS, max_entries=1_000).data
    with serving() as (plugin, client):
        plugin.export_batch([push(data=data, at=10)])
        text = client.get("/metrics", headers={"accept": OPENMETRICS}).text
    families: Callable[[str], Iterator[Any]] = text_string_to_metric_families
    found = {
        sample.labels["node_id"]: (sample.labels["broker_id"], sample.value)
        for family in families(text)
        for sample in family.samples
        if sample.name.endswith("_total")
    }
    assert found == {"1": (EXPECTED["broker_id"], 4), "2": (EXPECTED["broker_id"], 8)}
