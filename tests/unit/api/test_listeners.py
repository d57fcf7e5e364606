"""Listeners over REST: the broker behind each, and whether clients pass by."""

from __future__ import annotations

import httpx

from receiver.brokers.listener_broker import KnownBroker
from receiver.brokers.listener_state import ListenerState
from receiver.settings.listeners import ListenerSettings
from receiver.telemetry.identity import Broker
from tests.unit.api.conftest import Api


def test_each_listener_has_its_broker(api: Api) -> None:
    settings = ListenerSettings.model_validate(
        {"name": "A", "bind": "0.0.0.0:19092", "upstream": "127.0.0.1:29092"}
    )
    known = KnownBroker(
        broker=Broker(id=3, cluster_id="c"),
        proven=True,
        advertised="kafka-3:29092",
        takes_telemetry=True,
    )
    api.listeners = [ListenerState(settings=settings, known=known, connections=7)]

    async def scenario(rest: httpx.AsyncClient) -> None:
        (one,) = (await rest.get("/v1/listeners")).json()["items"]
        assert "its own port, so clients pass by the sidecar" in one.pop("bypass")
        assert "the broker takes telemetry itself" in one.pop("shadow")
        assert one == {
            "name": "A",
            "bind": "0.0.0.0:19092",
            "upstream": "127.0.0.1:29092",
            "security_protocol": "PLAINTEXT",
            "connections": 7,
            "broker": {"id": 3, "cluster_id": "c", "proven": True, "advertised": "kafka-3:29092"},
            "nodes": [],
        }

    api.run(scenario)
