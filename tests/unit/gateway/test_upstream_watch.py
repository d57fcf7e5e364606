"""The watch over a broker: what a probe learns and reports, and its retries."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from receiver.brokers.listener_broker import KnownBroker, ListenerBroker
from receiver.brokers.upstream import Upstream
from receiver.gateway.handshake import HandshakeTurns
from receiver.gateway.upstream import watch as watch_module
from receiver.gateway.upstream.address import UpstreamAddress
from receiver.gateway.upstream.probe import ProbeError, probe
from receiver.gateway.upstream.watch import UpstreamWatch
from receiver.telemetry.identity import Broker
from receiver.wire.broker_addresses import BrokerAddress
from receiver.wire.k03_metadata import Cluster
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.scripted_broker import (
    API_VERSIONS,
    CLUSTER_ID,
    DESCRIBE_CONFIGS,
    METADATA,
    NODE_ID,
    RANGES,
    Peer,
    ScriptedBroker,
    framed,
    parse,
    request_frame,
)
from tests.unit.gateway.support import eventually, listener_settings, on_loop

V5 = {**RANGES, API_VERSIONS: (0, 5)}
CLUSTER = Cluster(CLUSTER_ID, tuple(BrokerAddress(number, "kafka", 9090 + number) for number in (1, 2, 3)))


async def ask(
    port: int,
    *,
    needs_login: bool = False,
    timeout_s: float = 5.0,
    known: ListenerBroker | None = None,
    upstream: Upstream | None = None,
) -> tuple[KnownBroker, Upstream]:
    upstream = upstream or Upstream()
    address = UpstreamAddress(listener_settings(port), HandshakeTurns())
    broker = known or ListenerBroker(Broker(), (LOOPBACK, port), 1)
    await probe(address, upstream, broker, needs_login=needs_login, login=None, timeout_s=timeout_s)
    return broker.known, upstream


def test_a_probe_learns_versions_and_cluster(broker: ScriptedBroker) -> None:
    known, upstream = on_loop(ask(broker.port))
    assert known.broker.cluster_id == CLUSTER_ID
    assert upstream.ranges == {key: RANGES[key] for key in (METADATA, API_VERSIONS, 36)}
    assert broker.peers[0].ended.wait(120)


def test_a_probe_finds_the_brokers_own_telemetry() -> None:
    ranges = {**RANGES, 71: (0, 0), 72: (0, 0), 74: (0, 1)}

    def two_resources(peer: Peer) -> None:
        for data in peer.frames():
            if parse(data).api_key == 74:
                answer = bytes(5) + bytes(6) + b"\x03\x02a\0\x02b\0\0"
                peer.socket.sendall(framed(data[4:8] + answer[4:]))
            else:
                peer.answer(data)

    with ScriptedBroker(ranges=ranges) as broker:
        broker.script = two_resources
        for reads_resources, unread in ((False, 2), (True, 0)):
            upstream = Upstream(reads_resources=reads_resources)
            known = on_loop(ask(broker.port, upstream=upstream))[0]
            assert (known.takes_telemetry, known.unread_resources) == (True, unread)


def test_a_probe_asks_no_listener_with_sasl_for_the_cluster(broker: ScriptedBroker) -> None:
    known, upstream = on_loop(ask(broker.port, needs_login=True))
    assert known.broker == Broker()
    assert upstream.ranges
    assert [request.api_key for request in broker.peers[0].answers.seen] == [API_VERSIONS]


@pytest.mark.parametrize("metadata", [(0, 13), (4, 8), (9, 12), (13, 20)])
def test_a_probe_asks_for_metadata_in_a_version_that_the_broker_has(metadata: tuple[int, int]) -> None:
    with ScriptedBroker(ranges={**RANGES, METADATA: metadata}) as broker:
        known, _ = on_loop(ask(broker.port))
        assert known.broker.cluster_id == CLUSTER_ID


def after_the_question(then: Callable[[Peer], None]) -> Callable[[Peer], None]:
    def script(peer: Peer) -> None:
        next(peer.frames())
        then(peer)

    return script


ANSWERS: dict[str, tuple[Callable[[Peer], None], str]] = {
    "nothing and the end": (lambda peer: None, "if that listener speaks TLS"),
    "a part and the end": (lambda peer: peer.socket.sendall(b"\0\0\1\0abc"), "if that listener speaks TLS"),
    "a reset": (Peer.reset, "Connection reset by peer"),
    "HTTP": (lambda peer: peer.socket.sendall(b"HTTP/1.1 400 Bad\r\n\r\n"), "the response is not Kafka's"),
    "a TLS alert": (
        lambda peer: peer.socket.sendall(bytes.fromhex("15030300020250") + bytes(30)),
        "that listener speaks TLS: set",
    ),
    "a negative length": (lambda peer: peer.socket.sendall(b"\xff" * 8), "the response is not Kafka's"),
    "an empty answer": (lambda peer: peer.socket.sendall(framed(b"")), "the response is not Kafka's"),
    "a cut answer": (lambda peer: peer.socket.sendall(framed(bytes(8))), "the response is not Kafka's"),
    "an error": (
        lambda peer: peer.socket.sendall(framed(struct.pack(">ihi", 0, 42, 0))),
        "answered ApiVersions with INVALID_REQUEST",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_probe_says_what_is_wrong(broker: ScriptedBroker, name: str) -> None:
    then, expected = ANSWERS[name]
    broker.script = after_the_question(then)
    with pytest.raises(ProbeError, match=expected):
        on_loop(ask(broker.port))


def test_a_probe_waits_no_longer_than_it_may(broker: ScriptedBroker) -> None:
    over = threading.Event()
    broker.script = after_the_question(lambda peer: void(over.wait(120)))
    with pytest.raises(ProbeError, match=r"^no response within 0\.2 s$"):
        on_loop(ask(broker.port, timeout_s=0.2))
    over.set()


def void(_: object) -> None:
    """Make a script of something that returns a value."""


def test_an_error_has_the_systems_words() -> None:
    with pytest.raises(ProbeError, match=r"^Connection refused$"):
        on_loop(ask(free_port()))


def watch(port: int, broker: ListenerBroker | None = None, upstream: Upstream | None = None) -> UpstreamWatch:
    settings = listener_settings(port)
    address = UpstreamAddress(settings, HandshakeTurns())
    known = broker or ListenerBroker(Broker(id=NODE_ID), (LOOPBACK, port), 1)
    return UpstreamWatch(settings, address, known, upstream or Upstream(), on_change=lambda: None)


def test_a_watch_asks_until_there_is_an_answer() -> None:
    async def main() -> None:
        broker = ScriptedBroker()
        known = ListenerBroker(Broker(id=NODE_ID), (LOOPBACK, broker.port), 1)
        upstream = Upstream()
        watching = watch(broker.port, known, upstream)
        assert watching.problem == "not probed yet"
        with capture_logs() as log:
            watching.start()
            await eventually(lambda: watching.problem == "Connection refused", "a refusal")
            with broker:
                await eventually(lambda: watching.problem is None, "the broker")
        watching.stop()
        assert known.known.broker.cluster_id == CLUSTER_ID
        assert upstream.ranges
        assert [line["event"] for line in log] == ["the broker does not answer", "the broker answers"]

    on_loop(main())


def test_a_watch_goes_on_after_a_defect(broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as no descriptor for a node's port: the broker must not stay away for good."""
    monkeypatch.setattr(watch_module, "_RETRY_AFTER_S", (0.01,))
    failures: list[Exception] = [LookupError(), ArithmeticError()]

    def fail() -> None:
        if failures:
            raise failures.pop()

    async def main() -> None:
        watching = watch(broker.port)
        watching._on_change = fail
        with capture_logs() as log:
            watching.start()
            await eventually(lambda: watching._again is not None, "the broker")
            watching.stop()
        assert [line["error"] for line in log if "worker" in line] == ["ArithmeticError", "LookupError"]

    on_loop(main())


def test_a_watch_hears_of_failures_and_of_the_brokers_return(broker: ScriptedBroker) -> None:
    async def main() -> None:
        watching = watch(broker.port)
        watching.start()
        await eventually(lambda: watching.problem is None, "the broker")
        watching.failed("Connection refused")
        assert watching.problem == "Connection refused"
        await eventually(lambda: watching.problem is None, "the broker again")
        watching.stop()

    on_loop(main())


def test_a_check_reports_a_dead_broker_and_logs_nothing_for_a_live_one(
    broker: ScriptedBroker,
) -> None:
    async def main() -> None:
        watching = watch(broker.port)
        watching.start()
        await eventually(lambda: watching.problem is None, "the broker")
        asked = len(broker.peers)
        with capture_logs() as log:
            for _ in range(100):
                watching.check()
            await eventually(lambda: len(broker.peers) > asked, "a check")
            await asyncio.sleep(0.1)
            assert len(broker.peers) == asked + 1, "a hundred ends of connections are one question"
            assert log == []
            broker.stop()
            watching.check()
            await eventually(lambda: watching.problem is not None, "the broker's end")
        assert [line["event"] for line in log] == ["the broker does not answer"]
        watching.stop()

    on_loop(main())


def test_a_broker_other_than_the_configured_one_is_an_error_until_it_is_right() -> None:
    async def main() -> None:
        with ScriptedBroker(ranges=V5) as broker:
            known = ListenerBroker(Broker(id=7), (LOOPBACK, broker.port), 1)
            watching = watch(broker.port, known)
            with capture_logs() as log:
                watching.start()
                await eventually(lambda: known.problem is not None, "the problem")
                watching.stop()
            assert known.known.broker == Broker(id=NODE_ID, cluster_id=CLUSTER_ID)
            problem = known.problem
            assert problem == (
                "broker.id is 7, but the broker's node id is 1; set broker.id to 1 or auto, or correct the "
                "upstream"
            )
            (line,) = log
            assert (line["log_level"], line["problem"]) == ("error", problem)

    on_loop(main())


def test_a_broker_proves_its_node_id_by_a_question_for_it() -> None:
    with ScriptedBroker(ranges=V5, node_id=3) as broker:
        known = ListenerBroker(Broker(), (LOOPBACK, broker.port), 1)
        known.record_cluster(CLUSTER)
        assert known.known == KnownBroker(broker=Broker(cluster_id=CLUSTER_ID), nodes=(1, 2, 3))
        on_loop(ask(broker.port, known=known))
        assert (known.known.broker, known.known.proven) == (Broker(id=3, cluster_id=CLUSTER_ID), True)


def test_a_broker_is_asked_for_one_likely_node_id_at_a_time() -> None:
    """For each id that is not its own it writes a stack trace."""
    ranges = {**RANGES, API_VERSIONS: (0, 4), DESCRIBE_CONFIGS: (1, 3)}
    with ScriptedBroker(ranges=ranges, node_id=3) as broker:
        known = ListenerBroker(Broker(id=2), (LOOPBACK, broker.port), 1)
        for expected in (2, 1):  # the configured one and its own, and later its own
            on_loop(ask(broker.port, known=known))
            assert (known.known.broker.id, known.known.proven) == (3, True)
            seen = [request.api_key for request in broker.peers[-1].answers.seen]
            assert seen.count(DESCRIBE_CONFIGS) == expected
            known.mark_away()


def test_a_broker_that_ignores_the_question_proves_nothing() -> None:
    ranges = {**RANGES, API_VERSIONS: (0, 5)}

    def answer(peer: Peer) -> None:
        for data in peer.frames():
            request = parse(data)
            if (request.api_key, request.api_version) == (API_VERSIONS, 5):
                data = request_frame(API_VERSIONS, 3, request.correlation_id, b"\0\2a\2b\0")[4:]
            peer.answer(data)

    with ScriptedBroker(ranges=ranges) as broker:
        broker.script = answer
        known, _ = on_loop(ask(broker.port))
    # It is the only one of its cluster.
    assert (known.broker, known.proven) == (Broker(id=NODE_ID, cluster_id=CLUSTER_ID), False)


def test_a_broker_that_hangs_is_found_although_no_connection_fails(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.gateway.upstream.watch._ALIVE_EVERY_S", 0.01)
    monkeypatch.setattr("receiver.gateway.upstream.watch._ALIVE_WITHIN_S", 0.5)
    hangs, over = threading.Event(), threading.Event()

    def answer_until_it_hangs(peer: Peer) -> None:
        for data in peer.frames():
            if hangs.is_set():
                over.wait(120)
            peer.answer(data)

    async def main() -> None:
        broker.script = answer_until_it_hangs
        watching = watch(broker.port)
        watching.start()
        await eventually(lambda: len(broker.peers) > 3, "questions without a cause")
        assert watching.problem is None
        hangs.set()
        await eventually(lambda: watching.problem == "no response within 0.5 s", "the problem")
        assert not watching.away
        hangs.clear()
        over.set()
        await eventually(lambda: watching.problem is None, "the broker again")
        watching.stop()

    on_loop(main())


def test_a_proven_broker_is_probed_again(broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receiver.gateway.upstream.watch._PROBE_EVERY_S", 0.01)

    async def main() -> None:
        watching = watch(broker.port)
        watching.start()
        await eventually(lambda: len(broker.peers) > 2, "more probes")
        assert METADATA in [request.api_key for request in broker.peers[1].answers.seen]
        watching.stop()

    on_loop(main())


def test_a_stopped_watch_asks_no_more() -> None:
    async def main() -> None:
        with socket.create_server((LOOPBACK, 0)) as silent:
            watching = watch(silent.getsockname()[1])
            watching.start()
            await asyncio.sleep(0.05)
            watching.stop()
            await asyncio.sleep(0.05)
            assert len(asyncio.all_tasks()) <= 2  # this test's own

    on_loop(main())
