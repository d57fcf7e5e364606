"""`serve --take-over`: clients of the running version notice nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.integration.gateway.support import (
    TIMEOUT_S,
    GatewaySidecar,
    Raw,
    config,
    get_subscriptions,
    push,
    read_get,
    taking_over,
)
from tests.integration.gateway.test_processes import THROTTLING_QUOTA_EXCEEDED, error_of
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import ScriptedBroker, produce_frame

#: Without a pause between requests, a version that starts would get few turns on a busy machine.
_PAUSE_S = 0.005


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


class Load(threading.Thread):
    """Requests on new connections, or on one that stays, until it is stopped."""

    def __init__(self, port: int, *, reconnect: bool) -> None:
        super().__init__()
        self._port = port
        self._reconnect = reconnect
        self.stopping = threading.Event()
        self.requests = 0
        self.problem: Exception | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self._connection()
        except Exception as error:
            self.problem = error

    def _connection(self) -> None:
        with Raw(self._port) as raw:
            while not self.stopping.is_set():
                assert raw.exchange(produce_frame(2, b"load")).endswith(b"load")
                assert error_of(raw.exchange(get_subscriptions())) in {0, THROTTLING_QUOTA_EXCEEDED}
                self.requests += 1
                self.stopping.wait(_PAUSE_S)
                if self._reconnect:
                    return


def test_no_request_fails_while_a_new_version_takes_over(broker: ScriptedBroker) -> None:
    settings = config(broker.port, gateway={"relays": 2, "control": "./control"}, drain={"timeout_s": 120})
    with GatewaySidecar(settings) as sidecar:
        sidecar.put_subscription("all", ["*"], 60_000)
        control = sidecar._folder() / "control"
        wait_until(control.is_socket, timeout_s=TIMEOUT_S, what="the control socket")
        loads = [Load(sidecar.port(), reconnect=item) for item in (True, True, False, False)]
        with Raw(sidecar.port()) as raw:
            _, instance, subscription = read_get(raw.exchange(get_subscriptions()))
            for load in loads:
                load.start()
            try:
                with taking_over(sidecar) as new:
                    sidecar.wait_for_log("a new version has taken over")
                    done = [load.requests for load in loads]
                    wait_until(
                        lambda: all(load.requests > before for load, before in zip(loads, done, strict=True)),
                        timeout_s=TIMEOUT_S,
                        what="requests on all connections after the take-over",
                    )
                    # The new core has learned the client of the old relay's connection.
                    wait_until(
                        lambda: error_of(raw.exchange(get_subscriptions(instance))) == 0,
                        timeout_s=TIMEOUT_S,
                        what="telemetry on the old connection",
                    )
                    assert error_of(raw.exchange(push(instance, subscription))) == 0
                    wait_until(sidecar.is_ready, timeout_s=TIMEOUT_S, what="readiness of the new version")
                    assert raw.port in {connection["source_port"] for connection in sidecar.connections()}
                    names = sidecar.http.get("/v1/subscriptions").json()
                    assert "all" in str(names)
                    for load in loads:
                        load.stopping.set()
                        load.join(TIMEOUT_S)
                    assert [load.problem for load in loads] == [None] * len(loads)
                    raw.end()
                    assert sidecar.wait() == 0
                    assert new.running
                    with Raw(sidecar.port()) as later:
                        assert later.exchange(produce_frame(2, b"new")).endswith(b"new")
                        assert error_of(later.exchange(get_subscriptions())) == 0
            finally:
                for load in loads:
                    load.stopping.set()
