"""The sidecar's start, signals, drain and exit."""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.integration.gateway.support import (
    TIMEOUT_S,
    GatewaySidecar,
    Raw,
    api_versions,
    config,
    get_subscriptions,
    listener,
    read_get,
    refusal,
)
from tests.testbed.ports import LOOPBACK
from tests.testbed.process import StartError, wait_until
from tests.testbed.scripted_broker import METADATA, Peer, ScriptedBroker, parse, produce_frame


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


def delayed(seconds: float, *, api_key: int) -> Any:
    """A script that answers like a broker, requests of one key so much later."""

    def script(peer: Peer) -> None:
        for data in peer.frames():
            if parse(data).api_key == api_key:
                time.sleep(seconds)
            peer.answer(data)

    return script


def codecs_of(answer: bytes) -> tuple[int, ...]:
    """Of an answer to GetTelemetrySubscriptions: the codecs that the client may use."""
    return tuple(answer[32 : 32 + answer[31] - 1])


# -- SIGTERM ---------------------------------------------------------------------------------------


@pytest.mark.full
def test_sigterm_lets_an_answer_of_ours_arrive(broker: ScriptedBroker) -> None:
    with GatewaySidecar(config(broker.port, drain={"timeout_s": 100})) as sidecar:
        broker.script = delayed(2.5, api_key=METADATA)
        with Raw(sidecar.port()) as raw, Raw(sidecar.port()) as idle:
            idle.exchange(produce_frame(1))
            raw.send(get_subscriptions())
            wait_until(lambda: len(sidecar.connections()) == 2, timeout_s=TIMEOUT_S, what="connections")
            sidecar.signal(signal.SIGTERM)
            started = time.monotonic()
            wait_until(lambda: sidecar.readiness()[0] == 503, timeout_s=2, what="readiness's end")
            assert sidecar.readiness()[1] == "the receiver is stopping"
            assert sidecar.status("/livez") == 200
            assert sidecar.value("draining") == 1
            assert refusal(sidecar.port())[0] == "refused"
            sidecar.signal(signal.SIGTERM)  # a second one cuts nothing off
            assert read_get(raw.frame())[0] == 0
            assert raw.fate() == "end"
            assert idle.fate() == "end"
        assert sidecar.wait() == 0
        assert 2 < time.monotonic() - started < 90
        assert sidecar.awaited("stopped")


@pytest.mark.full
def test_sigterm_lets_an_answer_of_the_brokers_arrive(broker: ScriptedBroker) -> None:
    with GatewaySidecar(config(broker.port)) as sidecar:
        broker.script = delayed(0.3, api_key=0)
        with Raw(sidecar.port()) as raw:
            raw.send(produce_frame(1, b"answered late"))
            wait_until(lambda: len(sidecar.connections()) == 1, timeout_s=TIMEOUT_S, what="a connection")
            sidecar.signal(signal.SIGTERM)
            assert raw.frame().endswith(b"answered late")
            assert raw.fate() == "end"
        assert sidecar.wait() == 0


def test_sigterm_lets_requests_end_that_it_cuts_in_two(broker: ScriptedBroker) -> None:
    requests = (produce_frame(1, bytes(1000)), get_subscriptions())
    with GatewaySidecar(config(broker.port)) as sidecar, contextlib.ExitStack() as opened:
        clients = [opened.enter_context(Raw(sidecar.port())) for _ in requests]
        for raw, request in zip(clients, requests, strict=True):
            raw.exchange(produce_frame(7))
            raw.send(request[:20])
        counted = 2 * (len(produce_frame(7)) + 20)
        labels = {"listener": "CLIENT", "direction": "from_clients"}
        wait_until(
            lambda: sidecar.value("listener_bytes_total", **labels) == counted,
            timeout_s=TIMEOUT_S,
            what="the first halves",
        )
        sidecar.signal(signal.SIGTERM)
        wait_until(lambda: sidecar.value("draining") == 1, timeout_s=TIMEOUT_S, what="the drain")
        time.sleep(1.2)  # longer than a connection may be quiet between two requests
        for raw, request in zip(clients, requests, strict=True):
            raw.send(request[20:])
            assert struct.unpack_from(">i", raw.frame())[0] == parse(request[4:]).correlation_id
            assert raw.fate() == "end"
        assert sidecar.wait() == 0


@pytest.mark.full
def test_a_drain_ends_in_time_whatever_the_broker_does(broker: ScriptedBroker) -> None:
    over = threading.Event()
    with GatewaySidecar(config(broker.port, drain={"timeout_s": 1.0})) as sidecar:
        broker.script = lambda peer: over.wait(TIMEOUT_S)  # type: ignore[assignment]
        with Raw(sidecar.port()) as raw:
            raw.send(get_subscriptions())
            wait_until(lambda: len(sidecar.connections()) == 1, timeout_s=TIMEOUT_S, what="a connection")
            started = time.monotonic()
            sidecar.signal(signal.SIGTERM)
            assert raw.fate() in {"end", "reset"}
        assert sidecar.wait() == 0
        assert 0.9 < time.monotonic() - started < 100
    over.set()


@pytest.mark.full
def test_idle_connections_do_not_hold_up_the_end(broker: ScriptedBroker) -> None:
    with (
        GatewaySidecar(config(broker.port, drain={"timeout_s": 100})) as sidecar,
        Raw(sidecar.port()) as raw,
    ):
        raw.exchange(api_versions(3))
        started = time.monotonic()
        sidecar.signal(signal.SIGINT)
        assert raw.fate() == "end"
        assert sidecar.wait() == 0
        assert time.monotonic() - started < 90


@pytest.mark.full
def test_subscriptions_survive_the_end(broker: ScriptedBroker) -> None:
    with GatewaySidecar(config(broker.port)) as sidecar:
        sidecar.put_subscription("kept", ["org.apache.kafka.producer."], 5000)
        sidecar.kill()
        sidecar.start()
        with Raw(sidecar.port()) as raw:
            assert b"org.apache.kafka.producer." in raw.exchange(get_subscriptions())


# -- SIGHUP ----------------------------------------------------------------------------------------


def test_sighup_applies_every_key(broker: ScriptedBroker) -> None:
    settings = config(broker.port)
    with GatewaySidecar(settings) as sidecar, Raw(sidecar.port()) as raw:
        assert codecs_of(raw.exchange(get_subscriptions())) == (4, 3, 1, 2)
        assert not sidecar.logged("request answered")

        settings["telemetry"] = {"compression": ["gzip"], "max_bytes": 2048}
        settings["log"] = {"requests": True}
        settings["listeners"].append(listener("LATER", broker.port))
        settings["broker"]["id"] = 2
        sidecar.reload()
        wait_until(lambda: bool(sidecar.logged("configuration reloaded")), timeout_s=TIMEOUT_S, what="it")

        answer = raw.exchange(get_subscriptions())
        assert codecs_of(answer) == (1,)
        assert (2048).to_bytes(4, "big") in answer
        with Raw(sidecar.port("LATER")) as later:
            assert read_get(later.exchange(get_subscriptions()))[0] == 0
        assert sidecar.awaited("request answered")

        settings["log"] = {"level": "error"}
        sidecar.reload()
        wait_until(lambda: not _logs(sidecar), timeout_s=TIMEOUT_S, what="silence")


@pytest.mark.full
def test_sighup_changes_every_line_of_the_log(broker: ScriptedBroker) -> None:
    """Also those of loggers that were made before it."""
    settings = config(broker.port)
    with GatewaySidecar(settings) as sidecar:
        settings["log"] = {"format": "console"}
        sidecar.reload()
        sidecar.wait_for_log("configuration reloaded")
        before = len(sidecar.log_text())
        broker.stop()
        refusal(sidecar.port())
        sidecar.wait_for_log("the broker does not answer")
        broker.start()
        sidecar.wait_for_log("connection refused")
        wait_until(lambda: sidecar.readiness()[0] == 200, timeout_s=TIMEOUT_S, what="readiness")
        assert "{" not in sidecar.log_text()[before:]


def _logs(sidecar: GatewaySidecar) -> bool:
    before = len(sidecar.log_text())
    with Raw(sidecar.port()) as raw:
        raw.exchange(api_versions(3))
    return len(sidecar.log_text()) > before


@pytest.mark.full
def test_a_wrong_file_at_sighup_changes_nothing_and_is_named(broker: ScriptedBroker) -> None:
    settings = config(broker.port, log={"requests": True})
    with GatewaySidecar(settings) as sidecar, Raw(sidecar.port()) as raw:
        settings["log"] = {"requests": False}
        wrong = [("telemetry", {"max_bytes": "much"}, "telemetry.max_bytes"), ("listners", [], "listners")]
        for number, (section, value, named) in enumerate(wrong, 1):
            settings[section] = value
            sidecar.reload()
            wait_until(
                lambda number=number: len(sidecar.logged("configuration not reloaded")) == number,  # type: ignore[misc]
                timeout_s=TIMEOUT_S,
                what="a line about the file",
            )
            assert named in sidecar.logged("configuration not reloaded")[-1]["problem"]
            del settings[section]
        raw.exchange(get_subscriptions())
        assert sidecar.awaited("request answered"), "the old settings are in force"


# -- starts that fail ------------------------------------------------------------------------------


@pytest.mark.full
def test_an_address_that_is_taken_is_named_and_ends_the_start(broker: ScriptedBroker) -> None:
    with closing(socket.socket()) as other:
        other.bind((LOOPBACK, 0))
        address = f"{LOOPBACK}:{other.getsockname()[1]}"
        settings = config(broker.port)
        settings["listeners"].append(listener("TAKEN", broker.port) | {"bind": address})
        # REST is there before the listeners are.
        with contextlib.suppress(StartError), GatewaySidecar(settings, wait_for_broker=False) as sidecar:
            assert sidecar.wait() == 1
            (entry,) = sidecar.awaited("cannot start")
            assert (
                entry["problem"] == f"listener TAKEN: {address}: cannot listen there: Address already in use"
            )
            assert "Traceback" not in sidecar.log_text()


@pytest.mark.full
def test_a_rest_address_that_is_taken_is_named_and_ends_the_start(broker: ScriptedBroker) -> None:
    with closing(socket.socket()) as other:
        other.bind((LOOPBACK, 0))
        settings = config(broker.port)
        settings["rest"]["bind"] = address = f"{LOOPBACK}:{other.getsockname()[1]}"
        expected = rf"status 1 at its start(.|\n)*rest\.bind: {address}: cannot listen there: .*cannot start"
        with pytest.raises(StartError, match=expected) as raised, GatewaySidecar(settings):
            pass
        assert "Traceback" not in str(raised.value)
