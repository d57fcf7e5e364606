"""The sidecar with failing brokers and slow readers."""

from __future__ import annotations

import struct
import threading
import time

import pytest

from tests.integration.gateway.support import (
    TIMEOUT_S,
    GatewaySidecar,
    Raw,
    config,
    get_subscriptions,
    in_background,
    read_get,
    refusal,
    void,
    works,
)
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import Peer, ScriptedBroker, framed, produce_frame

MIB = 1 << 20


# -- the upstream ----------------------------------------------------------------------------------


@pytest.mark.full
def test_a_sidecar_starts_before_its_broker() -> None:
    broker = ScriptedBroker()
    settings = config(broker.port, gateway={"relays": 1})  # each relay logs for itself
    with GatewaySidecar(settings, wait_for_broker=False) as sidecar:
        sidecar.wait_for_log("clients are refused until the broker can be reached")
        status, reason = sidecar.readiness()
        assert status == 503
        assert f"listener CLIENT: broker 127.0.0.1:{broker.port}: Connection refused" in reason
        assert sidecar.value("ready") == 0
        for _ in range(3):
            assert refusal(sidecar.port())[0] == "refused"
        assert sidecar.value("connections_refused_total", listener="CLIENT", reason="upstream") == 0
        assert sidecar.connections() == []
        sidecar.wait_for_log(f"127.0.0.1:{broker.port}")
        with broker:
            wait_until(lambda: sidecar.readiness()[0] == 200, timeout_s=TIMEOUT_S, what="readiness")
            sidecar.wait_for_log("the broker answers")
            works(sidecar)
        # It is gone again: the next client finds out, and whoever asks for readiness hears of it.
        assert refusal(sidecar.port())[0] in ("reset", "refused")
        wait_until(lambda: sidecar.readiness()[0] == 503, timeout_s=TIMEOUT_S, what="readiness's end")
        broker.start()
        wait_until(lambda: sidecar.readiness()[0] == 200, timeout_s=TIMEOUT_S, what="readiness once more")
        works(sidecar)
        broker.stop()


def test_a_broker_that_dies_takes_its_clients_and_readiness_with_it() -> None:
    broker = ScriptedBroker()
    with broker, GatewaySidecar(config(broker.port)) as sidecar:
        with Raw(sidecar.port()) as raw:
            raw.exchange(produce_frame(1))
            broker.stop()
            assert raw.fate() == "end"
        wait_until(lambda: sidecar.readiness()[0] == 503, timeout_s=TIMEOUT_S, what="readiness's end")
        sidecar.wait_for_no_connections()


@pytest.mark.full
def test_what_is_no_broker_is_named() -> None:
    broker = ScriptedBroker()

    def http(peer: Peer) -> None:
        next(peer.frames())
        peer.socket.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    broker.script = http
    with broker, GatewaySidecar(config(broker.port), wait_for_broker=False) as sidecar:
        wait_until(lambda: "not Kafka's" in sidecar.readiness()[1], timeout_s=TIMEOUT_S, what="the reason")
        broker.script = lambda peer: void(next(peer.frames()))
        wait_until(lambda: "speaks TLS" in sidecar.readiness()[1], timeout_s=TIMEOUT_S, what="the reason")
        broker.script = Peer.serve
        wait_until(lambda: sidecar.readiness()[0] == 200, timeout_s=TIMEOUT_S, what="readiness")


@pytest.mark.parametrize(
    ("how", "fate", "reason"), [("close", "end", "broker_closed"), ("reset", "reset", "broker_reset")]
)
def test_an_end_of_the_brokers_is_the_clients(
    gateway: GatewaySidecar, upstream: ScriptedBroker, how: str, fate: str, reason: str
) -> None:
    def script(peer: Peer) -> None:
        peer.answer(next(peer.frames()))
        next(peer.frames())
        if how == "reset":
            peer.reset()

    upstream.script = script
    with Raw(gateway.port()) as raw:
        raw.exchange(produce_frame(1))
        raw.send(produce_frame(2))
        assert raw.fate() == fate
    gateway.wait_for_no_connections()
    assert gateway.value("connections_closed_total", listener="CLIENT", reason=reason) >= 1


@pytest.mark.parametrize("count", [0, 1, 4, 7, 8, 9, 500])
def test_a_truncated_answer_of_the_broker_still_reaches_the_client(
    gateway: GatewaySidecar, upstream: ScriptedBroker, count: int
) -> None:
    answer = framed(struct.pack(">i", 1) + bytes(1000))

    def script(peer: Peer) -> None:
        next(peer.frames())
        peer.socket.sendall(answer[:count])

    upstream.script = script
    with Raw(gateway.port()) as raw:
        raw.send(produce_frame(1))
        arrived = raw.read(2000)
        # A head that is not there whole has no meaning yet: whose answer is it?
        assert arrived == (answer[:count] if count >= 8 else b"")


def test_a_broker_that_never_answers_delays_no_other_client(
    gateway: GatewaySidecar, upstream: ScriptedBroker
) -> None:
    silent = threading.Event()
    upstream.script = lambda peer: void(silent.wait(TIMEOUT_S))
    opened = [Raw(gateway.port()) for _ in range(4)]
    try:
        frame = produce_frame(1, bytes(64 * MIB))
        for raw in opened:
            raw.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                raw.send(frame)
        upstream.script = Peer.serve
        works(gateway)
        wait_until(lambda: len(gateway.connections()) >= 4, timeout_s=TIMEOUT_S, what="four connections")
    finally:
        for raw in opened:
            raw.reset()
        silent.set()


def test_a_broker_that_never_answers_telemetry_leaves_it_unanswered(
    gateway: GatewaySidecar, upstream: ScriptedBroker
) -> None:
    over = threading.Event()
    upstream.script = lambda peer: void(over.wait(TIMEOUT_S))
    before = gateway.series("subscription_requests_total")
    with Raw(gateway.port(), timeout_s=0.3) as raw:
        raw.send(get_subscriptions())
        with pytest.raises(TimeoutError):
            raw.read(1)
    over.set()
    gateway.wait_for_no_connections()
    assert gateway.series("subscription_requests_total") == before


def test_both_halves_of_a_connection_end_on_their_own(
    gateway: GatewaySidecar, upstream: ScriptedBroker
) -> None:
    def script(peer: Peer) -> None:
        for data in peer.frames():
            peer.answer(data)
        peer.socket.sendall(framed(struct.pack(">i", 9) + b"after the client's end"))
        peer.end()

    upstream.script = script
    with Raw(gateway.port()) as raw:
        raw.send(produce_frame(1, b"one") + get_subscriptions())
        raw.end()
        assert raw.frame().endswith(b"one")
        assert read_get(raw.frame())[0] == 0
        assert raw.frame().endswith(b"after the client's end")
        assert raw.fate() == "end"

    def other_way(peer: Peer) -> None:
        peer.end()
        seen.extend(peer.frames())

    seen: list[bytes] = []
    upstream.script = other_way
    with Raw(gateway.port()) as raw:
        assert raw.fate() == "end"
        raw.send(produce_frame(1, b"after the broker's end"))
        raw.end()
        request = produce_frame(1, b"after the broker's end")[4:]
        wait_until(lambda: request in seen, timeout_s=TIMEOUT_S, what="the request")


# -- slow readers ----------------------------------------------------------------------------------


def test_slow_clients_cost_no_memory_and_delay_no_other_client(
    gateway: GatewaySidecar, upstream: ScriptedBroker
) -> None:
    answer = framed(struct.pack(">i", 1) + bytes(16 * MIB))
    upstream.script = lambda peer: peer.socket.sendall(answer)
    works_before = gateway.resident_bytes()
    opened = [Raw(gateway.port(), receive_buffer=65_536) for _ in range(8)]
    time.sleep(0.5)  # long enough for 128 MiB to pile up, if they would
    upstream.script = Peer.serve
    works(gateway)
    assert gateway.resident_bytes() - works_before < 12 * MIB
    assert opened[0].read(len(answer)) == answer
    for raw in opened:
        raw.reset()
    gateway.wait_for_no_connections()


def test_slow_brokers_cost_no_memory_and_delay_no_other_client(
    gateway: GatewaySidecar, upstream: ScriptedBroker
) -> None:
    go_on = threading.Event()
    sizes: list[int] = []

    def script(peer: Peer) -> None:
        go_on.wait(TIMEOUT_S)
        sizes.append(sum(len(data) for data in peer.frames()))

    upstream.script = script
    before = gateway.resident_bytes()
    frame = produce_frame(1, bytes(16 * MIB))
    opened = [Raw(gateway.port()) for _ in range(8)]
    with in_background(lambda: opened[0].send(frame)), in_background(lambda: opened[1].send(frame)):
        for raw in opened[2:]:
            raw.socket.settimeout(0.05)
            with pytest.raises(TimeoutError):
                raw.send(frame)
        upstream.script = Peer.serve
        works(gateway)
        assert gateway.resident_bytes() - before < 12 * MIB
        go_on.set()
    for raw in opened:
        raw.end()
    wait_until(lambda: sizes.count(len(frame) - 4) == 2, timeout_s=TIMEOUT_S, what="two whole requests")
    for raw in opened:
        raw.reset()
