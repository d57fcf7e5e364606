"""Remote write to a real HTTP server whose answers the test chooses."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from plugins.prometheus import PrometheusReceiver
from plugins.prometheus import receiver as prometheus_receiver
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
from tests.unit.host.support import FAST, wait_for
from tests.unit.plugins._shared.cumulative.support import counter, gauge, number
from tests.unit.plugins.destinations import Certificates, HttpDestination, Reply, http_destination
from tests.unit.plugins.prometheus.decoding import decoded, unpacked
from tests.unit.plugins.prometheus.support import push

WRITTEN = "x-prometheus-remote-write-samples-written"


@contextmanager
def writing(
    server: HttpDestination, *, scheme: str = "http", **settings: Any
) -> Iterator[PrometheusReceiver]:
    url = f"{scheme}://127.0.0.1:{server.port}/api/v1/write"
    (hosted,) = load_plugins(
        [{"type": "prometheus", "metric_prefixes": [""], "remote_write": {"url": url, **settings}}]
    )
    assert isinstance(hosted.plugin, PrometheusReceiver)
    hosted.plugin.start()
    try:
        yield hosted.plugin
    finally:
        hosted.plugin.stop()


def all_written(body: bytes) -> Reply:
    count = len(decoded(unpacked(body), "2.0"))
    return Reply(204, headers={WRITTEN: str(count)})


@pytest.fixture
def server(http_server: HttpDestination) -> HttpDestination:
    http_server.answer = all_written
    return http_server


def counted(n: int, value: int = 5, **settings: Any) -> Push:
    return push(counter("c", number(value, since=n - 1, at=n)), at=n, **settings)


def totals(bodies: Sequence[bytes], version: str = "2.0") -> list[list[float]]:
    """Return the counter's values in each request. A stale marker is not equal to itself."""
    return [
        [
            sample.value
            for labels, sample, _ in decoded(unpacked(body), version)
            if labels["__name__"] == "c_total"
        ]
        for body in bodies
    ]


@pytest.mark.parametrize(
    ("version", "content_type", "protocol_version"),
    [
        ("1.0", "application/x-protobuf", "0.1.0"),
        ("2.0", "application/x-protobuf;proto=io.prometheus.write.v2.Request", "2.0.0"),
    ],
)
def test_the_headers_of_a_request_name_its_version(
    http_server: HttpDestination, version: str, content_type: str, protocol_version: str
) -> None:
    http_server.answer = lambda body: Reply(204, headers={WRITTEN: "2"})
    with writing(http_server, version=version, headers={"x-scope-orgid": "me"}) as one:
        assert one.export_batch([counted(1)]) is None
    assert http_server.paths == ["/api/v1/write"]
    (headers,) = http_server.headers
    assert headers["content-type"] == content_type
    assert headers["content-encoding"] == "snappy"
    assert headers["x-prometheus-remote-write-version"] == protocol_version
    assert headers["user-agent"].startswith("kafka-client-telemetry/")
    assert headers["x-scope-orgid"] == "me"
    assert totals(http_server.bodies, version) == [[5]]


def test_pushes_of_a_batch_are_one_request_in_their_order(server: HttpDestination) -> None:
    with writing(server) as one:
        one.export_batch([counted(1), counted(2), counted(3)])
        one.export(counted(4).context, counted(4).payload)
    assert totals(server.bodies) == [[5, 10, 15], [20]]
    assert server.connections == 1


def test_a_retry_sends_the_same_bytes_and_counts_once(server: HttpDestination) -> None:
    batch = [counted(1), counted(2), counted(3), counted(4)]
    with writing(server) as one:
        server.answer = lambda body: Reply(503)
        with pytest.raises(RetryableError):
            one.export_batch(batch)
        server.answer = lambda body: Reply(400)
        with pytest.raises(BatchRefusedError):
            one.export_batch(batch)
        server.answer = all_written
        one.export_batch(batch[:2])
        one.export_batch(batch[2:])
        one.export_batch([counted(5)])
    first, second, *_ = server.bodies
    assert first == second
    assert totals(server.bodies)[1:] == [[5, 10, 15, 20], [5, 10], [15, 20], [25]]


def test_a_dropped_push_is_in_the_next_total(server: HttpDestination) -> None:
    with writing(server) as one:
        server.answer = lambda body: Reply(503)
        with pytest.raises(RetryableError):
            one.export_batch([counted(1)])
        server.answer = all_written
        one.export_batch([counted(2)])
    assert totals(server.bodies)[-1] == [10]


def test_staleness_markers_are_written_after_the_last_samples(server: HttpDestination) -> None:
    with writing(server) as one:
        one.export_batch([counted(1)])
        one.export_batch([counted(2, terminating=True)])
    assert len(server.bodies) == 3
    last, end = totals(server.bodies)[1:]
    assert last == [10]
    assert end[0] != end[0]


def test_no_staleness_marker_overtakes_waiting_samples(server: HttpDestination) -> None:
    batch = [counted(1, terminating=True), counted(1, instance="b", terminating=True)]
    with writing(server) as one:
        server.answer = lambda body: Reply(400)
        with pytest.raises(BatchRefusedError):
            one.export_batch(batch)
        server.answer = all_written
        for push_ in batch:
            one.export_batch([push_])
    written = [(values, values[0] == values[0]) for values in totals(server.bodies)[1:]]
    assert [sample for _, sample in written] == [True, False, True, False]
    assert all(len(values) == 1 for values, _ in written)


def test_silent_series_end_also_after_a_restart(
    server: HttpDestination, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugins.prometheus.receiver._CHECK_EVERY_S", 0.1)
    with writing(server) as one:
        one.stop()
        one.start()
        one.export_batch([counted(1, interval_ms=300)])
        wait_for(lambda: len(server.bodies) == 2)
    (end,) = totals(server.bodies)[1]
    assert end != end


@pytest.mark.parametrize(("status", "ends"), [(503, 1), (400, 0)])
def test_a_failed_staleness_marker_fails_no_push(server: HttpDestination, status: int, ends: int) -> None:
    server.answer = lambda body: (
        all_written(body) if totals([body]) != [[]] and totals([body])[0][0] > 0 else Reply(status)
    )
    with writing(server) as one:
        assert one.export_batch([counted(1, terminating=True)]) is None
        server.answer = all_written
        before = len(server.bodies)
        assert one.export_batch([counted(2, instance="b")]) is None
    assert sum(values[0] != values[0] for values in totals(server.bodies[before:])) == ends


def test_a_refused_staleness_marker_costs_no_other(http_server: HttpDestination) -> None:
    ended: list[str] = []

    def refuse_one(body: bytes) -> Reply:
        series = [
            labels for labels, sample, _ in decoded(unpacked(body), "1.0") if sample.value != sample.value
        ]
        if any(labels.get("n") == "7" for labels in series):
            return Reply(400)
        ended.extend(labels["n"] for labels in series if "n" in labels)
        return Reply(204)

    http_server.answer = refuse_one
    points = [number(1, at=1, labels={"n": n}) for n in range(100)]
    with writing(http_server, version="1.0") as one:
        assert one.export_batch([push(counter("c", *points), at=1, terminating=True)]) is None
    assert sorted(ended, key=int) == [str(n) for n in range(100) if n != 7]


def test_staleness_markers_wait_for_the_requested_delay(server: HttpDestination) -> None:
    server.answer = lambda body: (
        all_written(body) if totals([body])[0][0] > 0 else Reply(429, headers={"retry-after": "1"})
    )
    with writing(server) as one:
        one.export_batch([counted(1, terminating=True)])
        one.export_batch([counted(2, instance="b")])
        assert len(server.bodies) == 3
        server.answer = all_written
        time.sleep(1.1)
        one.export_batch([counted(3, instance="b")])
    assert sum(values[0] != values[0] for values in totals(server.bodies)) == 2


@pytest.mark.parametrize(
    ("status", "headers", "kind", "after"),
    [
        (500, {}, UnclearError, None),
        (503, {"retry-after": "7"}, RetryableError, 7.0),
        (429, {"retry-after": "3"}, RetryableError, 3.0),
        (413, {}, BatchRefusedError, None),
        (400, {}, BatchRefusedError, None),
        (400, {WRITTEN: "0"}, BatchRefusedError, None),
        (409, {}, BatchRefusedError, None),
        (401, {}, RetryableError, None),
        (403, {}, RetryableError, None),
        (404, {}, RetryableError, None),
        (415, {}, RetryableError, None),
    ],
)
def test_every_answer_maps_to_an_error(
    http_server: HttpDestination,
    status: int,
    headers: dict[str, str],
    kind: type[ExportError],
    after: float | None,
) -> None:
    http_server.answer = lambda body: Reply(status, b"why", headers)
    with writing(http_server) as one, pytest.raises(kind) as caught:
        one.export_batch([counted(1)])
    assert type(caught.value) is kind
    assert str(caught.value) == f"HTTP {status}: why"
    if isinstance(caught.value, RetryableError):
        assert caught.value.retry_after_s == after


def test_each_reason_is_told_once_with_its_number(http_server: HttpDestination) -> None:
    late = [push(counter("c", number(5, since=0, at=1)), at=at) for at in (1, 11, 12)]
    http_server.answer = lambda body: Reply(400, b"out of order", {WRITTEN: "1"})
    with writing(http_server) as one:
        result = one.export_batch(late)
    assert result is not None
    assert result.rejected_points == 3
    assert result.message == ("points left out: 2 not after the last of the series; HTTP 400: out of order")


def test_a_partial_write_is_a_partial_success(http_server: HttpDestination) -> None:
    http_server.answer = lambda body: Reply(400, b"out of order", {WRITTEN: "1"})
    with writing(http_server) as one:
        assert one.export_batch([counted(1)]) == ExportResult(
            rejected_points=1, message="HTTP 400: out of order"
        )


def test_a_destination_without_2_0_is_an_error_with_the_fix(http_server: HttpDestination) -> None:
    http_server.answer = lambda body: Reply(204)
    with writing(http_server) as one, pytest.raises(RetryableError, match=r"set version 1\.0"):
        one.export_batch([counted(1)])


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_but_named_and_retried(http_server: HttpDestination, status: int) -> None:
    http_server.answer = lambda body: Reply(status, headers={"location": "http://h/write?key=hunter2"})
    with writing(http_server) as one, pytest.raises(RetryableError) as caught:
        one.export_batch([counted(1)])
    assert f"HTTP {status}: a redirect to http://h/write, which is not followed" in str(caught.value)
    assert len(http_server.bodies) == 1


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_page_for_people_is_no_delivery(http_server: HttpDestination, version: str) -> None:
    page = {"content-type": "text/html; charset=utf-8", WRITTEN: "2"}
    http_server.answer = lambda body: Reply(200, b"<title>Sign in</title>", page)
    with (
        writing(http_server, version=version) as one,
        pytest.raises(RetryableError, match=r"Sign in.*no remote write endpoint"),
    ):
        one.export_batch([counted(1)])


def test_a_missing_answer_is_retryable(http_server: HttpDestination) -> None:
    http_server.answer = lambda body: None
    with writing(http_server) as one, pytest.raises(RetryableError):
        one.export_batch([counted(1)])


def test_an_answer_sent_byte_by_byte_is_a_timeout(http_server: HttpDestination) -> None:
    def drip(write: Any) -> None:
        for _ in range(100):
            write(b"x")

    http_server.drip = drip
    with writing(http_server, timeout_ms=200) as one, pytest.raises(RetryableError):
        one.export_batch([counted(1)])


def test_errors_mask_a_secret_that_the_destination_repeats(http_server: HttpDestination) -> None:
    http_server.answer = lambda body: Reply(401, b"no such token: hunter2")
    headers = {"authorization": "hunter2"}
    with writing(http_server, headers=headers) as one, pytest.raises(RetryableError) as caught:
        one.export_batch([counted(1)])
    assert "hunter2" not in str(caught.value)


def test_tls(certificates: Certificates) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.cert("server"), certificates.key("server"))
    with http_destination(context) as server:
        server.answer = all_written
        with writing(server, scheme="https", tls={"ca_file": str(certificates.ca)}) as one:
            assert one.export_batch([counted(1)]) is None
        with (
            writing(server, scheme="https") as one,
            pytest.raises(RetryableError, match="certificate verify failed"),
        ):
            one.export_batch([counted(1)])


def test_a_push_without_samples_makes_no_request_and_says_so(server: HttpDestination) -> None:
    with writing(server) as one:
        assert one.export_batch([push(at=10)]) == ExportResult(sent=False)
        assert server.bodies == []
        assert one.export_batch([counted(11)]) is None


def test_dropped_points_are_reported(server: HttpDestination) -> None:
    with writing(server) as one:
        one.export_batch([counted(1)])
        result = one.export_batch([counted(2, -5)])
    assert result is not None
    assert result.rejected_points == 1


def test_through_the_host_nothing_counts_twice(server: HttpDestination) -> None:
    replies = iter([Reply(503), None, Reply(429)])
    server.answer = lambda body: next(replies, None) or all_written(body)
    settings = {
        "type": "prometheus",
        "metric_prefixes": [""],
        "remote_write": {"url": f"http://127.0.0.1:{server.port}/w"},
        **FAST,
    }
    host = PluginHost(load_plugins([{**settings, "delivery": "memory"}]))
    host.start()
    for n in range(1, 21):
        host.offer(counted(n))
    wait_for(lambda: host.statistics()[0].exported_pushes == 20)
    assert host.stop(10)
    assert [value for values in totals(server.bodies) for value in values][-1] == 100
    assert max(value for values in totals(server.bodies) for value in values) == 100


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_requests_are_bounded_with_long_labels(
    server: HttpDestination, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 1.0 repeats labels for each sample: 400 kB of pushes become 2 MB of requests."""
    monkeypatch.setattr(prometheus_receiver, "_MAX_REQUEST_BYTES", 100_000)
    server.answer = lambda body: Reply(204, headers={WRITTEN: str(len(decoded(unpacked(body), version)))})
    resource = {"client_instance_id": "i", "client_id": "x" * 1_000}
    metrics = [gauge(f"g{n}", number(n, at=1)) for n in range(1_000)]
    with writing(server, version=version) as one:
        assert one.export_batch([push(*metrics, at=1, resource=resource)]) is None
    assert max(len(unpacked(body)) for body in server.bodies) < 150_000
    found = [labels["__name__"] for body in server.bodies for labels, *_ in decoded(unpacked(body), version)]
    assert found == ["target_info", *(f"g{n}" for n in range(1_000))]


def test_waiting_staleness_markers_are_bounded(server: HttpDestination) -> None:
    with writing(server) as one:
        server.answer = lambda body: Reply(503)
        one._max_end_bytes = 100_000
        large = {"n": "x" * 3_000}
        for n in range(5):
            metrics = [gauge(f"g{m}", number(1, at=n, labels=large)) for m in range(20)]
            written = one._table.add(push(*metrics, at=n, instance=f"i-{n}", terminating=True))
            one._add_ends(written.ends)
        assert 0 < one._end_bytes <= one._max_end_bytes
        assert one._end_bytes == sum(map(prometheus_receiver._sample_bytes, one._ends))
