"""The sidecar at its bounds, and its registry of connections (KIP-511)."""

from __future__ import annotations

import contextlib
import resource
import time
from pathlib import Path

import pytest

from tests.integration.gateway.support import (
    TIMEOUT_S,
    GatewaySidecar,
    Raw,
    api_versions,
    config,
    get_subscriptions,
    read_get,
    refusal,
    works,
)
from tests.testbed.cpu import cpu_seconds
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import ScriptedBroker, produce_frame

MIB = 1 << 20


# -- bounds ----------------------------------------------------------------------------------------


def test_one_connection_too_many_is_reset_and_counted(gateway: GatewaySidecar) -> None:
    port = gateway.port("LIMITED")
    labels = {"listener": "LIMITED", "reason": "limit"}
    with Raw(port) as one, Raw(port) as two, Raw(port) as three:
        for raw in (one, two, three):
            raw.exchange(produce_frame(1))
        # The core counts those of all relays, and hears of each in its relay's time.
        wait_until(lambda: len(gateway.connections("LIMITED")) == 3, timeout_s=TIMEOUT_S, what="all three")
        fate, seconds = refusal(port)
        assert fate == "reset"
        assert seconds < 3
        assert gateway.value("connections_refused_total", **labels) == 1
        gateway.wait_for_log("listeners[].max_connections (3)")
        works(gateway)  # the other listener has a limit of its own
        three.socket.close()
        wait_until(lambda: len(gateway.connections("LIMITED")) == 2, timeout_s=TIMEOUT_S, what="a free place")
        with Raw(port) as again:
            again.exchange(produce_frame(1))


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(10, id="to accept"),
        pytest.param(11, id="to connect", marks=pytest.mark.full),
    ],
)
def test_a_sidecar_out_of_files_goes_on_and_recovers(left: int) -> None:
    broker = ScriptedBroker()
    settings = config(broker.port, gateway={"relays": 1})
    with broker, GatewaySidecar(settings) as sidecar, contextlib.ExitStack() as opened:
        relay = sidecar.processes()["kct-relay-1"]
        files = len(list(Path(f"/proc/{relay}/fd").iterdir()))
        _, most = resource.prlimit(relay, resource.RLIMIT_NOFILE)
        resource.prlimit(relay, resource.RLIMIT_NOFILE, (files + left, most))
        served = [opened.enter_context(Raw(sidecar.port())) for _ in range(5)]
        for raw in served:
            raw.exchange(produce_frame(1))
        with (
            pytest.raises((TimeoutError, EOFError, ConnectionResetError)),
            Raw(sidecar.port(), timeout_s=0.5) as refused,
        ):
            refused.exchange(produce_frame(1))
        sidecar.wait_for_log("out_of_files")
        used = cpu_seconds(relay)
        time.sleep(1.0)
        assert cpu_seconds(relay) - used < 0.3, "it does not spin"
        assert sidecar.readiness() == (200, ""), "the broker is as well as it was"
        for raw in served:
            assert raw.exchange(produce_frame(2, b"still")).endswith(b"still")
        served[0].socket.close()
        wait_until(lambda: len(sidecar.connections()) <= 4, timeout_s=TIMEOUT_S, what="a free place")
        time.sleep(0.6)
        works(sidecar)


@pytest.mark.full
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

    def settled() -> int:
        wait_until(lambda: len(gateway.connections()) <= 1, timeout_s=TIMEOUT_S, what="the connections' end")
        # A connection leaves the registry a moment before its last file is closed.
        wait_until(lambda: gateway.open_files() <= files + 2, timeout_s=TIMEOUT_S, what="the files' end")
        return gateway.resident_bytes()

    files = gateway.open_files()
    churn(10_500)  # the receiver remembers the last 10,000
    memory = settled()
    churn(2000)
    assert settled() - memory < 4 * MIB
    assert gateway.clients() == [] or len(gateway.clients()) <= 1


# -- the registry ----------------------------------------------------------------------------------


def test_the_registry_shows_open_connections(gateway: GatewaySidecar) -> None:
    with Raw(gateway.port()) as raw:
        raw.exchange(api_versions(3, client_id="who", software=("software.name", "1.2-rc")))
        assert read_get(raw.exchange(get_subscriptions(client_id="who-else")))[0] == 0
        (shown,) = [
            connection for connection in gateway.connections() if connection["source_port"] == raw.port
        ]
        assert shown.pop("id")
        assert shown.pop("since").endswith("Z")
        assert len(shown.pop("client_instance_id")) == 22
        assert shown.pop("state") in {"unsubscribed", "waiting"}  # it has not pushed
        expected = {
            "listener": "CLIENT",
            "security_protocol": "PLAINTEXT",
            "source_address": "127.0.0.1",
            "source_port": raw.port,
            "client_id": "who-else",
            "client_software_name": "software.name",
            "client_software_version": "1.2-rc",
            "principal": "User:ANONYMOUS",
            "sasl_mechanism": None,
            "owner": None,
        }
        assert {field: shown[field] for field in expected} == expected
        assert shown["api_versions"] == {
            "ApiVersions": {"lowest": 3, "highest": 3},
            "GetTelemetrySubscriptions": {"lowest": 0, "highest": 0},
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
