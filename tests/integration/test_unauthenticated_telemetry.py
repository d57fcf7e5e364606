"""Telemetry before authentication: a real broker ends the connection."""

from __future__ import annotations

from tests.integration.gateway.support import (
    GatewaySidecar,
    Raw,
    api_versions,
    config,
    get_subscriptions,
    listener,
    push,
)
from tests.testbed.broker import KafkaBroker


def test_telemetry_before_authentication_is_cut_off_by_the_broker(broker: KafkaBroker) -> None:
    settings = config(broker.client_port)
    settings["listeners"] = [listener("SASL", broker.port("SASL"), security_protocol="SASL_PLAINTEXT")]
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
