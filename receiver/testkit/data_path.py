"""Answers what a producer or consumer needs to live without a broker.

Every topic exists and is empty: what is produced is acknowledged and thrown away, and a fetch finds
nothing. Each member is alone in its group. The messages are read and written by kafka-python.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kafka.protocol import consumer, metadata, producer

from receiver.wire import api_keys
from receiver.wire.header_versions import LATEST

_LIST_OFFSETS: Final = 2
_OFFSET_COMMIT: Final = 8
_OFFSET_FETCH: Final = 9
_JOIN_GROUP: Final = 11
_HEARTBEAT: Final = 12
_LEAVE_GROUP: Final = 13
_SYNC_GROUP: Final = 14
_INIT_PRODUCER_ID: Final = 22

_PARTITIONS: Final = 2
_MAX_TOPICS: Final = 1_000
_UNKNOWN_TOPIC: Final = 3
#: The longest wait of an empty fetch, in seconds.
_MAX_FETCH_WAIT_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Node:
    """A broker of the kit, as clients are told of it."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class DataAnswer:
    """The body of an answer, or None for no answer, and the seconds until it."""

    body: bytes | None
    delay_s: float = 0.0


@dataclass(slots=True)
class _Cluster:
    """The cluster's id, its topics by id, and the number of producers that got an id."""

    id: str
    topics: dict[uuid.UUID, str] = field(default_factory=dict)
    producers: int = 0


class DataPath:
    """What the kit's brokers know of topics and producers."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster = _Cluster(cluster_id)

    def answer(self, key: int, version: int, body: memoryview, nodes: Sequence[Node]) -> DataAnswer:
        """Answer a request.

        Args:
            key: Its API key, one of :data:`RANGES`.
            version: Its API version, in the range of the key.
            nodes: The brokers, with addresses that the client can reach.

        Raises:
            ValueError: The body is malformed.
        """
        kind = _KINDS[key]
        try:
            request = kind.request.decode(body, version=version)
            fields = kind.answer(self._cluster, request, nodes)
            answer = (
                None if fields is None else kind.response(version=version, **fields).encode(version=version)
            )
        except Exception as error:
            # kafka-python raises what its pieces raise, and reads null where there must be none.
            raise ValueError(f"the body can't be read ({type(error).__name__})") from None
        if answer is None or key != api_keys.FETCH:
            return DataAnswer(answer)
        return DataAnswer(answer, max(0.0, min(request.max_wait_ms / 1000, _MAX_FETCH_WAIT_S)))


def _topic_id(cluster: _Cluster, name: str) -> uuid.UUID | None:
    """Return a topic's id; None if there are too many topics."""
    topic_id = uuid.UUID(bytes=hashlib.sha256(name.encode()).digest()[:16], version=4)
    if topic_id not in cluster.topics:
        if len(cluster.topics) >= _MAX_TOPICS:
            return None
        cluster.topics[topic_id] = name
    return topic_id


def _metadata(cluster: _Cluster, request: Any, nodes: Sequence[Node]) -> dict[str, Any]:
    wanted = request.topics
    # An empty list means all topics in version 0, and null does later.
    if wanted is None or (request.version == 0 and not wanted):
        names: list[str | None] = list(cluster.topics.values())
    else:
        names = [topic.name or cluster.topics.get(topic.topic_id) for topic in wanted]
    return {
        "brokers": [_BROKER(node_id=node.id, host=node.host, port=node.port, rack=None) for node in nodes],
        "cluster_id": cluster.id,
        "controller_id": nodes[0].id,
        "topics": [_described(cluster, name, nodes) for name in names],
    }


def _described(cluster: _Cluster, name: str | None, nodes: Sequence[Node]) -> Any:
    topic_id = None if name is None else _topic_id(cluster, name)
    if topic_id is None:
        return _TOPIC(error_code=_UNKNOWN_TOPIC, name=name or "", partitions=[], is_internal=False)
    replicas = [nodes[index % len(nodes)].id for index in range(_PARTITIONS)]
    partitions = [
        _TOPIC_PARTITION(
            error_code=0,
            partition_index=index,
            leader_id=leader,
            leader_epoch=0,
            replica_nodes=[leader],
            isr_nodes=[leader],
            offline_replicas=[],
        )
        for index, leader in enumerate(replicas)
    ]
    return _TOPIC(error_code=0, name=name, topic_id=topic_id, is_internal=False, partitions=partitions)


def _produce(_: _Cluster, request: Any, _nodes: Sequence[Node]) -> dict[str, Any] | None:
    if request.acks == 0:
        return None
    return {
        "responses": [
            _PRODUCED(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    _PRODUCED_PARTITION(
                        index=partition.index,
                        error_code=0,
                        base_offset=0,
                        log_append_time_ms=-1,
                        log_start_offset=0,
                        record_errors=[],
                        error_message=None,
                    )
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    }


def _fetch(_: _Cluster, request: Any, _nodes: Sequence[Node]) -> dict[str, Any]:
    return {
        "error_code": 0,
        "session_id": 0,  # no fetch session: each fetch names all its partitions
        "responses": [
            _FETCHED(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    _FETCHED_PARTITION(
                        partition_index=partition.partition,
                        error_code=0,
                        high_watermark=0,
                        last_stable_offset=0,
                        log_start_offset=0,
                        aborted_transactions=None,
                        preferred_read_replica=-1,
                        records=b"",
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics or ()
        ],
    }


def _list_offsets(_: _Cluster, request: Any, _nodes: Sequence[Node]) -> dict[str, Any]:
    return {
        "topics": [
            _LISTED(
                name=topic.name,
                partitions=[
                    _LISTED_PARTITION(
                        partition_index=partition.partition_index,
                        error_code=0,
                        old_style_offsets=[0],
                        timestamp=-1,
                        offset=0,
                        leader_epoch=0,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    }


def _find_coordinator(_: _Cluster, request: Any, nodes: Sequence[Node]) -> dict[str, Any]:
    node = nodes[0]
    where = {"node_id": node.id, "host": node.host, "port": node.port, "error_code": 0}
    keys = request.coordinator_keys or ()
    return {
        **where,
        "error_message": None,
        "coordinators": [_COORDINATOR(key=key, error_message=None, **where) for key in keys],
    }


def _join_group(_: _Cluster, request: Any, _nodes: Sequence[Node]) -> dict[str, Any]:
    member = request.member_id or f"member-{uuid.uuid4()}"
    protocol = request.protocols[0] if request.protocols else None
    return {
        "error_code": 0,
        "generation_id": 1,
        "protocol_type": request.protocol_type,
        "protocol_name": "" if protocol is None else protocol.name,
        "leader": member,
        "skip_assignment": False,
        "member_id": member,
        "members": []
        if protocol is None
        else [
            _MEMBER(member_id=member, group_instance_id=request.group_instance_id, metadata=protocol.metadata)
        ],
    }


def _sync_group(_: _Cluster, request: Any, _nodes: Sequence[Node]) -> dict[str, Any]:
    assignment = next((a.assignment for a in request.assignments if a.member_id == request.member_id), b"")
    return {
        "error_code": 0,
        "protocol_type": request.protocol_type,
        "protocol_name": request.protocol_name,
        "assignment": assignment,
    }


def _no_error(_: _Cluster, _request: Any, _nodes: Sequence[Node]) -> dict[str, Any]:
    return {"error_code": 0}


def _leave_group(_: _Cluster, request: Any, _nodes: Sequence[Node]) -> dict[str, Any]:
    return {
        "error_code": 0,
        "members": [
            _LEFT(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=0)
            for member in request.members or ()
        ],
    }


def _offset_commit(_: _Cluster, request: Any, _nodes: Sequence[Node]) -> dict[str, Any]:
    return {
        "topics": [
            _COMMITTED(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    _COMMITTED_PARTITION(partition_index=partition.partition_index, error_code=0)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    }


def _offset_fetch(_: _Cluster, request: Any, _nodes: Sequence[Node]) -> dict[str, Any]:
    return {
        "error_code": 0,
        "topics": [_stored(topic, _STORED, _STORED_PARTITION) for topic in request.topics or ()],
        "groups": [
            _STORED_GROUP(
                group_id=group.group_id,
                error_code=0,
                topics=[
                    _stored(topic, _STORED_GROUP.OffsetFetchResponseTopics, _STORED_GROUP_PARTITION)
                    for topic in group.topics or ()
                ],
            )
            for group in request.groups or ()
        ],
    }


def _init_producer_id(cluster: _Cluster, _request: Any, _nodes: Sequence[Node]) -> dict[str, Any]:
    cluster.producers += 1
    return {"error_code": 0, "producer_id": cluster.producers, "producer_epoch": 0}


def _stored(topic: Any, kind: Any, of_partition: Any) -> Any:
    partitions = [
        of_partition(
            partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=0
        )
        for index in topic.partition_indexes
    ]
    named = {"topic_id": topic.topic_id} if "topic_id" in kind.fields else {}
    return kind(name=topic.name, partitions=partitions, **named)


# The structures inside kafka-python's messages.
_BROKER: Final = metadata.MetadataResponse.MetadataResponseBroker
_TOPIC: Final = metadata.MetadataResponse.MetadataResponseTopic
_TOPIC_PARTITION: Final = _TOPIC.MetadataResponsePartition
_COORDINATOR: Final = metadata.FindCoordinatorResponse.Coordinator
_PRODUCED: Final = producer.ProduceResponse.TopicProduceResponse
_PRODUCED_PARTITION: Final = _PRODUCED.PartitionProduceResponse
_FETCHED: Final = consumer.FetchResponse.FetchableTopicResponse
_FETCHED_PARTITION: Final = _FETCHED.PartitionData
_LISTED: Final = consumer.ListOffsetsResponse.ListOffsetsTopicResponse
_LISTED_PARTITION: Final = _LISTED.ListOffsetsPartitionResponse
_MEMBER: Final = consumer.JoinGroupResponse.JoinGroupResponseMember
_LEFT: Final = consumer.LeaveGroupResponse.MemberResponse
_COMMITTED: Final = consumer.OffsetCommitResponse.OffsetCommitResponseTopic
_COMMITTED_PARTITION: Final = _COMMITTED.OffsetCommitResponsePartition
_STORED: Final = consumer.OffsetFetchResponse.OffsetFetchResponseTopic
_STORED_PARTITION: Final = _STORED.OffsetFetchResponsePartition
_STORED_GROUP: Final = consumer.OffsetFetchResponse.OffsetFetchResponseGroup
_STORED_GROUP_PARTITION: Final = _STORED_GROUP.OffsetFetchResponseTopics.OffsetFetchResponsePartitions


@dataclass(frozen=True, slots=True)
class _Kind:
    """How one API key is answered."""

    request: Any
    response: Any
    answer: Callable[[_Cluster, Any, Sequence[Node]], dict[str, Any] | None]
    least: int = 0


_KINDS: Final[Mapping[int, _Kind]] = {
    api_keys.PRODUCE: _Kind(producer.ProduceRequest, producer.ProduceResponse, _produce, 3),
    api_keys.FETCH: _Kind(consumer.FetchRequest, consumer.FetchResponse, _fetch, 4),
    _LIST_OFFSETS: _Kind(consumer.ListOffsetsRequest, consumer.ListOffsetsResponse, _list_offsets, 1),
    api_keys.METADATA: _Kind(metadata.MetadataRequest, metadata.MetadataResponse, _metadata),
    _OFFSET_COMMIT: _Kind(consumer.OffsetCommitRequest, consumer.OffsetCommitResponse, _offset_commit, 2),
    _OFFSET_FETCH: _Kind(consumer.OffsetFetchRequest, consumer.OffsetFetchResponse, _offset_fetch, 1),
    api_keys.FIND_COORDINATOR: _Kind(
        metadata.FindCoordinatorRequest, metadata.FindCoordinatorResponse, _find_coordinator
    ),
    _JOIN_GROUP: _Kind(consumer.JoinGroupRequest, consumer.JoinGroupResponse, _join_group),
    _HEARTBEAT: _Kind(consumer.HeartbeatRequest, consumer.HeartbeatResponse, _no_error),
    _LEAVE_GROUP: _Kind(consumer.LeaveGroupRequest, consumer.LeaveGroupResponse, _leave_group),
    _SYNC_GROUP: _Kind(consumer.SyncGroupRequest, consumer.SyncGroupResponse, _sync_group),
    _INIT_PRODUCER_ID: _Kind(
        producer.InitProducerIdRequest, producer.InitProducerIdResponse, _init_producer_id
    ),
}

#: The versions that are answered, by API key.
RANGES: Final[Mapping[int, tuple[int, int]]] = {
    key: (kind.least, min(kind.request.max_version, LATEST[key])) for key, kind in _KINDS.items()
}
