"""Real clients follow subscriptions: negation, what a push reveals, temporality, expiry."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from receiver.telemetry.subscription_document import time_to_text
from tests.integration.gateway.support import GatewaySidecar
from tests.testbed.broker import KafkaBroker
from tests.testbed.clients import Client, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector, ExportedMetric
from tests.testbed.process import wait_until
from tests.testbed.sidecar import config_for

pytestmark = pytest.mark.full

TOPIC = "subscribed"
INTERVAL_MS = 1000
TIMEOUT_S = 300.0
#: What every client has, and what matching subscriptions add to it.
CONNECTIONS = "org.apache.kafka.producer.connection.creation."
REQUESTS = "org.apache.kafka.producer.request."
#: franz-go pushes only what has changed, and always deltas.
KINDS = (JavaClient, LibrdkafkaClient)


@pytest.fixture(scope="module")
def running(broker: KafkaBroker, shared_collector: Collector) -> Iterator[GatewaySidecar]:
    broker.create_topic(TOPIC)
    settings = config_for(broker, collector=shared_collector)
    settings["telemetry"] = {"default_interval_ms": INTERVAL_MS}
    with GatewaySidecar(settings) as sidecar:
        yield sidecar


@pytest.fixture
def gateway(running: GatewaySidecar, shared_collector: Collector) -> Iterator[GatewaySidecar]:
    """The sidecar, without subscriptions before and after the test."""
    yield running
    for item in running.http.get("/v1/subscriptions").json()["items"]:
        running.http.delete(f"/v1/subscriptions/{item['name']}").raise_for_status()
    shared_collector.forget()


def put(gateway: GatewaySidecar, name: str, **body: Any) -> None:
    body.setdefault("interval_ms", INTERVAL_MS)
    gateway.http.put(f"/v1/subscriptions/{name}", json=body).raise_for_status()


def client_of(gateway: GatewaySidecar, client_id: str) -> dict[str, Any]:
    """Return what REST knows of a client; empty before its first request."""
    found = gateway.http.get("/v1/clients", params={"client_id": client_id}).json()["items"]
    return found[0] if found else {}


def become(
    gateway: GatewaySidecar, client: Client, holds: Callable[[dict[str, Any]], bool], what: str
) -> None:
    wait_until(
        lambda: holds(client_of(gateway, client.client_id)),
        timeout_s=TIMEOUT_S,
        what=f"{client.client_id}: {what}",
    )


def exported(collector: Collector, client: Client, prefix: str = "") -> list[ExportedMetric]:
    return [
        export
        for export in collector.exports()
        if export.resource.get("client_id") == client.client_id and export.name.startswith(prefix)
    ]


def exports(collector: Collector, client: Client, prefix: str) -> None:
    wait_until(
        lambda: bool(exported(collector, client, prefix)),
        timeout_s=TIMEOUT_S,
        what=f"{prefix} of {client.client_id}",
    )


@contextlib.contextmanager
def each_kind(gateway: GatewaySidecar, mode: Mode, suffix: str) -> Iterator[list[Client]]:
    with contextlib.ExitStack() as started:
        yield [
            started.enter_context(
                kind(
                    mode,
                    bootstrap=gateway.bootstrap(),
                    topic=TOPIC,
                    client_id=f"{kind.language}-{suffix}",
                )
            )
            for kind in KINDS
        ]


def test_a_negated_selector_leaves_clients_out(gateway: GatewaySidecar, shared_collector: Collector) -> None:
    put(gateway, "all", metrics=[CONNECTIONS])
    put(gateway, "not-tests", metrics=[REQUESTS], match={"client_id!": ".*-test"})
    with (
        each_kind(gateway, Mode.PRODUCER, "shop") as matched,
        each_kind(gateway, Mode.PRODUCER, "test") as left_out,
    ):
        for client in (*matched, *left_out):
            wanted = ["all", "not-tests"] if client in matched else ["all"]
            become(
                gateway,
                client,
                lambda one, wanted=wanted: one.get("subscriptions") == wanted and one["pushes"] > 1,  # type: ignore[misc]
                f"pushes for {wanted}",
            )
            exports(shared_collector, client, CONNECTIONS)
        assert all(not exported(shared_collector, client, REQUESTS) for client in left_out)
        # The other way round: those that match now are asked with their next request.
        put(
            gateway,
            "not-tests",
            metrics=[REQUESTS],
            match={"client_id!": ".*-shop"},
        )
        for client in left_out:
            exports(shared_collector, client, REQUESTS)
        for client in matched:
            become(gateway, client, lambda one: one["subscriptions"] == ["all"], "the other subscription")
        for client in (*matched, *left_out):
            assert client.errors == []


REVEALED: Mapping[str, tuple[type[Client], Mode, Mapping[str, str]]] = {
    "group_id": (JavaClient, Mode.CONSUMER, {}),
    "group_member_id": (JavaClient, Mode.CONSUMER, {}),
    "client_rack": (JavaClient, Mode.CONSUMER, {"client.rack": "rack-7"}),
    "transactional_id": (JavaClient, Mode.PRODUCER, {"transactional.id": "payments-7"}),
    "group_id of librdkafka": (LibrdkafkaClient, Mode.CONSUMER, {}),
    "client_rack of librdkafka": (LibrdkafkaClient, Mode.CONSUMER, {"client.rack": "rack-7"}),
}


@pytest.mark.parametrize("what", REVEALED)
def test_a_selector_that_a_push_reveals_changes_what_a_client_pushes(
    gateway: GatewaySidecar, shared_collector: Collector, what: str
) -> None:
    kind, mode, properties = REVEALED[what]
    selector = what.split()[0]
    pattern = {
        "group_id": "revealed-.*",
        # Java's member ids begin with the client id, or are random (KIP-848).
        "group_member_id": ".+",
        "client_rack": "rack-7",
        "transactional_id": "payments-.*",
    }[selector]
    common = f"org.apache.kafka.{mode}.connection.creation."
    more = f"org.apache.kafka.{mode}.{'coordinator' if mode is Mode.CONSUMER else 'connection.close'}."
    put(gateway, "all", metrics=[common])
    put(gateway, "revealed", metrics=[more], match={selector: pattern})
    put(gateway, "others", metrics=["org.apache.kafka.other."], match={selector: "other-.*"})
    client = kind(
        mode,
        bootstrap=gateway.bootstrap(),
        topic=TOPIC,
        client_id=f"{kind.language}-{selector}",
        group="revealed-7",
        properties=properties,
        # A transactional producer sends only in transactions; it pushes without sending, too.
        count=0 if selector == "transactional_id" else None,
    )
    with client:
        become(gateway, client, lambda one: one.get("subscriptions") == ["all", "revealed"], "its selector")
        shown = client_of(gateway, client.client_id)
        assert shown["requested_metrics"] == sorted([common, more])
        assert re.fullmatch(pattern, shown[selector])
        exports(shared_collector, client, more)
        exports(shared_collector, client, common)
        become(gateway, client, lambda one: one["pushes"] > 2 and one["last_error"] == "NONE", "pushes")
        explained = gateway.http.get(f"/v1/clients/{shown['client_instance_id']}/explain").json()
        verdicts = {
            subscription["name"]: subscription["matches"] for subscription in explained["subscriptions"]
        }
        assert verdicts == {"all": True, "others": False, "revealed": True}
        assert client.errors == []


def test_temporality_follows_the_subscription(gateway: GatewaySidecar, shared_collector: Collector) -> None:
    def latest(client: Client) -> str | None:
        found = exported(shared_collector, client, f"{CONNECTIONS}total")
        return found[-1].temporality if found else None

    put(gateway, "counters", metrics=[CONNECTIONS], temporality="delta")
    with each_kind(gateway, Mode.PRODUCER, "counting") as clients:
        for temporality in ("delta", "cumulative", "delta"):
            put(gateway, "counters", metrics=[CONNECTIONS], temporality=temporality)
            for client in clients:
                wait_until(
                    lambda client=client, wanted=temporality: latest(client) == wanted,  # type: ignore[misc]
                    timeout_s=TIMEOUT_S,
                    what=f"{temporality} of {client.client_id}",
                )
                assert client_of(gateway, client.client_id)["temporality"] == temporality
        # Another matching subscription that wants cumulative values decides for both.
        put(gateway, "more", metrics=[REQUESTS], temporality="cumulative")
        for client in clients:
            become(gateway, client, lambda one: one["temporality"] == "cumulative", "the other's temporality")
            assert client.errors == []


def test_an_expired_subscription_ends_at_the_client(
    gateway: GatewaySidecar, shared_collector: Collector
) -> None:
    debug = "org.apache.kafka.producer.node."
    put(gateway, "all", metrics=[CONNECTIONS], interval_ms=2 * INTERVAL_MS)
    with each_kind(gateway, Mode.PRODUCER, "debugged") as clients:
        for client in clients:
            exports(shared_collector, client, CONNECTIONS)
        end = datetime.now(UTC) + timedelta(seconds=30)
        put(gateway, "debug", metrics=[debug], expires_at=time_to_text(end))
        for client in clients:
            exports(shared_collector, client, debug)
        for client in clients:
            become(gateway, client, lambda one: one["subscriptions"] == ["all"], "the end")
            assert client_of(gateway, client.client_id)["push_interval_ms"] == 2 * INTERVAL_MS
        assert datetime.now(UTC) >= end
        time.sleep(0.5)  # what was pushed before is on its way
        shared_collector.forget()
        before = {client.client_id: client_of(gateway, client.client_id)["pushes"] for client in clients}
        for client in clients:
            become(
                gateway,
                client,
                lambda one: one["pushes"] >= before[one["client_id"]] + 2,
                "pushes after the end",
            )
            exports(shared_collector, client, CONNECTIONS)
            assert not exported(shared_collector, client, debug)
            assert client.errors == []
        assert gateway.http.get("/v1/subscriptions/debug").json()["state"] == "expired"


def test_clients_without_a_subscription_take_up_the_first(
    gateway: GatewaySidecar, shared_collector: Collector
) -> None:
    with each_kind(gateway, Mode.PRODUCER, "unsubscribed") as clients:
        for client in clients:
            become(gateway, client, lambda one: one.get("subscriptions") == [], "nothing to push")
            assert client_of(gateway, client.client_id)["push_interval_ms"] == INTERVAL_MS
        put(gateway, "first", metrics=[CONNECTIONS])
        for client in clients:
            exports(shared_collector, client, CONNECTIONS)
            assert client_of(gateway, client.client_id)["subscriptions"] == ["first"]
            assert client.errors == []
