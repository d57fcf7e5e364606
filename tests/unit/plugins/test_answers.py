"""What ends the retries of an export: only an answer about its content, for all senders."""

from __future__ import annotations

import re
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from plugins._shared.answers import (
    REFUSED_GRPC_CODES,
    REFUSED_HTTP_STATUSES,
    REFUSED_KAFKA_ERRORS,
    UNCLEAR_GRPC_CODES,
    UNCLEAR_HTTP_STATUSES,
    http_error,
)
from receiver.host.delivery.statistics import PluginStatistics
from receiver.host.discovery import load_plugins
from receiver.host.host import PluginHost
from receiver.plugin import BatchRefusedError, RetryableError, UnclearError
from tests.unit.host.support import FAST, wait_for
from tests.unit.plugins.destinations import GrpcDestination, HttpDestination, Reply
from tests.unit.plugins.support import client_push

PAGE: Final = Path(__file__).parents[3] / "docs" / "delivery.md"
#: The sender, what is retried, what is unclear, what is refused.
ROWS: Final = {
    cells[0]: cells[1:]
    for line in PAGE.read_text().partition("### What is retried")[2].splitlines()
    if line.startswith("| `") and len(cells := [cell.strip() for cell in line.strip("|").split(" | ")]) == 4
}
PUSHES: Final = 5


def words(row: str, pattern: str) -> list[set[str]]:
    return [set(re.findall(pattern, cell)) for cell in ROWS[row]]


def test_the_page_has_the_table_of_the_code() -> None:
    assert len(ROWS) == 3
    retried, unclear, refused = words("`otlp` over HTTP, remote write", r"\b[345]\d\d\b")
    assert refused == {str(status) for status in REFUSED_HTTP_STATUSES}
    assert unclear == {str(status) for status in UNCLEAR_HTTP_STATUSES}
    assert not retried & (unclear | refused)
    retried, unclear, refused = words("`otlp` over gRPC", r"\b[A-Z_]{5,}\b")
    assert refused == set(REFUSED_GRPC_CODES)
    assert unclear == set(UNCLEAR_GRPC_CODES)
    assert retried & (unclear | refused) == {"RESOURCE_EXHAUSTED"}
    *_, refused = words("`kafka_topic`", r"\b[A-Z_]{5,}\b")
    assert refused == set(REFUSED_KAFKA_ERRORS.values())


def test_each_refused_name_exists() -> None:
    assert {HTTPStatus(status) for status in REFUSED_HTTP_STATUSES}
    assert {HTTPStatus(status) for status in UNCLEAR_HTTP_STATUSES}
    assert {grpc.StatusCode[name] for name in (*REFUSED_GRPC_CODES, *UNCLEAR_GRPC_CODES)}


@pytest.mark.parametrize("status", range(300, 600))
def test_every_other_status_is_retried(status: int) -> None:
    error = http_error(status, "why", 7.0)
    if status in REFUSED_HTTP_STATUSES:
        assert type(error) is BatchRefusedError
        assert type(http_error(status, "why", None)) is BatchRefusedError
    else:
        assert isinstance(error, RetryableError)
        assert error.retry_after_s == 7.0
        unclear = type(http_error(status, "why", None)) is UnclearError
        assert unclear == (status in UNCLEAR_HTTP_STATUSES)


def deliver(entry: dict[str, Any], corrected: Any) -> PluginStatistics:
    """Export pushes to a destination that refuses them, until the operator corrects it."""
    host = PluginHost(load_plugins([{**FAST, **entry, "breaker": {"failures": 2}}]))
    host.start()
    for _ in range(PUSHES):
        host.offer(client_push())
    wait_for(lambda: host.statistics()[0].failures >= 4)
    # A failure is counted before the circuit breaker hears of it.
    wait_for(lambda: host.statistics()[0].circuit != "closed")
    corrected()
    wait_for(lambda: host.statistics()[0].exported_pushes == PUSHES)
    host.stop(10)
    return host.statistics()[0]


@pytest.mark.parametrize("status", [301, 302, 307, 308, 401, 403, 404, 405, 407, 500])
@pytest.mark.parametrize("type_", ["otlp", "prometheus"])
def test_an_operators_mistake_over_http_costs_no_push(
    http_server: HttpDestination, type_: str, status: int
) -> None:
    headers = {"location": "/login", "retry-after": "Fri, 31 Dec 99999999999 23:59:59 GMT"}
    http_server.answer = lambda body: Reply(status, b"", headers)
    url = f"http://127.0.0.1:{http_server.port}"
    entry = (
        {"type": "otlp", "protocol": "http", "endpoint": url}
        if type_ == "otlp"
        else {"type": "prometheus", "remote_write": {"url": f"{url}/write", "version": "1.0"}}
    )

    def corrected() -> None:
        http_server.answer = lambda body: Reply()

    statistics = deliver(entry, corrected)
    assert sum(statistics.dropped.values()) == 0
    assert f"HTTP {status}" in (statistics.last_error or "")


@pytest.mark.parametrize("code", ["UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED", "INTERNAL"])
def test_an_operators_mistake_over_grpc_costs_no_push(grpc_server: GrpcDestination, code: str) -> None:
    def refuse(body: bytes, context: grpc.ServicerContext) -> bytes:
        context.set_code(grpc.StatusCode[code])
        return b""

    def corrected() -> None:
        grpc_server.answer = lambda body, context: b""

    grpc_server.answer = refuse
    entry = {"type": "otlp", "endpoint": f"http://127.0.0.1:{grpc_server.port}"}
    statistics = deliver(entry, corrected)
    assert sum(statistics.dropped.values()) == 0
    assert code in (statistics.last_error or "")
