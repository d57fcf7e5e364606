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
        assert "the broker takes telemetry itself" in one.pop("hidden_telemetry")
        assert one == {
            "name": "A",
            "bind": "0.0.0.0:19092",
            "upstream": "127.0.0.1:29092",
            "security_protocol": "PLAINTEXT",
            "connections": 7,
            "broker": {"id": 3, "cluster_id": "c", "proven": True, "advertised": "kafka-3:29092"},
            "crossed": None,
            "nodes": [],
        }

    api.run(scenario)


def test_crossed_upstreams_are_shown_at_each_listener(api: Api) -> None:
    def in_front_of(name: str, port: int, upstream: int, node_id: int, advertised: int) -> ListenerState:
        settings = ListenerSettings.model_validate(
            {"name": name, "bind": f"0.0.0.0:{port}", "upstream": f"127.0.0.1:{upstream}"}
        )
        known = KnownBroker(broker=Broker(id=node_id, cluster_id="c"), advertised=f"kafka:{advertised}")
        return ListenerState(settings=settings, known=known, connections=0)

    api.listeners = [
        in_front_of("A", 19092, 29093, 2, 19093),
        in_front_of("B", 19093, 29092, 1, 19092),
        in_front_of("C", 19094, 29094, 3, 19094),
    ]

    async def scenario(rest: httpx.AsyncClient) -> None:
        a, b, c = (await rest.get("/v1/listeners")).json()["items"]
        assert a["crossed"].endswith("set upstream of listener A to 127.0.0.1:29092")
        assert b["crossed"].endswith("set upstream of listener B to 127.0.0.1:29093")
        assert c["crossed"] is None

    api.run(scenario)
