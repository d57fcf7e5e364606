"""The sidecar between bad clients and bad brokers: it stays up, says so, and hurts nobody else."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from tests.integration.gateway_support import (
    TIMEOUT_S,
    ZERO_ID,
    GatewaySidecar,
    Raw,
    api_versions,
    config,
    error_of_push,
    get_subscriptions,
    in_background,
    listener,
    push,
    read_get,
    refusal,
)
from tests.testbed.broker import KafkaBroker
from tests.testbed.cpu import cpu_seconds
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import Peer, ScriptedBroker, framed, produce_frame

MIB = 1 << 20
MAX_PUSH_BYTES = 1 * MIB


@pytest.fixture(scope="module")
def scripted() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def shared(scripted: ScriptedBroker) -> Iterator[GatewaySidecar]:
    settings = config(scripted.port, log={"requests": True})
    settings["listeners"].append(listener("LIMITED", scripted.port, max_connections=3))
    settings["listeners"].append(listener("SLOW", scripted.port))
    with GatewaySidecar(settings) as sidecar:
        yield sidecar


@pytest.fixture
def upstream(scripted: ScriptedBroker) -> Iterator[ScriptedBroker]:
    """The scripted broker; what a test makes of it ends with the test."""
    before = len(scripted.peers)
    yield scripted
    scripted.script = Peer.serve
    for peer in scripted.peers[before:]:
        with contextlib.suppress(OSError):
            peer.socket.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def gateway(shared: GatewaySidecar, upstream: ScriptedBroker) -> Iterator[GatewaySidecar]:
    """A sidecar that has to be as good after the test as before."""
    yield shared
    upstream.script = Peer.serve
    works(shared)
    assert "mistake of ours" not in shared.log_text()
    assert "Traceback" not in shared.log_text()


def void(_: object) -> None:
    """Make a script of something that returns a value."""


def all_that_came_of(broker: ScriptedBroker, first: bytes) -> list[int]:
    """The API keys that the broker saw on the latest connection whose first request ends with this."""
    peer = next(
        peer
        for peer in reversed(broker.peers)
        if peer.answers.seen and peer.answers.seen[0].data.endswith(first)
    )
    assert peer.ended.wait(TIMEOUT_S)
    return [request.api_key for request in peer.answers.seen]


def works(sidecar: GatewaySidecar) -> None:
    """A client is served whole: passed, edited and answered requests."""
    with Raw(sidecar.port()) as raw:
        assert raw.exchange(api_versions(3))[4:6] == b"\0\0"
        assert raw.exchange(produce_frame(2, b"echo")).endswith(b"echo")
        assert read_get(raw.exchange(get_subscriptions()))[0] == 0


@pytest.fixture(scope="module", autouse=True)
def slow_sender(shared: GatewaySidecar) -> Iterator[None]:
    """A client that sends one byte a second while all tests of this module run; it gets its answer."""
    answers: list[bytes] = []

    def send() -> None:
        with Raw(shared.port("SLOW")) as raw:
            whole = framed(struct.pack(">hhih", 71, 0, 7, -1) + b"\0" + ZERO_ID + b"\0")
            raw.send(whole[:-12])
            for byte in whole[-12:]:
                raw.send(bytes([byte]))
                time.sleep(1.0)
            answers.append(raw.frame())

    with in_background(send):
        yield
    assert [answer[:4] for answer in answers] == [struct.pack(">i", 7)]


# -- the upstream -------------------------------------------------------------------------------------


def test_a_sidecar_starts_before_its_broker() -> None:
    broker = ScriptedBroker()
    with GatewaySidecar(config(broker.port), wait_for_broker=False) as sidecar:
        status, reason = sidecar.readiness()
        assert status == 503
        assert reason == f"listener CLIENT: broker 127.0.0.1:{broker.port}: Connection refused"
        assert sidecar.value("ready") == 0
        for _ in range(3):
            fate, seconds = refusal(sidecar.port())
            assert fate == "reset"
            assert seconds < 2
        assert sidecar.value("connections_refused_total", listener="CLIENT", reason="upstream") == 3
        assert sidecar.connections() == []
        log = sidecar.log_text()
        assert log.count("connection refused") == 1, "the log has one line for many refusals"
        assert f"127.0.0.1:{broker.port}" in log
        with broker:
            wait_until(lambda: sidecar.readiness()[0] == 200, timeout_s=TIMEOUT_S, what="readiness")
            sidecar.wait_for_log("the broker answers")
            works(sidecar)
        # It is gone again: the next client finds out, and whoever asks for readiness hears of it.
        assert refusal(sidecar.port())[0] == "reset"
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


def test_what_is_no_broker_is_named() -> None:
    broker = ScriptedBroker()

    def http(peer: Peer) -> None:
        next(peer.frames())
        peer.socket.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    broker.script = http
    with broker, GatewaySidecar(config(broker.port), wait_for_broker=False) as sidecar:
        wait_until(lambda: "not Kafka's" in sidecar.readiness()[1], timeout_s=TIMEOUT_S, what="the reason")
        broker.script = lambda peer: void(next(peer.frames()))
        wait_until(lambda: "speak TLS?" in sidecar.readiness()[1], timeout_s=TIMEOUT_S, what="the reason")
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
def test_a_broker_that_closes_in_an_answer_has_said_what_it_has_said(
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


def test_a_broker_that_never_answers_holds_up_nobody_else(
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


# -- slow readers -------------------------------------------------------------------------------------


def test_slow_clients_cost_no_memory_and_hold_up_nobody(
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


def test_slow_brokers_cost_no_memory_and_hold_up_nobody(
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


# -- bad input ----------------------------------------------------------------------------------------

BAD_INPUT = {
    "garbage": b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "a negative length": struct.pack(">i", -1) + bytes(100),
    "the least length": struct.pack(">i", -(2**31)),
    "no length at all": struct.pack(">i", 0) + bytes(100),
    "a length too short for a header": struct.pack(">i", 7) + bytes(7),
    "2 GiB": struct.pack(">ihhi", 2**31 - 1, 0, 3, 1),
    "more than the limit": struct.pack(">ihhi", 104_857_601, 0, 3, 1),
    "a version of telemetry that is not offered": struct.pack(">ihhih", 27, 71, 1, 1, -1) + bytes(17),
    "a telemetry request that is cut": framed(get_subscriptions()[4:-5]),
    "a client id beyond the end": framed(struct.pack(">hhih", 71, 0, 1, 30_000) + b"short"),
    "an endless ApiVersions": struct.pack(">ihhih", 3 * MIB, 18, 3, 1, -1) + bytes(3 * MIB - 10),
    "an endless GetTelemetrySubscriptions": struct.pack(">ihhih", 3 * MIB, 71, 0, 1, -1)
    + bytes(3 * MIB - 10),
    "an endless SaslHandshake": struct.pack(">ihhih", 3 * MIB, 17, 1, 1, -1) + bytes(3 * MIB - 10),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_closes_its_connection_and_is_counted(
    gateway: GatewaySidecar, upstream: ScriptedBroker, name: str
) -> None:
    labels = {"listener": "CLIENT", "reason": "client_protocol_error"}
    before = gateway.value("protocol_errors_total", **labels)
    with Raw(gateway.port()) as raw:
        raw.exchange(produce_frame(1, b"before"))
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # closed while still sending
            raw.send(BAD_INPUT[name])
        assert raw.fate() in {"end", "reset"}
    assert gateway.value("protocol_errors_total", **labels) == before + 1
    assert gateway.value("connections_closed_total", **labels) == before + 1
    # The broker saw the connection's end, not the garbage.
    assert all_that_came_of(upstream, b"before") == [0]


def test_bad_input_is_named_in_the_log(gateway: GatewaySidecar) -> None:
    gateway.wait_for_log("expected a frame length from 8 to 104857600 at offset 0, found ")


def test_a_frame_that_ends_in_its_middle_reaches_the_broker_as_far_as_it_goes(
    gateway: GatewaySidecar, upstream: ScriptedBroker
) -> None:
    data: list[bytes] = []
    upstream.script = lambda peer: data.append(peer.read(10_000))
    whole = produce_frame(1, bytes(1000))
    with Raw(gateway.port()) as raw:
        raw.send(whole[:300])
        raw.end()
        assert raw.fate() == "end"
    wait_until(lambda: whole[:300] in data, timeout_s=TIMEOUT_S, what="the first part")


@pytest.mark.parametrize("cut", [2, 5, 20])
def test_a_telemetry_request_that_ends_in_its_middle_is_nothing(
    gateway: GatewaySidecar, upstream: ScriptedBroker, cut: int
) -> None:
    with Raw(gateway.port()) as raw:
        raw.exchange(produce_frame(1, b"whole"))
        raw.send(get_subscriptions()[:cut])
        raw.end()
        assert raw.fate() == "end"
    assert all_that_came_of(upstream, b"whole") == [0]


def test_a_push_that_is_too_large_is_said_to_be(gateway: GatewaySidecar) -> None:
    before = gateway.resident_bytes()
    with Raw(gateway.port()) as raw:
        _, instance, subscription_id = read_get(raw.exchange(get_subscriptions()))
        for size in (MAX_PUSH_BYTES + 1, 90 * MIB):
            raw.send(push(instance, subscription_id, bytes(size), terminating=False))
            assert error_of_push(raw.frame()) in {118, 89}
        assert raw.exchange(produce_frame(3, b"goes on")).endswith(b"goes on")
    assert gateway.resident_bytes() - before < 12 * MIB


# -- bounds -------------------------------------------------------------------------------------------


def test_one_connection_too_many_is_reset_and_counted(gateway: GatewaySidecar) -> None:
    port = gateway.port("LIMITED")
    labels = {"listener": "LIMITED", "reason": "limit"}
    with Raw(port) as one, Raw(port) as two, Raw(port) as three:
        for raw in (one, two, three):
            raw.exchange(produce_frame(1))
        fate, seconds = refusal(port)
        assert fate == "reset"
        assert seconds < 2
        assert gateway.value("connections_refused_total", **labels) == 1
        gateway.wait_for_log("max_connections is 3")
        works(gateway)  # the other listener has a limit of its own
        three.socket.close()
        wait_until(lambda: len(gateway.connections("LIMITED")) == 2, timeout_s=TIMEOUT_S, what="a free place")
        with Raw(port) as again:
            again.exchange(produce_frame(1))


@pytest.mark.parametrize("left", [10, 11], ids=["to accept", "to connect"])
def test_a_sidecar_out_of_files_goes_on_and_recovers(left: int) -> None:
    broker = ScriptedBroker()
    with broker, GatewaySidecar(config(broker.port)) as sidecar, contextlib.ExitStack() as opened:
        files = sidecar.open_files()
        _, most = resource.prlimit(sidecar.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(sidecar.pid, resource.RLIMIT_NOFILE, (files + left, most))
        served = [opened.enter_context(Raw(sidecar.port())) for _ in range(5)]
        for raw in served:
            raw.exchange(produce_frame(1))
        with (
            pytest.raises((TimeoutError, EOFError, ConnectionResetError)),
            Raw(sidecar.port(), timeout_s=0.5) as refused,
        ):
            refused.exchange(produce_frame(1))
        sidecar.wait_for_log("out_of_files")
        used = cpu_seconds(sidecar.pid)
        time.sleep(1.0)
        assert cpu_seconds(sidecar.pid) - used < 0.3, "it does not spin"
        assert sidecar.readiness() == (200, ""), "the broker is as well as it was"
        for raw in served:
            assert raw.exchange(produce_frame(2, b"still")).endswith(b"still")
        served[0].socket.close()
        wait_until(lambda: len(sidecar.connections()) <= 4, timeout_s=TIMEOUT_S, what="a free place")
        time.sleep(0.6)
        works(sidecar)


def test_two_thousand_connections_leave_nothing_behind(
    gateway: GatewaySidecar, upstream: ScriptedBroker
) -> None:
    def churn(count: int) -> None:
        for number in range(count):
            with Raw(gateway.port()) as raw:
                match number % 4:
                    case 0:
                        raw.exchange(api_versions(3, software=("churn", "1.0")))
                    case 1:
                        raw.exchange(get_subscriptions())
                    case 2:
                        raw.exchange(produce_frame(1))
                        raw.reset()
                    case _:
                        raw.send(get_subscriptions()[:9])

    def settled() -> tuple[int, int]:
        wait_until(lambda: len(gateway.connections()) <= 1, timeout_s=TIMEOUT_S, what="the connections' end")
        return gateway.open_files(), gateway.resident_bytes()

    churn(500)
    files, memory = settled()
    churn(2000)
    files_after, memory_after = settled()
    assert abs(files_after - files) <= 2
    assert memory_after - memory < 4 * MIB
    assert gateway.clients() == [] or len(gateway.clients()) <= 1


# -- the registry -------------------------------------------------------------------------------------


def test_the_registry_shows_who_is_connected(gateway: GatewaySidecar) -> None:
    with Raw(gateway.port()) as raw:
        raw.exchange(api_versions(3, client_id="who", software=("software.name", "1.2-rc")))
        assert read_get(raw.exchange(get_subscriptions(client_id="who-else")))[0] == 0
        (shown,) = [one for one in gateway.connections() if one["source_port"] == raw.port]
        assert shown.pop("id")
        assert shown.pop("since").endswith("Z")
        assert len(shown.pop("client_instance_id")) == 22
        assert shown == {
            "listener": "CLIENT",
            "security_protocol": "PLAINTEXT",
            "source_address": "127.0.0.1",
            "source_port": raw.port,
            "client_id": "who-else",
            "client_software_name": "software.name",
            "client_software_version": "1.2-rc",
            "principal": "User:ANONYMOUS",
        }
    gateway.wait_for_no_connections()
    gateway.wait_for_log('"client_software_name": "software.name"')  # the request log


def test_the_gauge_of_a_software_goes_with_its_last_connection(gateway: GatewaySidecar) -> None:
    labels = {"listener": "CLIENT", "client_software_name": "gone", "client_software_version": "0.1"}
    key = tuple(sorted(labels.items()))
    with Raw(gateway.port()) as one, Raw(gateway.port()) as two:
        for raw in (one, two):
            raw.exchange(api_versions(3, software=("gone", "0.1")))
        assert gateway.series("connections")[key] == 2
        two.socket.close()
        wait_until(lambda: gateway.series("connections")[key] == 1, timeout_s=TIMEOUT_S, what="one less")
    wait_until(lambda: key not in gateway.series("connections"), timeout_s=TIMEOUT_S, what="the series' end")


# -- a real broker ------------------------------------------------------------------------------------


def test_telemetry_before_authentication_is_cut_off_by_the_broker(broker: KafkaBroker) -> None:
    assert broker.sasl_port is not None
    settings = config(broker.client_port)
    settings["listeners"] = [listener("SASL", broker.sasl_port, security_protocol="SASL_PLAINTEXT")]
    with GatewaySidecar(settings) as sidecar:
        for request in (get_subscriptions(), push(b"\1" * 16, 1)):
            with Raw(sidecar.port("SASL")) as raw:
                raw.send(request)
                assert raw.read(1) == b""
            with Raw(sidecar.port("SASL")) as raw:
                assert raw.exchange(api_versions(3))[4:6] == b"\0\0"
                raw.send(request)
                assert raw.read(1) == b""
        assert sidecar.clients() == []
        assert sidecar.series("pushes_total") == {}
