"""Tables of what generated fields hold: mostly what the broker knows, else borders and nonsense.

What a field holds is decided by the RPC and the field's name, else by what the field names, else by
words in its name, else by its type. Everything here lets a round leave the broker as it was, for
all that another side can see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from tests.conformance.requests import record_batch
from tests.fuzz.differential.schemas import Field
from tests.fuzz.differential.sides import OWN_TOPIC, OWN_TOPIC_ID, SHARED_TOPIC_ID, SIDE
from tests.testbed.broker import CLUSTER_ID, NODE_ID

#: What the names of rounds begin with.
ROUNDS: Final = "fuzz-"
#: A topic with some records, whose leader epoch has grown.
SHARED_TOPIC: Final = "shared"
#: One with megabytes of records.
BIG_TOPIC: Final = "big"
#: One with so many partitions that its metadata is long.
WIDE_TOPIC: Final = "wide"

#: RPCs that write into what they name.
WRITERS: Final = frozenset(
    {0, 8, 11, 20, 21, 24, 27, 28, 33, 34, 37, 43, 44, 45, 47, 76, 78, 79, 83, 84, 85, 86, 87, 88, 91, 92, 93}
)

_GREATEST_32: Final = (1 << 31) - 1
_GREATEST_64: Final = (1 << 63) - 1
_TEXTS: Final = ("", "x", "hello world", "ümlaut-☃", "a" * 300, "absent")
_NO_TOPICS: Final = ("absent", "", "bad name!", ".", "t" * 260, f"absent-{SIDE}")
_TOPICS: Final = (SHARED_TOPIC, SHARED_TOPIC, SHARED_TOPIC, WIDE_TOPIC, BIG_TOPIC, "absent", "", "bad name!")
_OWN_TOPICS: Final = (OWN_TOPIC, OWN_TOPIC, OWN_TOPIC, "absent", "", "bad name!")
_TRUE: Final = (True,)
_PATIENT: Final = (30_000,)
#: Brokers that do not exist.
_NO_BROKERS: Final = (77, 0, -1, _GREATEST_32)

#: By API key and field: the values. Each keeps the broker, or what other sides see, as it was.
_FIELDS: Final[Mapping[tuple[int, str], Sequence[Any]]] = {
    # Topics, partitions, quotas, configurations and features are only validated.
    (19, "validateOnly"): _TRUE,
    (33, "ValidateOnly"): _TRUE,
    (37, "ValidateOnly"): _TRUE,
    (44, "ValidateOnly"): _TRUE,
    (49, "ValidateOnly"): _TRUE,
    (57, "ValidateOnly"): _TRUE,
    # Version 0 of UpdateFeatures can't be validated only.
    (57, "Feature"): ("absent.feature", ""),
    # The controller answers within a time that is no race.
    **{(key, name): _PATIENT for key in (19, 20, 37, 43, 45, 57) for name in ("timeoutMs", "TimeoutMs")},
    (0, "TimeoutMs"): _PATIENT,
    # Kafka 4.4 does not answer transactional requests with other numbers.
    (0, "Acks"): (-1, 1, 0),
    (1, "ReplicaId"): (-1, -1, -1, -2),
    (1, "ClusterId"): (None, CLUSTER_ID, "another-cluster-id-QQQ"),
    (3, "AllowAutoTopicCreation"): (True, False),
    # A member does not vanish while others are asked about its group.
    (11, "SessionTimeoutMs"): (30_000, 30_000, 0, -1),
    (11, "RebalanceTimeoutMs"): (30_000, 0, -1),
    (18, "ClientSoftwareName"): ("fuzz", "apache-kafka-java", "a.b-c"),
    (18, "ClientSoftwareVersion"): ("1.0", "4.4.0"),
    (18, "ClusterId"): (None, None, CLUSTER_ID, CLUSTER_ID, "wrong", ""),
    (18, "NodeId"): (-1, -1, NODE_ID, NODE_ID, 5, -2),
    (20, "Name"): (None, *_NO_TOPICS),
    (20, "TopicNames"): _NO_TOPICS,
    (20, "TopicId"): (bytes(16), bytes(range(1, 17))),
    # Deletes nothing.
    (21, "Offset"): (0, -2, _GREATEST_64),
    (32, "ResourceName"): (SHARED_TOPIC, str(NODE_ID), "", "absent", "0"),
    (34, "Path"): ("", "/absent", "relative"),
    (45, "Name"): _NO_TOPICS,
    (51, "Iterations"): (0, -1, 1, _GREATEST_32),
    (64, "BrokerId"): _NO_BROKERS,
    # An empty name of a listener ends Kafka 4.4's controller, and the process with it.
    (80, "Name"): ("CONTROLLER", "OTHER", "x"),
    # Kafka takes half a minute to say that a share group has no state for a topic that there is.
    (90, "TopicName"): _NO_TOPICS,
    (94, "ControllerId"): _NO_BROKERS,
    (88, "SourceTopics"): _NO_TOPICS,
    (88, "RepartitionSinkTopics"): _NO_TOPICS,
}

_BY_ENTITY: Final[Mapping[str, Sequence[Any]]] = {
    "brokerId": (NODE_ID, NODE_ID, 0, 2, -1, _GREATEST_32),
    "producerId": (-1, 0, 1, 4000, _GREATEST_64, -2),
}

#: By a word in an integer's name, the first that fits.
_BY_WORD: Final[Sequence[tuple[str, Sequence[int]]]] = (
    ("MaxWait", (0, 0, 1, 5)),
    ("Timeout", (0, 1, 10, 100, 6000, -1)),
    ("MaxBytes", (0, 1, 100, 20_000, 1 << 20, _GREATEST_32)),
    ("MinBytes", (0, 1, 1, 100, _GREATEST_32)),
    ("Records", (0, 1, 10, 500, -1)),
    ("Partition", (0, 0, 0, 1, 2, -1, _GREATEST_32)),
    ("Epoch", (-1, -1, 0, 0, 1, 5, 1 << 14)),
    ("Offset", (0, 0, 1, 5, -1, -2, 1000, _GREATEST_64)),
    ("Timestamp", (-1, -2, -3, -4, -5, -6, 0, 1_700_000_000_000)),
    ("ReplicationFactor", (1, -1, 0, 3)),
    ("ResourceType", (2, 4, 8, 16, 32, 0, 1, 3, -1, 127)),
)

_BY_KIND: Final[Mapping[str, Sequence[Any]]] = {
    "bool": (False, True),
    "int8": (0, 1, 2, 3, 4, 5, -1, 127, -128),
    "int16": (0, 1, 2, 3, -1, 32_767, -32_768),
    "uint16": (0, 1, 9092, 65_535),
    "int32": (0, 1, 2, 10, 1000, -1, _GREATEST_32, -_GREATEST_32 - 1),
    "int64": (0, 1, 2, 1000, -1, _GREATEST_64, -_GREATEST_64 - 1),
    "float64": (0.0, 1.5, -1.0, 1e300),
    "string": _TEXTS,
}
_CONFIG_NAMES: Final = ("retention.ms", "cleanup.policy", "log.cleaner.threads", "absent.config", "")


def value(api_key: int, field: Field, random: Random, name: str) -> Any:
    """Return a value that is not null.

    Args:
        api_key: The RPC's API key.
        field: The field, which is no struct; one item of it if it is an array.
        random: Where choices come from.
        name: The round's own name, for groups and transactions.
    """
    listed = [item for item in _FIELDS.get((api_key, field.name), ()) if item is not None]
    if listed and isinstance(listed[0], str) == (field.kind == "string"):
        return random.choice(listed)
    if field.kind == "string":
        return _text(api_key, field, random, name)
    if field.kind == "uuid":
        own = OWN_TOPIC_ID if api_key in WRITERS else SHARED_TOPIC_ID
        return random.choice((own, own, own, bytes(16), bytes(15) + b"\1", bytes(range(16))))
    if field.kind == "bytes":
        return random.choice((b"", b"\0", random.randbytes(20), random.randbytes(5000)))
    if field.kind == "records":
        return _records(random)
    return random.choice(_numbers(field))


def _numbers(field: Field) -> Sequence[Any]:
    if field.entity in _BY_ENTITY:
        return _BY_ENTITY[field.entity]
    fitting = _BY_KIND[field.kind]
    if field.kind in ("int8", "int16", "int32", "int64"):
        most = 1 << 8 * int(field.kind[3:]) // 8 - 1
        for word, numbers in _BY_WORD:
            if word in field.name:
                return [number for number in numbers if -most <= number < most]
    return fitting


def _text(api_key: int, field: Field, random: Random, name: str) -> str:
    if field.entity == "topicName":
        return random.choice(_OWN_TOPICS if api_key in WRITERS else _TOPICS)
    if field.entity in ("groupId", "transactionalId") or field.name in ("Groups", "GroupIds", "GroupId"):
        # Every client may use the group without a name, and so change what others see.
        return random.choice((name, name, name, f"{name}-2", name if api_key in (8, 11, 28) else ""))
    if field.name == "Key" or field.name == "CoordinatorKeys":
        return random.choice((name, f"{name}-2", "", f"absent:{'A' * 22}:0"))
    if field.name in ("ConfigurationKeys", "Name") and api_key in (19, 32, 33, 44):
        return random.choice(_CONFIG_NAMES)
    return random.choice(_TEXTS)


def _records(random: Random) -> bytes:
    batch = record_batch(random.randbytes(random.choice((1, 100, 3000, 20_000))))
    broken = bytearray(batch)
    broken[random.randrange(len(batch))] ^= 1 << random.randrange(8)
    return random.choice((batch, batch, batch, batch + batch, bytes(broken), batch[:-1], b"", b"garbage"))
