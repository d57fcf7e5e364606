"""Every RPC in KIP-1313's version gets the same answer from Kafka 4.4 as in its own version."""

from __future__ import annotations

import dataclasses
import datetime
import re
import struct
import time
import typing
from collections.abc import Mapping
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema
from kio.schema.offset_delete.v0 import OffsetDeleteResponse

from tests.conformance.requests import compact_string, record_batch, uvarint
from tests.integration.gateway.support import GatewaySidecar
from tests.integration.kip1313 import speakers as api
from tests.integration.kip1313.speakers import CLIENT_ID, NewClient, OldClient, Speaker, in_kio, read, write
from tests.testbed.broker import KafkaBroker

#: Requests with nothing in them that have no answer (Produce, AddPartitionsToTxn), and those of
#: which every answer is another (InitProducerId, DescribeLogDirs).
_NOT_BLANK: Final = {
    api.PRODUCE,
    api.ADD_PARTITIONS_TO_TXN,
    api.INIT_PRODUCER_ID,
    api.DESCRIBE_LOG_DIRS,
    api.SASL_HANDSHAKE,
    api.API_VERSIONS,
    api.OFFSET_DELETE,
}

#: What asks for nothing of RPCs whose latest version in Kafka 4.4 kio lacks, and of DescribeAcls,
#: which must have something in it.
_BODIES: Final[Mapping[int, bytes]] = {
    api.TXN_OFFSET_COMMIT: b"\1\1" + bytes(10) + struct.pack(">i", -1) + b"\1\0\1\0",
    api.DESCRIBE_ACLS: b"\1\0\1\0\0\1\1\0",
    api.DELETE_GROUPS: b"\1\0",
    api.STREAMS_GROUP_DESCRIBE: b"\1\0\0\0",
}

#: kio lacks these too, and they can't be asked for nothing.
_UNKNOWN: Final = {
    api.STREAMS_GROUP_HEARTBEAT,
    api.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
    api.UNREGISTER_CONTROLLER,
}

_BLANKS: Final[Mapping[str, object]] = {
    "bool": False,
    "bytes": b"",
    "datetime_i64": datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
    "float64": 0.0,
    "string": "",
    "timedelta_i32": datetime.timedelta(),
    "timedelta_i64": datetime.timedelta(),
}

_NONE, _SECOND = datetime.timedelta(), datetime.timedelta(seconds=1)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

#: Errors for a topic or a coordinator that is being created.
_NOT_YET = re.compile("coordinator_load_in_progress|coordinator_not_available|unknown_topic|not_leader")


def test_every_rpc_but_sasl_handshake_is_offered_with_header_v3(
    broker: KafkaBroker, translating: GatewaySidecar
) -> None:
    with OldClient(broker.client_port) as direct, NewClient(translating.port()) as new:
        assert not new.falls_back
        one_more = {key: (least, greatest + 1) for key, (least, greatest) in direct.offered.items()}
        handshake = direct.offered[api.SASL_HANDSHAKE]
        assert new.offered == one_more | {
            api.SASL_HANDSHAKE: handshake,
            api.GET: (0, 1),
            api.PUSH: (0, 1),
        }


def test_every_rpc_is_answered_as_in_the_version_before(
    broker: KafkaBroker, translating: GatewaySidecar
) -> None:
    """Empty requests are answered the same with and without the translation."""
    with OldClient(broker.client_port) as direct:
        versions = {key: direct.layout(key) for key in direct.offered}
    different, not_asked = {}, set()
    for key, version in versions.items():
        body = _BODIES.get(key)
        if body is None and in_kio(key, version):
            body = write(_blank(load_request_schema(key, version)))
        if body is None or key in _NOT_BLANK:
            not_asked.add(key)
            continue
        with OldClient(broker.client_port) as direct, NewClient(translating.port()) as new:
            from_old, from_new = direct.ask(key, body), new.ask(key, body)
        if from_old != from_new:
            different[key] = (from_old.hex(), from_new.hex())
    assert different == {}
    assert not_asked == _NOT_BLANK | _UNKNOWN


def _blank(kind: Any) -> Any:
    """Return a request with empty and zero fields."""
    hints = typing.get_type_hints(kind)
    values: dict[str, object] = {}
    for field in dataclasses.fields(kind):
        if field.default is not dataclasses.MISSING:
            continue
        hint, kafka_type = hints[field.name], field.metadata.get("kafka_type")
        if type(None) in typing.get_args(hint):
            values[field.name] = None
        elif typing.get_origin(hint) is tuple:
            values[field.name] = ()
        else:
            values[field.name] = _blank(hint) if kafka_type is None else _BLANKS.get(kafka_type, 0)
    return kind(**values)


def test_a_new_client_lives_as_an_old_one_does(broker: KafkaBroker, translating: GatewaySidecar) -> None:
    with OldClient(broker.client_port) as direct:
        from_old = _Life(direct, "life-of-the-old").live()
    with NewClient(translating.port()) as new:
        from_new = _Life(new, "life-of-the-new").live()
    assert from_new == from_old
    # Its client id was null in all requests but the first, and the broker knows it all the same.
    assert f"client_id='{CLIENT_ID}'" in from_new["describe"]
    assert f"member_id='{CLIENT_ID}-<uuid>'" in from_new["join"]
    assert "committed_offset=1," in from_new["committed"]
    assert "committed_offset=-1," in from_new["committed after that"]


class _Life:
    """What a client does with its own topic and group, and the answers that it got.

    Args:
        client: The client that does it.
        name: Name of the topic and the group.
    """

    def __init__(self, client: Speaker, name: str) -> None:
        self._client = client
        self._name = name
        self._answers: dict[str, str] = {}

    def live(self) -> dict[str, str]:
        """Write, read, join a group, commit, leave and delete everything; return each answer."""
        topic = self._part(
            api.CREATE_TOPICS,
            "CreatableTopic",
            name=self._name,
            num_partitions=1,
            replication_factor=1,
            assignments=(),
            configs=(),
        )
        created = self._ask("create", api.CREATE_TOPICS, topics=(topic,), timeout=120 * _SECOND)
        topic_id = created.topics[0].topic_id
        self._ask(
            "metadata",
            api.METADATA,
            topics=(self._part(api.METADATA, "MetadataRequestTopic", topic_id=None, name=self._name),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        self._write_and_read(topic_id)
        self._be_a_member(topic_id)
        self._ask("configuration", api.DESCRIBE_CONFIGS, resources=(self._topic_resource(),))
        self._ask(
            "cluster",
            api.DESCRIBE_CLUSTER,
            include_cluster_authorized_operations=True,
            include_fenced_brokers=False,
        )
        gone = self._part(api.DELETE_TOPICS, "DeleteTopicState", name=self._name, topic_id=None)
        self._ask("delete", api.DELETE_TOPICS, topics=(gone,), timeout=120 * _SECOND)
        return self._answers

    def _write_and_read(self, topic_id: object) -> None:
        self._ask("producer id", api.INIT_PRODUCER_ID, transactional_id=None, transaction_timeout=_NONE)
        records = record_batch(b"value" * 100_000)  # more than one read of the sidecar's
        written = self._part(api.PRODUCE, "PartitionProduceData", index=0, records=records)
        self._ask(
            "produce",
            api.PRODUCE,
            transactional_id=None,
            acks=-1,
            timeout=120 * _SECOND,
            topic_data=(
                self._part(api.PRODUCE, "TopicProduceData", topic_id=topic_id, partition_data=(written,)),
            ),
        )
        end = self._part(api.LIST_OFFSETS, "ListOffsetsPartition", partition_index=0, timestamp=-1)
        self._ask(
            "offsets",
            api.LIST_OFFSETS,
            replica_id=-1,
            isolation_level=0,
            topics=(self._part(api.LIST_OFFSETS, "ListOffsetsTopic", name=self._name, partitions=(end,)),),
            timeout=120 * _SECOND,
        )
        wanted = self._part(
            api.FETCH, "FetchPartition", partition=0, fetch_offset=0, partition_max_bytes=1 << 20
        )
        fetched = self._ask(
            "fetch",
            api.FETCH,
            max_wait=10 * _SECOND,
            min_bytes=1,
            topics=(self._part(api.FETCH, "FetchTopic", topic_id=topic_id, partitions=(wanted,)),),
            forgotten_topics_data=(),
        )
        assert b"value" * 100_000 in fetched.responses[0].partitions[0].records

    def _be_a_member(self, topic_id: object) -> None:
        self._ask("coordinator", api.FIND_COORDINATOR, key_type=0, coordinator_keys=(self._name,))
        member_id = ""
        for step in ("join", "join again"):
            joined = self._ask(
                step,
                api.JOIN_GROUP,
                group_id=self._name,
                session_timeout=120 * _SECOND,
                rebalance_timeout=120 * _SECOND,
                member_id=member_id,
                protocol_type="consumer",
                protocols=(
                    self._part(api.JOIN_GROUP, "JoinGroupRequestProtocol", name="range", metadata=b"m"),
                ),
            )
            member_id = joined.member_id
        member = {
            "group_id": self._name,
            "generation_id": joined.generation_id,
            "member_id": member_id,
        }
        mine = self._part(
            api.SYNC_GROUP, "SyncGroupRequestAssignment", member_id=member_id, assignment=b"all"
        )
        self._ask(
            "sync",
            api.SYNC_GROUP,
            **member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=(mine,),
        )
        self._ask("heartbeat", api.HEARTBEAT, **member)
        self._ask("describe", api.DESCRIBE_GROUPS, groups=(self._name,), include_authorized_operations=False)
        done = self._part(
            api.OFFSET_COMMIT,
            "OffsetCommitRequestPartition",
            partition_index=0,
            committed_offset=1,
            committed_metadata="so far",
        )
        self._ask(
            "commit",
            api.OFFSET_COMMIT,
            group_id=self._name,
            generation_id_or_member_epoch=joined.generation_id,
            member_id=member_id,
            topics=(
                self._part(
                    api.OFFSET_COMMIT, "OffsetCommitRequestTopic", topic_id=topic_id, partitions=(done,)
                ),
            ),
        )
        self._fetch_offset("committed", topic_id)
        leaving = self._part(api.LEAVE_GROUP, "MemberIdentity", member_id=member_id, reason="done")
        self._ask("leave", api.LEAVE_GROUP, group_id=self._name, members=(leaving,))
        self._delete_offset()
        self._fetch_offset("committed after that", topic_id)

    def _fetch_offset(self, step: str, topic_id: object) -> None:
        topic = self._part(
            api.OFFSET_FETCH, "OffsetFetchRequestTopics", topic_id=topic_id, partition_indexes=(0,)
        )
        group = self._part(api.OFFSET_FETCH, "OffsetFetchRequestGroup", group_id=self._name, topics=(topic,))
        self._ask(step, api.OFFSET_FETCH, groups=(group,), require_stable=True)

    def _delete_offset(self) -> None:
        if not isinstance(self._client, NewClient):
            partition = self._part(api.OFFSET_DELETE, "OffsetDeleteRequestPartition", partition_index=0)
            topic = self._part(
                api.OFFSET_DELETE, "OffsetDeleteRequestTopic", name=self._name, partitions=(partition,)
            )
            self._ask("delete offsets", api.OFFSET_DELETE, group_id=self._name, topics=(topic,))
            return
        # Version 1 is flexible: the only body that KIP-1313 changes.
        name, one = compact_string(self._name), uvarint(2)
        partition = struct.pack(">i", 0) + b"\0"
        answer = self._client.ask(api.OFFSET_DELETE, name + one + name + one + partition + b"\0\0")
        head, rest = answer[:6], answer[6:].removeprefix(one + name + one)
        assert len(rest) == 9
        assert rest[6:] == b"\0\0\0"
        text = self._name.encode()
        in_v0 = head + struct.pack(">ih", 1, len(text)) + text + struct.pack(">i", 1) + rest[:6]
        self._note("delete offsets", read(OffsetDeleteResponse, in_v0))

    def _topic_resource(self) -> Any:
        return self._part(
            api.DESCRIBE_CONFIGS,
            "DescribeConfigsResource",
            resource_type=2,
            resource_name=self._name,
            configuration_keys=None,
        )

    def _part(self, api_key: int, kind: str, /, **fields: object) -> Any:
        return api.schema_type(api_key, self._client.layout(api_key), kind)(**fields)

    def _ask(self, step: str, api_key: int, **fields: object) -> Any:
        """Ask until the answer is none of those that mean "not yet"."""
        version = self._client.layout(api_key)
        body = write(load_request_schema(api_key, version)(**fields))
        deadline = time.monotonic() + 120
        while True:
            answer = read(load_response_schema(api_key, version), self._client.ask(api_key, body))
            if not _NOT_YET.search(repr(answer)) or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        self._note(step, answer)
        return answer

    def _note(self, step: str, answer: Any) -> None:
        text = _UUID.sub("<uuid>", repr(answer)).replace(self._name, "<name>")
        self._answers[step] = re.sub(r"producer_id=\d+", "producer_id=<number>", text)
