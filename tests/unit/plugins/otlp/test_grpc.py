from __future__ import annotations

import threading
import time
from collections.abc import Callable

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from receiver.host.delivery.statistics import DropReason
from receiver.host.discovery import load_plugins
from receiver.host.host import PluginHost
from receiver.plugin import BatchRefusedError, ExportError, ExportResult, RetryableError, UnclearError
from tests.unit.host.support import push, wait_for
from tests.unit.plugins.destinations import (
    Certificates,
    GrpcDestination,
    grpc_destination,
    http_destination,
    retry_info,
    rpc_status,
)
from tests.unit.plugins.support import client_push, failure, started

Code = grpc.StatusCode
UNCLEAR = {Code.RESOURCE_EXHAUSTED, Code.INTERNAL, Code.UNKNOWN}


def endpoint(server: GrpcDestination, scheme: str = "http") -> str:
    return f"{scheme}://127.0.0.1:{server.port}"


def failing(
    code: grpc.StatusCode, message: str = "why", details: bytes | None = None
) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    def answer(body: bytes, context: grpc.ServicerContext) -> bytes:
        if details is not None:
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
        context.set_code(code)
        context.set_details(message)
        return b""

    return answer


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_several_pushes_arrive_as_one_request_with_their_bytes_unchanged(
    grpc_server: GrpcDestination, compression: str
) -> None:
    pushes = [client_push(), client_push("ck-producer-star-01"), client_push("franz-producer-okprefix-02")]
    with started(endpoint=endpoint(grpc_server), compression=compression, headers={"x-key": "v"}) as plugin:
        assert plugin.export_batch(pushes) is None
        assert plugin.export(pushes[1].context, pushes[1].payload) is None
    assert grpc_server.bodies == [
        b"".join(item.payload.data for item in pushes),
        pushes[1].payload.data,
    ]
    merged = ExportMetricsServiceRequest.FromString(grpc_server.bodies[0])
    assert list(merged.resource_metrics) == [
        resource for item in pushes for resource in item.payload.metrics.resource_metrics
    ]
    metadata = grpc_server.metadata[0]
    assert metadata["x-key"] == "v"
    assert metadata["user-agent"].startswith("kafka-client-telemetry/")


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK])
def test_a_status_code_is_retried_unless_it_is_about_the_content(
    grpc_server: GrpcDestination, code: grpc.StatusCode
) -> None:
    grpc_server.answer = failing(code)
    refused = BatchRefusedError if code is Code.INVALID_ARGUMENT else RetryableError
    kind: type[ExportError] = UnclearError if code in UNCLEAR else refused
    caught = failure(kind, f"{code.name}: why", endpoint=endpoint(grpc_server))
    if isinstance(caught, RetryableError):
        assert caught.retry_after_s is None


@pytest.mark.parametrize("code", [Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE])
@pytest.mark.parametrize("delay_s", [2.5, 0.0, None])
def test_retry_info_makes_an_error_retryable_with_its_delay(
    grpc_server: GrpcDestination, code: grpc.StatusCode, delay_s: float | None
) -> None:
    grpc_server.answer = failing(code, details=rpc_status("busy", retry_info(delay_s)))
    caught = failure(RetryableError, endpoint=endpoint(grpc_server))
    assert caught.retry_after_s == (delay_s or None)


@pytest.mark.parametrize("details", [b"", b"\xff\xff", rpc_status("no details"), b"\x1a\x02\xff\xff"])
def test_details_without_retry_info_change_nothing(grpc_server: GrpcDestination, details: bytes) -> None:
    grpc_server.answer = failing(Code.RESOURCE_EXHAUSTED, details=details)
    failure(UnclearError, endpoint=endpoint(grpc_server))


def test_partial_success_is_counted(grpc_server: GrpcDestination) -> None:
    response = ExportMetricsServiceResponse()
    response.partial_success.rejected_data_points = 7
    response.partial_success.error_message = "too old"
    grpc_server.answer = lambda body, context: response.SerializeToString()
    with started(endpoint=endpoint(grpc_server)) as plugin:
        assert plugin.export_batch([client_push()]) == ExportResult(rejected_points=7, message="too old")


def test_a_warning_is_reported_and_an_unreadable_answer_is_no_delivery(grpc_server: GrpcDestination) -> None:
    warning = ExportMetricsServiceResponse(partial_success=ExportMetricsPartialSuccess(error_message="hm"))
    answers = iter([warning.SerializeToString(), b"\xff\xff\xff"])
    grpc_server.answer = lambda body, context: next(answers)
    with started(endpoint=endpoint(grpc_server)) as plugin:
        assert plugin.export_batch([client_push()]) == ExportResult(message="hm")
        with pytest.raises(RetryableError, match="no OTLP endpoint"):
            plugin.export_batch([client_push()])


def test_a_destination_that_hangs_is_a_timeout(grpc_server: GrpcDestination) -> None:
    release = threading.Event()

    def answer(body: bytes, context: grpc.ServicerContext) -> bytes:
        release.wait(120)
        return b""

    grpc_server.answer = answer
    began = time.monotonic()
    failure(RetryableError, "DEADLINE_EXCEEDED", endpoint=endpoint(grpc_server), timeout_ms=200)
    assert 0.15 < time.monotonic() - began < 100
    release.set()


def test_an_unreachable_destination_is_retryable_and_reconnects() -> None:
    with grpc_destination() as first:
        port = first.port
    failure(RetryableError, "UNAVAILABLE", endpoint=f"http://127.0.0.1:{port}")
    with grpc_destination() as again, started(endpoint=endpoint(again)) as plugin:
        assert plugin.export_batch([client_push()]) is None


def test_the_wrong_protocol_is_an_export_error() -> None:
    with http_destination() as server:
        failure(ExportError, endpoint=f"http://127.0.0.1:{server.port}")


def test_a_batch_over_the_message_limit_is_split_by_the_host() -> None:
    one = client_push()
    size = len(one.payload.data)
    with grpc_destination(options=[("grpc.max_receive_message_length", 2 * size)]) as server:
        entry = {"type": "otlp", "endpoint": endpoint(server), "delivery": "memory"}
        host = PluginHost(load_plugins([entry]))
        for _ in range(4):
            host.offer(one)
        host.offer(push(data=b"".join([one.payload.data] * 3)))
        for _ in range(4):
            host.offer(one)
        host.start()
        wait_for(lambda: host.statistics()[0].exported_pushes == 8)
        host.stop(60)
        (statistics,) = host.statistics()
    assert statistics.dropped[DropReason.PERMANENT] == 1, "alone and still too large"
    assert "larger than max" in (statistics.last_error or "")
    assert sum(len(body) // size for body in server.bodies) == 8


def test_errors_mask_a_header_that_the_destination_repeats(grpc_server: GrpcDestination) -> None:
    grpc_server.answer = failing(Code.UNAUTHENTICATED, "who is Bearer hunter2?")
    caught = failure(
        RetryableError, endpoint=endpoint(grpc_server), headers={"authorization": "Bearer hunter2"}
    )
    assert str(caught) == "UNAUTHENTICATED: who is **********?"
    assert caught.__cause__ is None


def test_tls_with_a_client_certificate(certificates: Certificates) -> None:
    credentials = grpc.ssl_server_credentials(
        [(certificates.key("server").read_bytes(), certificates.cert("server").read_bytes())],
        root_certificates=certificates.ca.read_bytes(),
        require_client_auth=True,
    )
    ours = {"cert_file": str(certificates.cert("client")), "key_file": str(certificates.key("client"))}
    with grpc_destination(credentials) as server:
        where = endpoint(server, "https")
        with started(endpoint=where, tls={"ca_file": str(certificates.ca), **ours}) as plugin:
            assert plugin.export_batch([client_push()]) is None
        for tls in (None, ours, {"ca_file": str(certificates.ca)}):
            failure(RetryableError, "UNAVAILABLE", endpoint=where, tls=tls, timeout_ms=2000)
        failure(RetryableError, endpoint=endpoint(server), timeout_ms=2000)
    assert len(server.bodies) == 1
