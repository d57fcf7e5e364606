"""Kafka's requests about client metrics resources: the same answers as from Kafka 4.4.

A real broker keeps the resources, and a relay hides that from the sidecar, so the sidecar answers.
What the broker itself answers to the same bytes is compared with it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pytest

from receiver.wire import (
    altered_configs,
    config_resources,
    k32_describe_configs,
    k74_list_config_resources,
)
from receiver.wire.altered_configs import AlterConfigsRequest, AlteredConfig, AlteredResource, Operation
from receiver.wire.config_resources import BROKER, CLIENT_METRICS, Resource, Result
from receiver.wire.headers import decode_response_header, response_header_version
from receiver.wire.k32_describe_configs import DescribeConfigsRequest
from receiver.wire.primitives import Reader
from tests.integration.gateway.support import GatewaySidecar
from tests.testbed import kafka_tools
from tests.testbed.broker import KafkaBroker
from tests.testbed.older_broker import OlderBroker
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import WaitTimeoutError, wait_until
from tests.testbed.scripted_broker import request_frame
from tests.testbed.sidecar import config_for

DESCRIBE, ALTER, INCREMENTAL, LIST = 32, 33, 44, 74
TOPIC = 2
#: The versions that Kafka 4.4 has.
VERSIONS = {DESCRIBE: (1, 2, 3, 4), ALTER: (0, 1, 2), INCREMENTAL: (0, 1)}

Changes = Mapping[str, Sequence[AlteredConfig]]
T = TypeVar("T")


class Caller:
    """A client that sends requests about configs.

    Args:
        port: Where it connects to.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((LOOPBACK, port), 120)
        self._stream = self._socket.makefile("rb")

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def ask(self, key: int, version: int, body: bytes) -> bytes:
        """Send a request; return the response's body."""
        flexible = response_header_version(key, version)
        self._socket.sendall(request_frame(key, version, 7, b"\0" * flexible + body))
        (length,) = struct.unpack(">i", self._stream.read(4))
        response = self._stream.read(length)
        reader = Reader(response)
        assert decode_response_header(reader, flexible).correlation_id == 7
        return response[reader.offset :]

    def describe(self, version: int, *asked: tuple[Resource, tuple[str, ...] | None]) -> bytes:
        request = DescribeConfigsRequest(
            resources=asked, include_synonyms=version > 0, include_documentation=version >= 3
        )
        return self.ask(DESCRIBE, version, k32_describe_configs.encode_request(request, version))

    def alter(
        self,
        key: int,
        version: int,
        changes: Changes,
        *,
        validate_only: bool = False,
        kind: int = CLIENT_METRICS,
    ) -> list[Result]:
        resources = tuple(
            AlteredResource(Resource(kind, name), tuple(configs)) for name, configs in changes.items()
        )
        request = AlterConfigsRequest(resources=resources, validate_only=validate_only)
        body = self.ask(key, version, altered_configs.encode_request(request, key, version))
        return config_resources.read_results(body, key, version)

    def names(self) -> set[str]:
        error_code, names = k74_list_config_resources.decode_response(self.ask(LIST, 0, b"\0"))
        assert error_code == 0
        return set(names)

    def delete(self, name: str) -> None:
        keys = ("metrics", "interval.ms", "match")
        configs = [AlteredConfig(key, None, Operation.DELETE) for key in keys]
        (result,) = self.alter(INCREMENTAL, 1, {name: configs})
        assert result.error_code == 0


@pytest.fixture(scope="module")
def sidecar(broker: KafkaBroker) -> Iterator[GatewaySidecar]:
    """A sidecar in front of a broker that seems to keep no client metrics resources."""
    old = free_port()
    config = config_for(broker, client_port=free_port())
    config["listeners"][0]["upstream"] = f"{LOOPBACK}:{old}"
    with OlderBroker(old, broker.client_port, frozenset({LIST})), GatewaySidecar(config) as started:
        yield started


@pytest.fixture
def callers(broker: KafkaBroker, sidecar: GatewaySidecar) -> Iterator[tuple[Caller, Caller]]:
    """Clients of the broker and of the sidecar; what they make is deleted in the end."""
    direct, through = Caller(broker.client_port), Caller(sidecar.port())
    yield direct, through
    for caller in (direct, through):
        for name in caller.names():
            caller.delete(name)
        caller.close()


def of(name: str) -> Resource:
    return Resource(CLIENT_METRICS, name)


def wait_for(shown: Callable[[], bool], what: str) -> None:
    """Wait until a broker shows a change, which is a moment after it has answered it."""
    wait_until(shown, timeout_s=60, what=what, every_s=0.01)


def answers(callers: tuple[Caller, Caller], ask: Callable[[Caller], T]) -> tuple[T, T]:
    """Ask the broker and the sidecar, until they answer the same or the time is up."""
    direct, through = callers
    # Assertions of the answers show how they differ.
    with contextlib.suppress(WaitTimeoutError):
        wait_for(lambda: ask(direct) == ask(through), "the same answers")
    return ask(direct), ask(through)


def describing(version: int, *asked: tuple[Resource, tuple[str, ...] | None]) -> Callable[[Caller], bytes]:
    return lambda caller: caller.describe(version, *asked)


@pytest.mark.parametrize("version", VERSIONS[DESCRIBE])
def test_a_description_is_kafkas_byte_for_byte(callers: tuple[Caller, Caller], version: int) -> None:
    for name, configs in {
        "all": {"metrics": "*", "interval.ms": "1000", "match": "client_id=a.*,client_source_port=1"},
        "some": {"metrics": " a. , b."},
        "match": {"match": "client_id=x"},
    }.items():
        changes = {name: [AlteredConfig(key, value) for key, value in configs.items()]}
        for caller in callers:
            (result,) = caller.alter(INCREMENTAL, 1, changes)
            assert result.error_code == 0
    for asked in (
        [(of("all"), None)],
        [(of("some"), None), (of("match"), ())],
        [(of("absent"), None)],
        [(of("all"), ("metrics", "unknown"))],
        [(of(""), None)],
    ):
        direct, through = answers(callers, describing(version, *asked))
        assert through == direct
    assert answers(callers, Caller.names) == ({"all", "some", "match"},) * 2


def _set(key: str, value: str | None, operation: int = Operation.SET) -> AlteredConfig:
    return AlteredConfig(key, value, operation)


CHANGES: Mapping[str, Changes] = {
    "set": {"s": [_set("metrics", "a."), _set("interval.ms", "5000")]},
    "nothing": {"s": []},
    "several": {"s": [_set("metrics", "a.")], "t": [_set("interval.ms", "50")], "u": [_set("metrics", "")]},
    "too short an interval": {"s": [_set("interval.ms", "50")]},
    "no interval": {"s": [_set("interval.ms", "abc")]},
    "unknown key": {"s": [_set("foo", "1")]},
    "unknown selector": {"s": [_set("match", "a=b")]},
    "no pattern": {"s": [_set("match", "client_id")]},
    "bad pattern": {"s": [_set("match", "client_id=(")]},
    "null": {"s": [_set("metrics", None)]},
    "no name": {"": [_set("metrics", "a.")]},
    "twice": {"s": [_set("metrics", "a."), _set("metrics", "b.")]},
}
OPERATIONS: Mapping[str, Changes] = {
    "append": {"s": [_set("metrics", "c.", Operation.APPEND)]},
    "subtract": {"s": [_set("match", "client_id=x", Operation.SUBTRACT)]},
    "delete": {"s": [_set("metrics", None, Operation.DELETE)]},
    "delete an unknown key": {"s": [_set("foo", None, Operation.DELETE)]},
}


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("case", [*CHANGES, *OPERATIONS])
def test_a_change_gets_kafkas_error_code(
    callers: tuple[Caller, Caller], case: str, validate_only: bool
) -> None:
    for version in VERSIONS[INCREMENTAL]:
        changes = {**CHANGES, **OPERATIONS}[case]
        direct, through = (
            caller.alter(INCREMENTAL, version, changes, validate_only=validate_only) for caller in callers
        )
        assert [item[:2] for item in through] == [item[:2] for item in direct]
        names, others = answers(callers, Caller.names)
        assert others == names
        for name in names:
            # A value that is the default counts as set in Kafka.
            asked = (of(name), ("metrics",)) if "u" in changes else (of(name), None)
            one, other = answers(callers, describing(4, asked))
            assert other == one


@pytest.mark.parametrize("version", VERSIONS[ALTER])
def test_all_configs_are_replaced_as_in_kafka(callers: tuple[Caller, Caller], version: int) -> None:
    both: Sequence[Changes] = (
        {"s": [_set("metrics", "a."), _set("interval.ms", "5000")]},
        {"s": [_set("match", "client_id=x")]},
        {"s": []},
    )
    for changes in both:
        direct, through = (caller.alter(ALTER, version, changes) for caller in callers)
        assert through == direct
        one, other = answers(callers, describing(4, (of("s"), None)))
        assert other == one
    assert answers(callers, Caller.names) == (set(), set())


def test_other_types_are_the_brokers_in_the_same_request(
    callers: tuple[Caller, Caller], broker: KafkaBroker
) -> None:
    broker.create_topic("configs")
    topic, missing, node = Resource(TOPIC, "configs"), Resource(TOPIC, "missing"), Resource(BROKER, "1")
    for caller in callers:
        caller.alter(INCREMENTAL, 1, {"s": [_set("metrics", "a.")]})
    asked = [(topic, ("retention.ms",)), (of("s"), None), (missing, None), (node, ("node.id",))]
    for version in VERSIONS[DESCRIBE]:

        def described(caller: Caller, version: int = version) -> tuple[set[Result], int]:
            body = caller.describe(version, *asked)
            return set(config_resources.read_results(body, DESCRIBE, version)), len(body)

        direct, through = answers(callers, described)
        assert through == direct
        results = config_resources.read_results(callers[1].describe(version, *asked), DESCRIBE, version)
        assert [result.resource for result in results] == [resource for resource, _ in asked]
    # A change of a topic goes to the broker, beside one of a subscription.
    changes = (
        AlteredResource(topic, (_set("retention.ms", "12345"),)),
        AlteredResource(of("s"), (_set("metrics", "b."),)),
        AlteredResource(missing, (_set("retention.ms", "12345"),)),
    )
    body = altered_configs.encode_request(AlterConfigsRequest(resources=changes), INCREMENTAL, 1)
    results = config_resources.read_results(callers[1].ask(INCREMENTAL, 1, body), INCREMENTAL, 1)
    assert [(result.resource, result.error_code) for result in results] == [
        (topic, 0),
        (of("s"), 0),
        (missing, 3),
    ]
    describe = describing(4, (topic, ("retention.ms",)), (of("s"), ("metrics",)))
    wait_for(lambda: b"12345" in describe(callers[1]), "the topic's change")
    shown = describe(callers[1])
    assert b"12345" in shown
    assert b"b." in shown


def test_rest_and_kafka_see_each_others_changes_at_once(
    callers: tuple[Caller, Caller], sidecar: GatewaySidecar
) -> None:
    _, through = callers
    document = {
        "metrics": ["a."],
        "match": {"client_id": "x", "principal": "User:a"},
        "labels": {"team": "t"},
        "enabled": False,
    }
    sidecar.http.put("/v1/subscriptions/s", json=document).raise_for_status()
    assert through.names() == {"s"}
    through.alter(INCREMENTAL, 1, {"s": [_set("interval.ms", "7000"), _set("match", "client_id=y")]})
    found: dict[str, Any] = sidecar.http.get("/v1/subscriptions/s").json()
    assert found["interval_ms"] == 7000
    assert found["match"] == {"client_id": "y", "principal": "User:a"}
    assert (found["labels"], found["enabled"]) == ({"team": "t"}, False)
    assert found["changed_by"] == "User:ANONYMOUS"
    assert found["changed_at"] is not None
    assert sidecar.value(
        "config_requests_total", listener="CLIENT", api="ListConfigResources", result="answered"
    )


@pytest.mark.full
def test_a_brokers_own_telemetry_is_not_hidden_silently(plugin_broker: KafkaBroker) -> None:
    plugin_broker.alter_client_metrics("own", ["a."], 1000)
    config = config_for(plugin_broker, client_port=free_port())
    try:
        direct = Caller(plugin_broker.client_port)
        wait_for(lambda: direct.names() == {"own"}, "the broker's resource")
        direct.close()
        with GatewaySidecar(config) as sidecar:
            (listener,) = sidecar.http.get("/v1/listeners").json()["items"]
            assert "the broker takes telemetry itself" in listener["hidden_telemetry"]
            assert "has 1 client metrics resource, which" in listener["hidden_telemetry"]
            assert sidecar.value("hidden_broker_telemetry", listener="CLIENT") == 1
            sidecar.wait_for_log("the broker's own telemetry has no effect")
            passed_by, warned = sidecar.warnings()
            assert passed_by.startswith("listener CLIENT: the broker advertises")
            assert warned == f"behind CLIENT: {listener['hidden_telemetry']}"

            caller = Caller(sidecar.port())
            (result,) = caller.alter(INCREMENTAL, 1, {"own": [_set("metrics", "b.")]})
            assert result.error_code == 0
            assert caller.names() == {"own"}
            caller.close()
            labels = {"listener": "CLIENT", "result": "hidden"}
            for api in ("IncrementalAlterConfigs", "ListConfigResources"):
                assert sidecar.value("config_requests_total", api=api, **labels) == 1
            sidecar.wait_for_log("client metrics resources of the broker have no effect")
            assert sidecar.http.get("/v1/subscriptions").json()["items"] == []
    finally:
        plugin_broker.delete_client_metrics("own")


@pytest.mark.full
def test_kafkas_tools_work_unchanged() -> None:
    """The tools follow the advertised address, so the sidecar has it."""
    port, old = free_port(), free_port()
    with (
        KafkaBroker(advertised_client_port=port) as own,
        OlderBroker(old, own.client_port, frozenset({LIST})),
    ):
        config = config_for(own, client_port=port)
        config["listeners"][0]["upstream"] = f"{LOOPBACK}:{old}"
        with GatewaySidecar(config) as sidecar:
            _use_the_tools(sidecar, f"{LOOPBACK}:{port}")


def _use_the_tools(sidecar: GatewaySidecar, at: str) -> None:
    metrics = kafka_tools.client_metrics
    settings = ("--metrics", "org.apache.kafka.producer.,a.b", "--interval", "5000")
    said = metrics(at, "--alter", "--generate-name", *settings)
    (made,) = sidecar.http.get("/v1/subscriptions").json()["items"]
    name = made["name"]
    assert said == f"Altered client metrics config for {name}.\n"
    assert (made["metrics"], made["interval_ms"]) == (["org.apache.kafka.producer.", "a.b"], 5000)
    assert metrics(at, "--list") == f"{name}\n"
    assert "interval.ms=5000" in metrics(at, "--describe")
    assert metrics(at, "--delete", "--name", name) == f"Deleted client metrics config for {name}.\n"
    assert sidecar.http.get("/v1/subscriptions").json()["items"] == []

    entity = ("--entity-type", "client-metrics", "--entity-name", "s")
    values = "metrics=[x.,y.],interval.ms=7000,match=[client_id=a]"
    kafka_tools.configs(at, "--alter", *entity, "--add-config", values)
    assert "metrics=x.,y." in kafka_tools.configs(at, "--describe", *entity)
    kafka_tools.configs(at, "--alter", *entity, "--delete-config", "interval.ms,match")
    found = sidecar.http.get("/v1/subscriptions/s").json()
    assert (found["metrics"], found["interval_ms"], found["match"]) == (["x.", "y."], 300_000, {})
    with pytest.raises(AssertionError, match="is out of range; give 100 to 3600000 milliseconds"):
        kafka_tools.configs(at, "--alter", *entity, "--add-config", "interval.ms=5")
    kafka_tools.configs(at, "--alter", *entity, "--delete-config", "metrics")
    assert sidecar.http.get("/v1/subscriptions").json()["items"] == []
