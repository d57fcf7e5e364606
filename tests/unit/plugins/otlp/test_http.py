from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from plugins._shared.http_client import HttpClient, parse_retry_after
from plugins.otlp import OtlpConfig
from receiver.host.discovery import load_plugins
from receiver.host.host import PluginHost
from receiver.plugin import (
    BatchRefusedError,
    ExportError,
    ExportResult,
    Push,
    RetryableError,
    UnclearError,
)
from tests.unit.host.support import wait_for
from tests.unit.plugins.destinations import (
    Certificates,
    HttpDestination,
    Reply,
    http_destination,
    rpc_status,
)
from tests.unit.plugins.support import client_push, failure, plugin, started


def endpoint(server: HttpDestination, scheme: str = "http") -> str:
    return f"{scheme}://127.0.0.1:{server.port}"


def test_a_request_that_is_no_http_is_retried_because_a_secret_may_be_corrected(
    http_server: HttpDestination,
) -> None:
    url = endpoint(http_server)
    client = HttpClient(OtlpConfig(endpoint=url, protocol="http"), url, {"x-broken": "a\nb"})
    with pytest.raises(RuntimeError, match="post before open"):
        client.post(b"")
    client.open()
    client.open()
    with pytest.raises(RetryableError, match="no valid HTTP request: "):
        client.post(b"")
    client.close()
    assert http_server.bodies == []


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_several_pushes_arrive_as_one_request_with_their_bytes_unchanged(
    http_server: HttpDestination, compression: str
) -> None:
    pushes = [client_push(), client_push("ck-producer-star-01"), client_push("franz-producer-okprefix-02")]
    with started(
        endpoint=endpoint(http_server), protocol="http", compression=compression, headers={"x-key": "v"}
    ) as one:
        assert one.export_batch(pushes) is None
        assert one.export(pushes[1].context, pushes[1].payload) is None
    assert http_server.bodies == [b"".join(push.payload.data for push in pushes), pushes[1].payload.data]
    assert http_server.paths == ["/v1/metrics"] * 2
    assert http_server.connections == 1, "the connection is kept"
    headers = http_server.headers[0]
    assert headers["content-type"] == "application/x-protobuf"
    assert headers["x-key"] == "v"
    assert headers["user-agent"].startswith("kafka-client-telemetry/")


@pytest.mark.parametrize("temporality", ["as_received", "cumulative"])
def test_pushes_without_metrics_make_no_request(http_server: HttpDestination, temporality: str) -> None:
    pushed = client_push()
    empty = Push(
        context=pushed.context, payload=replace(pushed.payload, data=b"", push_id="e" * 32, sequence=7)
    )
    with started(endpoint=endpoint(http_server), protocol="http", temporality=temporality) as one:
        assert one.export(empty.context, empty.payload) == ExportResult(sent=False)
        assert http_server.bodies == []
        one.export_batch([pushed, empty])
    assert len(http_server.bodies) == 1


def test_the_path_of_an_endpoint_is_kept(http_server: HttpDestination) -> None:
    with started(endpoint=f"{endpoint(http_server)}/otlp/x", protocol="http") as one:
        one.export_batch([client_push()])
    assert http_server.paths == ["/otlp/x"]


@pytest.mark.parametrize("status", [code.value for code in HTTPStatus if code >= 400])
def test_a_status_is_retried_unless_it_is_about_the_content(
    http_server: HttpDestination, status: int
) -> None:
    http_server.answer = lambda body: Reply(status, rpc_status("why"))
    refused = BatchRefusedError if status in {400, 409, 413, 422} else RetryableError
    kind: type[ExportError] = UnclearError if status == 500 else refused
    failure(kind, f"HTTP {status}: why", endpoint=endpoint(http_server), protocol="http")
    assert len(http_server.bodies) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("https://user:hunter2@other.example/v1/metrics?token=hunter2", "https://other.example/v1/metrics, "),
        ("/login", "a redirect to /login, "),
        (None, "without a target, "),
    ],
)
def test_a_redirect_is_not_followed_but_named_and_retried(
    http_server: HttpDestination, status: int, location: str | None, shown: str
) -> None:
    http_server.answer = lambda body: Reply(status, headers={"location": location} if location else {})
    caught = failure(RetryableError, endpoint=endpoint(http_server), protocol="http")
    assert f"HTTP {status}: a redirect" in str(caught)
    assert shown in str(caught) or location is None
    assert "hunter2" not in str(caught)
    assert len(http_server.bodies) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_sets_the_delay(http_server: HttpDestination, status: int) -> None:
    http_server.answer = lambda body: Reply(status, headers={"retry-after": "17"})
    caught = failure(RetryableError, endpoint=endpoint(http_server), protocol="http")
    assert caught.retry_after_s == 17


NOW = datetime(2024, 5, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        (" 30 ", 30.0),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        ("Wednesday, 01-May-24 12:01:00 GMT", 60.0),
        (format_datetime(NOW - timedelta(seconds=90), usegmt=True), None),
        ("soon", None),
        ("-5", None),
        ("Fri, 31 Dec 99999999999 23:59:59 GMT", None),
        ("Fri, 31 Dec 2030 23:59:59 +99999999999999", None),
        ("Mon, 32 Foo 2024 99:99:99 GMT", None),
        ("-" * 10_000, None),
        ("1e9", None),
        ("99999999999999999999", None),
        ("\u0663", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_in_all_its_forms(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds


def test_partial_success_is_counted(http_server: HttpDestination) -> None:
    response = ExportMetricsServiceResponse()
    response.partial_success.rejected_data_points = 7
    response.partial_success.error_message = "too old"
    http_server.answer = lambda body: Reply(200, response.SerializeToString())
    with started(endpoint=endpoint(http_server), protocol="http") as one:
        assert one.export_batch([client_push()]) == ExportResult(rejected_points=7, message="too old")


JSON = {"content-type": "application/json; charset=utf-8"}


@pytest.mark.parametrize(
    "answer",
    [
        b'{"partialSuccess": {"rejectedDataPoints": "7", "errorMessage": "too old"}}',
        b'{"partial_success": {"rejected_data_points": 7, "error_message": "too old"}, "later": 1}',
    ],
)
def test_partial_success_in_json_is_counted(http_server: HttpDestination, answer: bytes) -> None:
    http_server.answer = lambda body: Reply(200, answer, JSON)
    with started(endpoint=endpoint(http_server), protocol="http") as one:
        assert one.export_batch([client_push()]) == ExportResult(rejected_points=7, message="too old")


@pytest.mark.parametrize("size", [100_000, 2_000_000])
def test_a_long_partial_success_is_counted(http_server: HttpDestination, size: int) -> None:
    response = ExportMetricsServiceResponse()
    response.partial_success.rejected_data_points = 7
    response.partial_success.error_message = "x" * size
    http_server.answer = lambda body: Reply(200, response.SerializeToString())
    with started(endpoint=endpoint(http_server), protocol="http") as one:
        result = one.export_batch([client_push()])
    assert result == ExportResult(rejected_points=7, message="x" * 1000)


def test_an_answer_without_an_end_is_a_success_whose_details_are_missing(
    http_server: HttpDestination,
) -> None:
    http_server.answer = lambda body: Reply(200, bytes(5_000_000))
    with started(endpoint=endpoint(http_server), protocol="http") as one:
        result = one.export_batch([client_push()])
    assert result is not None
    assert "larger than 4 MiB" in result.message


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, b"{}", JSON),
        Reply(200, b"", {"content-type": "text/html"}),
        Reply(202, b"", {}),
        Reply(204, b"", {}),
    ],
)
def test_an_empty_answer_is_a_success(http_server: HttpDestination, reply: Reply) -> None:
    http_server.answer = lambda body: reply
    with started(endpoint=endpoint(http_server), protocol="http") as one:
        assert one.export_batch([client_push()]) is None


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, b"<title>Sign in</title", {"content-type": "text/html"}),
        Reply(200, b"welcome", {"content-type": "text/plain"}),
        Reply(200, b"welcome", {}),
        Reply(200, b'{"error": "log in"}', JSON),
        Reply(200, b"[]", JSON),
        Reply(200, b"[" * 100_000, JSON),
        Reply(200, b'{"partialSuccess": {"rejectedDataPoints": "many"}}', JSON),
        Reply(200, b"\xff\xff\xff"),
    ],
)
def test_an_answer_that_is_none_of_otlp_is_no_delivery(http_server: HttpDestination, reply: Reply) -> None:
    http_server.answer = lambda body: reply
    where = endpoint(http_server)
    failure(RetryableError, "so this is no OTLP endpoint", endpoint=where, protocol="http")
    with pytest.raises(RetryableError, match=f"^{where}: HTTP 200 .* no OTLP endpoint"):
        plugin(endpoint=where, protocol="http").check_destination(60)


def test_a_host_that_is_no_host_name_is_retryable() -> None:
    url = "http://otel..svc:4318"  # as a resolver may refuse it, whatever the settings' check says
    client = HttpClient(OtlpConfig(endpoint="http://h:1", protocol="http"), url, {})
    client.open()
    with pytest.raises(RetryableError):
        client.post(b"")
    client.close()


def test_a_connection_that_closes_without_an_answer_is_retryable(http_server: HttpDestination) -> None:
    http_server.answer = lambda body: None
    with started(endpoint=endpoint(http_server), protocol="http") as one:
        with pytest.raises(RetryableError, match="no valid HTTP answer: "):
            one.export_batch([client_push()])
        http_server.answer = lambda body: Reply()
        assert one.export_batch([client_push()]) is None


def test_an_unreachable_destination_is_retryable() -> None:
    with http_destination() as server:
        where = endpoint(server)
    caught = failure(RetryableError, endpoint=where, protocol="http")
    # The system's words, without Python's.
    assert str(caught) == "cannot connect: Connection refused"


def _hang(release: threading.Event, write: Callable[[bytes], object]) -> None:
    release.wait(120)


def _drip(release: threading.Event, write: Callable[[bytes], object]) -> None:
    while not release.wait(0.05):
        write(b"x")


@pytest.mark.parametrize("how", [_hang, _drip])
def test_an_answer_that_does_not_end_is_a_timeout(
    http_server: HttpDestination, how: Callable[[threading.Event, Callable[[bytes], object]], None]
) -> None:
    release = threading.Event()
    http_server.drip = lambda write: how(release, write)
    began = time.monotonic()
    failure(
        RetryableError,
        "no answer within 0.3 s",
        endpoint=endpoint(http_server),
        protocol="http",
        timeout_ms=300,
    )
    assert 0.25 < time.monotonic() - began < 100
    release.set()


def test_errors_mask_a_header_that_the_destination_repeats(http_server: HttpDestination) -> None:
    http_server.answer = lambda body: Reply(401, b"who is Bearer hunter2?", {"content-type": "text/plain"})
    caught = failure(
        RetryableError,
        endpoint=endpoint(http_server),
        protocol="http",
        headers={"authorization": "Bearer hunter2"},
    )
    assert str(caught) == "HTTP 401: who is **********?"


def test_the_environment_does_not_redirect_telemetry(
    http_server: HttpDestination, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with started(endpoint=endpoint(http_server), protocol="http") as one:
        assert one.export_batch([client_push()]) is None


def test_through_the_host_every_push_arrives_after_a_fault(http_server: HttpDestination) -> None:
    answers = iter([Reply(503), Reply(429), None, Reply(502), Reply(504)])
    http_server.answer = lambda body: next(answers, Reply())
    host = PluginHost(
        load_plugins(
            [
                {
                    "type": "otlp",
                    "protocol": "http",
                    "endpoint": endpoint(http_server),
                    "delivery": "memory",
                    "retry": {"initial_ms": 1, "max_ms": 5},
                }
            ]
        )
    )
    host.start()
    host.offer(client_push())
    wait_for(lambda: host.statistics()[0].exported_pushes == 1)
    host.stop(60)
    (statistics,) = host.statistics()
    assert (statistics.failures, statistics.retries, statistics.exported_batches) == (5, 5, 1)


def server_tls(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates.ca)
    context.load_cert_chain(certificates.cert("server"), certificates.key("server"))
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_tls_with_a_client_certificate(certificates: Certificates) -> None:
    ours = {"cert_file": str(certificates.cert("client")), "key_file": str(certificates.key("client"))}
    with http_destination(server_tls(certificates)) as server:
        where = endpoint(server, "https")
        with started(endpoint=where, protocol="http", tls={"ca_file": str(certificates.ca), **ours}) as one:
            assert one.export_batch([client_push()]) is None
        for tls in (None, ours, {"ca_file": str(certificates.ca)}):
            failure(RetryableError, endpoint=where, protocol="http", tls=tls, timeout_ms=2000)
    assert len(server.bodies) == 1


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize(
    ("tls", "error"),
    [
        ({"ca_file": __file__}, "tls.ca_file "),
        ({"cert_file": "client.pem", "key_file": "ca.key"}, "tls.cert_file "),
        ({"cert_file": "client.pem", "key_file": "encrypted.key"}, "tls.cert_file "),
    ],
    ids=["no certificate", "another's key", "encrypted key"],
)
def test_an_invalid_tls_file_fails_the_start_and_is_named(
    certificates: Certificates, protocol: str, tls: dict[str, str], error: str
) -> None:
    paths = {key: str(certificates.folder / file) for key, file in tls.items()}
    one = plugin(endpoint="https://127.0.0.1:1", protocol=protocol, tls=paths)
    with pytest.raises(OSError, match=error):
        one.start()
    one.stop()
