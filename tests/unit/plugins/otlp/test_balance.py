from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import grpc
import pytest

from plugins.otlp.balance import BalancedTransport, Transport
from plugins.otlp.config import Endpoint
from receiver.plugin import BatchRefusedError, ExportResult, RetryableError
from tests.unit.plugins.destinations import (
    GrpcDestination,
    HttpDestination,
    Reply,
    grpc_destination,
    http_destination,
)
from tests.unit.plugins.support import client_push, started

PUSH = client_push()


@pytest.fixture
def three() -> Iterator[list[HttpDestination]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(http_destination()) for _ in range(3)]


def urls(servers: list[HttpDestination]) -> list[str]:
    return [f"http://127.0.0.1:{server.port}" for server in servers]


def counts(servers: list[HttpDestination]) -> list[int]:
    return [len(server.bodies) for server in servers]


def test_exports_go_to_each_endpoint_in_turn(three: list[HttpDestination]) -> None:
    with started(endpoints=urls(three), protocol="http") as one:
        for _ in range(9):
            assert one.export_batch([PUSH]) is None
    assert counts(three) == [3, 3, 3]


def test_grpc_takes_turns_too_and_skips_an_unreachable_endpoint() -> None:
    def endpoint(server: GrpcDestination) -> str:
        return f"http://127.0.0.1:{server.port}"

    with grpc_destination() as gone:
        pass
    with (
        grpc_destination() as a,
        grpc_destination() as b,
        started(endpoints=[endpoint(a), endpoint(gone), endpoint(b)]) as one,
    ):
        for _ in range(12):
            one.export_batch([PUSH])
        assert len(a.bodies) + len(b.bodies) == 12
        assert min(len(a.bodies), len(b.bodies)) >= 4
        a.answer = lambda body, context: context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")
        b.answer = a.answer
        with pytest.raises(BatchRefusedError, match="INVALID_ARGUMENT: no"):
            one.export_batch([PUSH])
        assert len(a.bodies) + len(b.bodies) == 13, "another endpoint would say the same"


def test_the_next_endpoint_gets_an_export_that_one_cannot_accept_now(three: list[HttpDestination]) -> None:
    three[1].answer = lambda body: Reply(503)
    with started(endpoints=urls(three), protocol="http") as one:
        for _ in range(9):
            one.export_batch([PUSH])
    assert counts(three) == [3, 2, 6], "two failures in a row leave it out"


def test_each_endpoint_is_tried_once_and_a_failure_of_all_is_retryable(
    three: list[HttpDestination],
) -> None:
    for server, after in zip(three, ("40", "17", "30"), strict=True):
        server.answer = lambda body, after=after: Reply(503, headers={"retry-after": after})  # type: ignore[misc]
    with started(endpoints=urls(three), protocol="http") as one:
        with pytest.raises(RetryableError) as caught:
            one.export_batch([PUSH])
        assert counts(three) == [1, 1, 1]
        assert caught.value.retry_after_s == pytest.approx(17, abs=1)
        assert str(caught.value).count("HTTP 503") == 3
        assert all(url in str(caught.value) for url in urls(three))
        with pytest.raises(RetryableError, match="none of 3 endpoints") as caught:
            one.export_batch([PUSH])
        assert caught.value.retry_after_s == pytest.approx(17, abs=1)
    assert counts(three) == [1, 1, 1], "each result when to come back"


def test_a_refusal_of_the_content_is_raised_unchanged(three: list[HttpDestination]) -> None:
    three[0].answer = lambda body: Reply(400, b"no", {})
    with (
        started(endpoints=urls(three), protocol="http") as one,
        pytest.raises(BatchRefusedError, match=r"^HTTP 400: no$"),
    ):
        one.export_batch([PUSH])
    assert counts(three) == [1, 0, 0]


def test_an_endpoint_that_refuses_all_requests_costs_no_push(three: list[HttpDestination]) -> None:
    three[0].answer = lambda body: Reply(401, b"no", {})
    with started(endpoints=urls(three), protocol="http") as one:
        result = one.export_batch([PUSH])
        assert result is not None
        assert result.message == f"another endpoint accepted what failed at {urls(three)[0]}: HTTP 401: no"
        assert one.export_batch([PUSH]) is None
        assert counts(three) == [1, 2, 0]
        three[1].answer = lambda body: Reply(503)
        three[2].answer = three[0].answer
        with pytest.raises(RetryableError, match=r"HTTP 401: no; .*HTTP 401: no; .*HTTP 503: "):
            one.export_batch([PUSH])
    assert counts(three) == [2, 3, 1]


def test_an_endpoint_that_names_an_absurd_delay_comes_back_at_the_usual_time(
    three: list[HttpDestination],
) -> None:
    for server in three:
        server.answer = lambda body: Reply(503, headers={"retry-after": "31536000"})
    with started(endpoints=urls(three), protocol="http", timeout_ms=1000) as one:
        for _ in range(2):
            with pytest.raises(RetryableError) as caught:
                one.export_batch([PUSH])
        assert caught.value.retry_after_s == pytest.approx(10, abs=1)


def test_the_timeout_applies_to_each_attempt(three: list[HttpDestination]) -> None:
    release = threading.Event()

    def hang(write: Callable[[bytes], object]) -> None:
        release.wait(120)

    for server in three[:2]:
        server.drip = hang
    with started(endpoints=urls(three), protocol="http", timeout_ms=300) as one:
        began = time.monotonic()
        result = one.export_batch([PUSH])
        assert result is not None
        assert result.message.count("another endpoint accepted what failed at") == 2
        assert 0.55 < time.monotonic() - began < 100
    release.set()
    assert counts(three) == [1, 1, 1]


class Scripted:
    """A transport that the test switches on and off."""

    def __init__(self) -> None:
        self.up = True
        self.asked = 0

    def open(self) -> None: ...

    def close(self) -> None: ...

    def export(self, body: bytes) -> ExportResult | None:
        self.asked += 1
        if not self.up:
            raise RetryableError("down")
        return None


def test_a_skipped_endpoint_is_tried_again_and_takes_its_turn() -> None:
    now = 100.0
    a, b = Scripted(), Scripted()
    transports: list[tuple[Endpoint, Transport]] = [(Endpoint("http://a:1"), a), (Endpoint("http://b:1"), b)]
    both = BalancedTransport(transports, timeout_s=4.0, clock=lambda: now)
    a.up = False
    for _ in range(10):
        both.export(b"")
    assert (a.asked, b.asked) == (2, 10)
    now += 19.9
    both.export(b"")
    both.export(b"")
    assert a.asked == 2
    now += 0.2  # five timeouts
    both.export(b"")
    both.export(b"")
    assert a.asked == 3, "a trial that fails is one"
    a.up = True
    now += 20.1
    for _ in range(10):
        both.export(b"")
    assert a.asked == 3 + 5
    b.up = False
    a.up = False
    for _ in range(3):
        with pytest.raises(RetryableError):
            both.export(b"")
    with pytest.raises(RetryableError, match="none of 2 endpoints") as caught:
        both.export(b"")
    assert caught.value.retry_after_s == 20.0
