"""A shared sidecar in front of a scripted broker."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from receiver.settings.limits import PeerLimitsSettings
from tests.integration.gateway.support import (
    TIMEOUT_S,
    GatewaySidecar,
    Raw,
    config,
    get_subscriptions,
    in_background,
    listener,
    read_get,
    works,
)
from tests.testbed.scripted_broker import Peer, ScriptedBroker, produce_frame


@pytest.fixture(scope="package")
def scripted() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as broker:
        yield broker


@pytest.fixture(scope="package")
def shared(scripted: ScriptedBroker) -> Iterator[GatewaySidecar]:
    # All these tests come from one address; what its limits do is tested where they are.
    unlimited = dict.fromkeys(PeerLimitsSettings.model_fields)
    settings = config(scripted.port, log={"requests": True}, limits={"source_address": unlimited})
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
    assert "internal error, connection closed" not in shared.log_text()
    assert "Traceback" not in shared.log_text()


@pytest.fixture(scope="package", autouse=True)
def slow_sender(shared: GatewaySidecar) -> Iterator[None]:
    """A client that sends one byte a second while all these tests run; it gets its answer."""
    connected = threading.Event()
    answers: list[bytes] = []

    def send() -> None:
        with Raw(shared.port("SLOW")) as raw:
            raw.exchange(produce_frame(1))
            connected.set()
            request = get_subscriptions(correlation_id=7)
            raw.send(request[:-12])
            for byte in request[-12:]:
                raw.send(bytes([byte]))
                time.sleep(1.0)
            answers.append(raw.frame())

    with in_background(send):
        assert connected.wait(TIMEOUT_S)
        yield
    assert [read_get(answer)[0] for answer in answers] == [0]
