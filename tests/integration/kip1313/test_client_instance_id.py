"""KIP-1313's client instance id: its origin, its lifetime, where it shows, and real clients."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from tests.conformance.requests import compact_bytes
from tests.integration.gateway.support import GatewaySidecar, config
from tests.integration.kip1313 import speakers as api
from tests.integration.kip1313.speakers import (
    ANOTHER,
    CLIENT_ID,
    MINE,
    MINE_AS_TEXT,
    ZERO,
    NewClient,
    OldClient,
    Speaker,
    in_kio,
    read,
)
from tests.testbed.broker import SASL_USERS, KafkaBroker
from tests.testbed.clients import Client, FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.scripted_broker import RANGES, ScriptedBroker

INTERVAL_MS = 200

#: Where an answer has its error code, of RPCs that kio lacks in the version asked; None: it has
#: none.
_ERROR_AT: dict[int, int | None] = {
    api.TXN_OFFSET_COMMIT: None,
    api.DELETE_GROUPS: None,
    api.STREAMS_GROUP_HEARTBEAT: 4,
    api.STREAMS_GROUP_DESCRIBE: None,
    api.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: 4,
    api.UNREGISTER_CONTROLLER: 4,
}
#: The same for the bodies that KIP-1313 changes.
_ERROR_IN_V3_AT: dict[int, int | None] = {api.OFFSET_DELETE: 0, api.GET: 4}


# -- origin: the table of KIP-1313, "Alignment of identifiers" ---------------------------------


@pytest.fixture(scope="module")
def fronts(plugin_broker: KafkaBroker, translating: GatewaySidecar) -> Iterator[Mapping[str, int]]:
    """Where a client connects: Kafka 4.4 with a telemetry plugin (old) or the receiver (new)."""
    metrics, match = ["org.apache.kafka.producer."], {"client_id": CLIENT_ID}
    plugin_broker.alter_client_metrics("kip1313", metrics, INTERVAL_MS, match)
    translating.put_subscription("kip1313", metrics, INTERVAL_MS, match)
    yield {"old": plugin_broker.client_port, "new": translating.port()}
    plugin_broker.delete_client_metrics("kip1313")
    translating.http.delete("/v1/subscriptions/kip1313").raise_for_status()


@pytest.mark.parametrize(
    ("client", "broker_age", "version", "asks_with", "is_answered"),
    [
        (OldClient, "old", 0, ZERO, "an id of the broker's"),
        (OldClient, "new", 0, ZERO, "an id of the broker's"),
        # The KIP has the answer's id be zero, but Kafka 4.4 repeats the id of the request.
        (NewClient, "old", 0, MINE, "its own id"),
        (NewClient, "new", 1, MINE, "no id"),
    ],
)
def test_who_makes_the_client_instance_id(
    fronts: Mapping[str, int],
    client: Callable[[int], Speaker],
    broker_age: str,
    version: int,
    asks_with: uuid.UUID,
    is_answered: str,
) -> None:
    with client(fronts[broker_age]) as speaker:
        is_new = isinstance(speaker, NewClient)
        assert min(int(is_new), speaker.offered[api.GET][1]) == version
        first = _get(speaker, version, asks_with)
        assert first.error is ErrorCode.none
        named = first.instance or MINE
        if version == 1:
            answered = "no id" if first.instance is None else "an id"
        else:
            answered = "its own id" if first.instance == asks_with else "an id of the broker's"
            assert named != ZERO
        assert answered == is_answered
        pushed = _push(speaker, version, named, first.subscription_id)
        time.sleep(1.5 * INTERVAL_MS / 1000)
        again = _get(speaker, version, named)
        assert (pushed, again.error) == (ErrorCode.none, ErrorCode.none)
        assert again.instance in {None, named}
        assert again.subscription_id == first.subscription_id


class _Got:
    """An answer to GetTelemetrySubscriptions."""

    def __init__(self, answer: bytes, version: int) -> None:
        self.error = ErrorCode(struct.unpack_from(">h", answer, 4)[0])
        self.instance = uuid.UUID(bytes=answer[6:22]) if version == 0 else None
        (self.subscription_id,) = struct.unpack_from(">i", answer, 22 if version == 0 else 6)


def _get(speaker: Speaker, version: int, instance: uuid.UUID) -> _Got:
    if version == 1:
        return _Got(speaker.ask_version(api.GET, 1, b"\0", instance), 1)
    return _Got(speaker.ask_version(api.GET, 0, instance.bytes + b"\0"), 0)


def _push(speaker: Speaker, version: int, instance: uuid.UUID, subscription_id: int) -> ErrorCode:
    body = struct.pack(">i?b", subscription_id, False, 0) + compact_bytes(b"") + b"\0"
    if version == 1:
        answer = speaker.ask_version(api.PUSH, 1, body, instance)
    else:
        answer = speaker.ask_version(api.PUSH, 0, instance.bytes + body)
    return ErrorCode(struct.unpack_from(">h", answer, 4)[0])


@pytest.fixture(scope="module")
def not_translating(broker: KafkaBroker) -> Iterator[GatewaySidecar]:
    with GatewaySidecar(config(broker.client_port)) as started:
        yield started


@pytest.mark.parametrize("instance", [uuid.UUID(int=(1 << 128) - 1), uuid.UUID(int=0x7F << 120), MINE])
def test_a_newer_client_finds_its_way_back_whatever_its_id_is(
    not_translating: GatewaySidecar, instance: uuid.UUID
) -> None:
    """Behind the client id a broker that knows no header v3 may take the id for tagged fields."""
    with NewClient(not_translating.port(), instance=instance) as speaker:
        assert speaker.falls_back
        assert speaker.offered[api.API_VERSIONS] == (0, 5)
        assert _get(speaker, 1, instance).error is ErrorCode.none
        assert _shown(not_translating, speaker)["client_instance_id"] is not None


# -- lifetime -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [ANOTHER, ZERO, None])
def test_another_id_is_refused_in_the_words_of_each_rpc(
    translating: GatewaySidecar, wrong: uuid.UUID | None
) -> None:
    """A wrong or missing id gives INVALID_REQUEST.

    The connection closes where the answer names the entries of the request, because the empty body
    is malformed.
    """
    with NewClient(translating.port()) as client:
        offered = client.offered
    answered, expected = {}, {}
    for key, (_, greatest) in offered.items():
        if key == api.SASL_HANDSHAKE:
            continue
        version = greatest if wrong is not None else greatest - 1
        with NewClient(translating.port()) as client:
            try:
                answer = client.ask_version(key, version, b"", wrong)
            except EOFError:
                answered[key] = "closed"
            else:
                answered[key] = _error_of(key, greatest - 1, answer, in_v3=wrong is not None)
                # The connection stays, and with it its id.
                assert client.ask(api.DESCRIBE_CLUSTER, b"\0\1\0\0")[4:6] == b"\0\0"
        expected[key] = "INVALID_REQUEST" if _has_an_error_code(key, greatest - 1) else "closed"
    assert answered == expected
    assert {key for key, answer in answered.items() if answer == "closed"} >= {api.PRODUCE, api.OFFSET_COMMIT}
    assert {key for key, answer in answered.items() if answer != "closed"} >= {api.FETCH, api.METADATA}


def _has_an_error_code(key: int, layout: int) -> bool:
    if in_kio(key, layout):
        return "error_code" in load_response_schema(key, layout).__dataclass_fields__
    return key == api.API_VERSIONS or _ERROR_AT[key] is not None


def _error_of(key: int, layout: int, answer: bytes, *, in_v3: bool) -> str:
    at = _ERROR_IN_V3_AT.get(key) if in_v3 else None
    if at is None and key == api.API_VERSIONS:
        layout = 4
    if at is None and in_kio(key, layout):
        error: Any = read(load_response_schema(key, layout), answer).error_code
    else:
        at = _ERROR_AT[key] if at is None else at
        assert at is not None
        error = ErrorCode(struct.unpack_from(">h", answer, at)[0])
    return str(error.name).upper()


def test_the_zero_id_is_refused_in_the_first_request(translating: GatewaySidecar) -> None:
    with Speaker(translating.port()) as client:
        answer = client.ask_version(api.API_VERSIONS, 6, api.software("new"), ZERO)
        assert struct.unpack_from(">h", answer)[0] == ErrorCode.invalid_request.value


def test_a_client_that_begins_with_an_older_header_is_held_to_no_id(translating: GatewaySidecar) -> None:
    with OldClient(translating.port()) as client:
        version = client.offered[api.DESCRIBE_CLUSTER][1]
        for instance in (MINE, ANOTHER):
            assert client.ask_version(api.DESCRIBE_CLUSTER, version, b"\0\1\0\0", instance)[4:6] == b"\0\0"
        assert client.ask_version(api.DESCRIBE_CLUSTER, version - 1, b"\0\1\0\0")[4:6] == b"\0\0"
        assert client.ask_version(api.DESCRIBE_CLUSTER, version, b"\0\1\0\0", ZERO)[4:6] == b"\0\x2a"


def test_a_login_carries_the_id_but_for_its_handshake(translating: GatewaySidecar) -> None:
    right = compact_bytes(f"\0alice\0{SASL_USERS['alice']}".encode()) + b"\0"
    with NewClient(translating.port("SASL")) as client:
        handshake = client.ask_version(api.SASL_HANDSHAKE, 1, struct.pack(">h", 5) + b"PLAIN")
        assert handshake[:2] == b"\0\0"
        assert client.offered[api.SASL_AUTHENTICATE] == (0, 3)
        assert client.ask(api.SASL_AUTHENTICATE, right)[:2] == b"\0\0"
        shown = _shown(translating, client, "SASL")
        assert (shown["principal"], shown["client_instance_id"]) == ("User:alice", MINE_AS_TEXT)
        assert client.ask(api.DESCRIBE_CLUSTER, b"\0\1\0\0")[4:6] == b"\0\0"


def test_a_login_under_another_id_is_none(translating: GatewaySidecar) -> None:
    right = compact_bytes(f"\0alice\0{SASL_USERS['alice']}".encode()) + b"\0"
    with NewClient(translating.port("SASL")) as client:
        client.ask_version(api.SASL_HANDSHAKE, 1, struct.pack(">h", 5) + b"PLAIN")
        refused = client.ask_version(api.SASL_AUTHENTICATE, 3, right, ANOTHER)
        assert struct.unpack_from(">h", refused)[0] == ErrorCode.invalid_request.value
        with pytest.raises((EOFError, ConnectionError)):  # in its place the broker got no token
            client.ask(api.DESCRIBE_CLUSTER, b"\0\1\0\0")


# -- where it shows -------------------------------------------------------------------------------


def _shown(sidecar: GatewaySidecar, speaker: Speaker, listener: str = "CLIENT") -> dict[str, Any]:
    (shown,) = [
        connection
        for connection in sidecar.connections(listener)
        if connection["source_port"] == speaker.port
    ]
    return shown


def test_the_registry_and_the_request_log_show_it(translating: GatewaySidecar) -> None:
    with NewClient(translating.port()) as client:
        assert _get(client, 1, MINE).error is ErrorCode.none
        shown = _shown(translating, client)
        assert shown["client_instance_id"] == MINE_AS_TEXT
        assert (shown["client_id"], shown["client_software_name"]) == (CLIENT_ID, "new")
        logged = [
            (line["api"], line["client_id"], line["client_instance_id"])
            for line in translating.logged("request answered")
            if line["source"].endswith(f":{client.port}")
        ]
        assert logged == [
            ("ApiVersions", CLIENT_ID, MINE_AS_TEXT),
            ("GetTelemetrySubscriptions", CLIENT_ID, MINE_AS_TEXT),
        ]


# -- older brokers, and newer ones ---------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    ("ranges", "offered"),
    [
        pytest.param({api.METADATA: (0, 13)}, {api.METADATA: (0, 14)}, id="Kafka 4.4's version"),
        pytest.param({api.METADATA: (0, 12)}, {api.METADATA: (0, 12)}, id="an older version"),
        pytest.param({api.METADATA: (0, 14)}, {api.METADATA: (0, 14)}, id="a newer version"),
        pytest.param({api.FETCH: (4, 18)}, {api.FETCH: (4, 19)}, id="one of which the first is gone"),
        pytest.param({}, {api.GET: (0, 1), api.PUSH: (0, 1)}, id="telemetry, which it lacks"),
        pytest.param({api.OFFSET_DELETE: (0, 0)}, {api.OFFSET_DELETE: (0, 1)}, id="OffsetDelete"),
        pytest.param({api.API_VERSIONS: (0, 4)}, {api.API_VERSIONS: (0, 6)}, id="an older ApiVersions"),
    ],
)
def test_only_what_can_be_asked_of_the_broker_is_offered(
    ranges: Mapping[int, tuple[int, int]], offered: Mapping[int, tuple[int, int]]
) -> None:
    with ScriptedBroker(ranges={**RANGES, **ranges}) as broker:
        settings = config(broker.port, kip1313={"translate_all": True})
        with GatewaySidecar(settings) as sidecar, NewClient(sidecar.port()) as client:
            assert {key: client.offered[key] for key in offered} == offered
            assert not client.falls_back
            # What was offered with header v3 goes on in the version before, under the first client
            # id.
            assert client.ask(api.PRODUCE, struct.pack(">hh", -1, 1) + b"records").endswith(b"records")
        seen = broker.peers[-1].answers.seen[-1]
        assert (seen.api_key, seen.api_version, seen.client_id) == (api.PRODUCE, 13, CLIENT_ID)


# -- real clients, none of which knows KIP-1313 --------------------------------------------------


@pytest.mark.parametrize("kind", [JavaClient, LibrdkafkaClient, FranzClient])
def test_real_clients_work_as_ever(
    translating: GatewaySidecar, broker: KafkaBroker, kind: type[Client]
) -> None:
    topic = f"kip1313-{kind.language}"
    broker.create_topic(topic)
    with (
        kind(Mode.PRODUCER, bootstrap=translating.bootstrap(), topic=topic, client_id=topic) as producer,
        kind(Mode.CONSUMER, bootstrap=translating.bootstrap(), topic=topic, client_id=topic) as consumer,
    ):
        producer.wait_for_records(10)
        consumer.wait_for_records(10)
        assert producer.errors == []
        assert consumer.errors == []
        assert {connection["client_id"] for connection in translating.connections()} >= {topic}
