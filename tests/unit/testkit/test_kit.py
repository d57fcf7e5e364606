"""The kit without sockets: login, malformed requests, bounds, data path, sorting of clients."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kafka.protocol import consumer, metadata, producer

from receiver.testkit import kit as kits
from receiver.testkit.data_path import RANGES, DataPath, Node
from receiver.testkit.judge import clients, judge
from receiver.testkit.kit import Credentials, Kit
from receiver.testkit.recording import KIT, Connection, Hello, Push, Request
from receiver.testkit.script import load_script
from receiver.wire import api_keys
from receiver.wire.headers import RequestHeader, encode_request_header
from receiver.wire.uuid import Uuid
from receiver.wire.writer import Writer
from tests.unit.testkit.scripted_client import CLUSTER, NODES, ScriptedClient, kit_with

USER = Credentials("alice", "wonder")


def locked() -> tuple[Kit, Connection]:
    kit = Kit(load_script("default"), cluster_id=CLUSTER, random_bytes=bytes, credentials=USER)
    return kit, kit.open(0, 1)


def frame(key: int, version: int, body: bytes = b"") -> bytes:
    return encode_request_header(RequestHeader(key, version, 7, "me")) + body


def token(text: bytes) -> bytes:
    writer = Writer()
    writer.bytes_field(text)
    return writer.take()


HANDSHAKE = frame(17, 1, b"\0\5PLAIN")


def test_a_login_opens_the_other_requests() -> None:
    kit, connection = locked()
    assert not kit.take(0, connection, HANDSHAKE, NODES).close
    answer = kit.take(0, connection, frame(36, 0, token(b"\0alice\0wonder")), NODES)
    assert (answer.close, answer.data and answer.data[4:6]) == (False, b"\0\0")
    assert kit.take(0, connection, frame(3, 1, b"\0\0\0\0"), NODES).data


@pytest.mark.parametrize("given", [b"\0alice\0wrong", b"", b"alice\0wonder", b"\0alice\0wonder2"])
def test_a_wrong_login_is_refused(given: bytes) -> None:
    kit, connection = locked()
    kit.take(0, connection, HANDSHAKE, NODES)
    answer = kit.take(0, connection, frame(36, 1, token(given)), NODES)
    assert answer.close
    assert answer.data is not None
    assert answer.data[4:6] == (58).to_bytes(2, "big")
    assert "wonder" not in repr(kit.connections) + repr(USER)


def test_a_raw_token_after_handshake_0() -> None:
    kit, connection = locked()
    kit.take(0, connection, frame(17, 0, b"\0\5PLAIN"), NODES)
    assert kit.take(0, connection, b"\0alice\0wonder", NODES) == kits.Reply(b"")


def test_without_a_login_the_connection_ends() -> None:
    kit, connection = locked()
    assert kit.take(0, connection, frame(3, 1, b"\0\0\0\0"), NODES).close
    assert connection.problem == "Metadata version 1: the client has not logged in"


@pytest.mark.parametrize(
    "data", [b"", b"\0", frame(99, 0), frame(72, 9), frame(72, 0, b"\0"), frame(3, 1, b"\x7f\xff\xff\xff")]
)
def test_a_malformed_request_ends_the_connection(data: bytes) -> None:
    kit = kit_with(load_script("default"))
    connection = kit.open(0, 1)
    assert kit.take(0, connection, data, NODES) == kits.Reply(None, close=True)
    assert connection.problem


def test_a_recording_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kits, "_MAX_REQUESTS_OF_CONNECTION", 10)
    kit = kit_with(load_script("default"))
    connection = kit.open(0, 1)
    for now in range(8):
        assert kit.take(now, connection, frame(3, 1, b"\0\0\0\0"), NODES).data
    # Telemetry has room that other requests can't take.
    for now in range(8, 16):
        assert kit.take(now, connection, frame(71, 0, b"\0" + bytes(17)), NODES).data
    assert (len(connection.requests), connection.unrecorded) == (10, 6)


# The data path, in all versions that clients may choose.

NODE = (Node(1, "127.0.0.1", 9092),)
TOPIC = uuid.UUID(int=7)


def body(key: int, version: int) -> memoryview:
    """A request of each kind with one topic, partition and member."""
    topic = producer.ProduceRequest.TopicProduceData
    fetched = consumer.FetchRequest.FetchTopic
    listed = consumer.ListOffsetsRequest.ListOffsetsTopic
    named = metadata.MetadataRequest.MetadataRequestTopic
    protocol = consumer.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
    assignment = consumer.SyncGroupRequest.SyncGroupRequestAssignment(member_id="m", assignment=b"mine")
    produced = topic.PartitionProduceData(index=0, records=b"")
    partition = fetched.FetchPartition(partition=0)
    requests: dict[int, tuple[Any, dict[str, Any]]] = {
        0: (
            producer.ProduceRequest,
            {"acks": 1, "topic_data": [topic(name="t", topic_id=TOPIC, partition_data=[produced])]},
        ),
        1: (
            consumer.FetchRequest,
            {"max_wait_ms": 100, "topics": [fetched(topic="t", topic_id=TOPIC, partitions=[partition])]},
        ),
        2: (
            consumer.ListOffsetsRequest,
            {"topics": [listed(name="t", partitions=[listed.ListOffsetsPartition(partition_index=0)])]},
        ),
        3: (metadata.MetadataRequest, {"topics": [named(name="t")]}),
        10: (metadata.FindCoordinatorRequest, {"key": "g", "coordinator_keys": ["g"]}),
        11: (
            consumer.JoinGroupRequest,
            {"group_id": "g", "protocol_type": "consumer", "protocols": [protocol]},
        ),
        14: (consumer.SyncGroupRequest, {"member_id": "m", "assignments": [assignment]}),
    }
    kind, fields = requests[key]
    return memoryview(kind(version=version, **fields).encode(version=version))


@pytest.mark.parametrize("key", [0, 1, 2, 3, 10, 11, 14])
def test_the_data_path_answers_every_version(key: int) -> None:
    responses = {
        0: producer.ProduceResponse,
        1: consumer.FetchResponse,
        2: consumer.ListOffsetsResponse,
        3: metadata.MetadataResponse,
        10: metadata.FindCoordinatorResponse,
        11: consumer.JoinGroupResponse,
        14: consumer.SyncGroupResponse,
    }
    least, most = RANGES[key]
    for version in range(least, most + 1):
        path = DataPath(CLUSTER)
        answer = path.answer(key, version, body(key, version), NODE)
        assert answer.body is not None
        read = responses[key].decode(answer.body, version=version)
        assert getattr(read, "error_code", 0) == 0
        if key == 3:
            assert (read.brokers[0].port, read.topics[0].partitions[1].leader_id) == (9092, 1)
        if key == 14:
            assert bytes(read.assignment) == b"mine"
        if key == 1:
            assert answer.delay_s == 0.1


def test_produce_without_acks_has_no_answer() -> None:
    request = producer.ProduceRequest(acks=0, topic_data=[], version=9).encode(version=9)
    assert DataPath(CLUSTER).answer(0, 9, memoryview(request), NODE).body is None


# Clients.


def connection(
    number: int, opened: float, closed: float | None, by: str = "client", name: str = "a"
) -> Connection:
    made = Connection(number=number, node_id=1, opened=opened, closed=closed, closed_by=by)
    hello = Hello(
        connection=made,
        at=opened,
        api_key=18,
        api_version=3,
        client_id=name,
        software_name="s",
        software_version="1",
    )
    made.requests.append(hello)
    return made


def push(to: Connection, at: float, instance_id: bytes) -> None:
    to.requests.append(
        Push(
            connection=to,
            at=at,
            api_key=72,
            api_version=0,
            client_id=to.client_id,
            instance_id=Uuid(instance_id * 16),
            subscription_id=1,
            terminating=False,
            codec=0,
            size=0,
        )
    )


def lives(*connections: Connection) -> list[list[int]]:
    found = clients(connections, ended=100, brokers=1)
    return [[c.number for c in client.connections] for client in found]


def test_a_client_begins_anew_when_it_had_closed_everything() -> None:
    assert lives(connection(1, 0, 10), connection(2, 5, 20), connection(3, 21, 30)) == [[1, 2], [3]]
    # A connection that the kit closed is replaced by the same client.
    assert lives(connection(1, 0, 10, KIT), connection(2, 11, 20)) == [[1, 2]]
    assert lives(connection(1, 0, 10), connection(2, 5, 20, name="b")) == [[1], [2]]


def test_a_client_that_goes_on_with_its_id_is_one_client() -> None:
    # An idle librdkafka closes its other connection when the kit has closed one.
    first, second, third = connection(1, 0, 10, KIT), connection(2, 0, 11), connection(3, 12, 13)
    last, other = connection(4, 14, 20), connection(5, 30, 40)
    push(first, 2, b"a")
    push(last, 15, b"a")
    push(other, 31, b"b")
    assert lives(first, second, third, last, other) == [[1, 2, 3, 4], [5]]


def test_clients_with_one_client_id_are_told_apart_when_they_alternate() -> None:
    first, second = connection(1, 0, None), connection(2, 1, None)
    push(first, 2, b"a")
    push(second, 3, b"b")
    push(first, 4, b"a")
    assert lives(first, second) == [[1], [2]]


def test_a_client_that_changes_its_id_is_one_client() -> None:
    first, second = connection(1, 0, None), connection(2, 1, None)
    push(first, 2, b"a")
    push(second, 3, b"b")
    assert lives(first, second) == [[1, 2]]


def test_a_probe_is_not_judged_and_a_pattern_selects() -> None:
    short, long = connection(1, 0, 2), connection(2, 10, 90)
    judged = judge([short, long], ended=100, brokers=1)
    assert [c.number for client in judged for c in client.client.connections] == [2]
    assert judge([long], ended=100, brokers=1, wanted=lambda name: name != "a") == []


def test_other_requests_are_kept_for_the_throttle_time() -> None:
    kit = kit_with(load_script("default"))
    client = ScriptedClient(kit)
    client.run(5)
    assert client.kit.connections[0].requests
    assert all(isinstance(request, Request) for request in client.kit.connections[0].requests)
    assert api_keys.PRODUCE in RANGES
