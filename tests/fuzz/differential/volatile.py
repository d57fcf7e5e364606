"""Table of the fields that Kafka itself answers differently each time.

Each is checked for what it may be, and is then left out of the comparison of its answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.fuzz.differential.codec import Tree
from tests.fuzz.differential.values import ROUNDS

_UUID: Final = re.compile(r"(.*-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KAFKA_UUID: Final = re.compile(r"[\w-]{22}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Volatile:
    """A field of an RPC's answers.

    Attributes:
        api_key: The RPC's API key.
        path: The field's names from the body down, joined by dots; arrays count for nothing.
        reason: Why Kafka's answers differ.
        allows: Whether a value is one that the field may have.
    """

    api_key: int
    path: str
    reason: str
    allows: Callable[[Any], bool]


def _at_least(least: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and value >= least


def _member(value: Any) -> bool:
    return (
        value in ("", None) or _UUID.fullmatch(value) is not None or _KAFKA_UUID.fullmatch(value) is not None
    )


def _uuid(value: Any) -> bool:
    return isinstance(value, bytes) and len(value) == 16


def _text(value: Any) -> bool:
    return value is None or isinstance(value, str)


_LOG: Final = "the log of the side's own topic, or of the cluster's metadata, has grown"
_CHOSEN: Final = "the broker chooses a new number or id each time"
_TIME: Final = "the time"
_DISK: Final = "the disk has other users"

_QUORUM: Final = "the quorum elects a leader, or is busy, when the machine is"
#: NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, UNSUPPORTED_VERSION (of the leader), INVALID_REQUEST.
_QUORUM_ERRORS: Final = frozenset({6, 7, 35, 42})

_PRODUCER: Final = "markers of an earlier round, whose connection was cut, reached one side's topic alone"
#: NONE, INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
_MARKER_ERRORS: Final = frozenset({0, 47, 52})

_HALF_JOINED: Final = "a group whose only member has not joined is there until the broker forgets it"

VOLATILE: Final[tuple[Volatile, ...]] = (
    Volatile(api_key=0, path="Responses.PartitionResponses.BaseOffset", reason=_LOG, allows=_at_least(-1)),
    Volatile(
        api_key=0, path="Responses.PartitionResponses.LogStartOffset", reason=_LOG, allows=_at_least(-1)
    ),
    Volatile(api_key=1, path="SessionId", reason=_CHOSEN, allows=_at_least(0)),
    Volatile(api_key=11, path="MemberId", reason=_CHOSEN, allows=_member),
    Volatile(api_key=11, path="Leader", reason=_CHOSEN, allows=_member),
    Volatile(api_key=11, path="Members.MemberId", reason=_CHOSEN, allows=_member),
    Volatile(
        api_key=15,
        path="Groups.GroupState",
        reason=_HALF_JOINED,
        allows=frozenset({"Dead", "Empty"}).__contains__,
    ),
    Volatile(api_key=15, path="Groups.Members.MemberId", reason=_CHOSEN, allows=_member),
    Volatile(api_key=18, path="FinalizedFeaturesEpoch", reason=_LOG, allows=_at_least(0)),
    Volatile(api_key=19, path="Topics.TopicId", reason=_CHOSEN, allows=_uuid),
    Volatile(api_key=21, path="Topics.Partitions.LowWatermark", reason=_LOG, allows=_at_least(-1)),
    Volatile(api_key=22, path="ProducerId", reason=_CHOSEN, allows=_at_least(-1)),
    Volatile(
        api_key=27,
        path="Markers.Topics.Partitions.ErrorCode",
        reason=_PRODUCER,
        allows=_MARKER_ERRORS.__contains__,
    ),
    Volatile(api_key=35, path="Results.TotalBytes", reason=_DISK, allows=_at_least(0)),
    Volatile(api_key=35, path="Results.UsableBytes", reason=_DISK, allows=_at_least(0)),
    Volatile(api_key=35, path="Results.Topics.Partitions.PartitionSize", reason=_LOG, allows=_at_least(0)),
    Volatile(api_key=65, path="TransactionStates.ProducerId", reason=_CHOSEN, allows=_at_least(-1)),
    Volatile(api_key=65, path="TransactionStates.TransactionStartTimeMs", reason=_TIME, allows=_at_least(-1)),
    Volatile(api_key=68, path="MemberId", reason=_CHOSEN, allows=_member),
    *(
        Volatile(api_key=api_key, path=path, reason=_QUORUM, allows=allows)
        for api_key in (80, 81)
        for path, allows in (("ErrorCode", _QUORUM_ERRORS.__contains__), ("ErrorMessage", _text))
    ),
)

_BY_KEY: Final[Mapping[int, Mapping[str, Volatile]]] = {
    key: {entry.path: entry for entry in VOLATILE if entry.api_key == key}
    for key in {entry.api_key for entry in VOLATILE}
}


#: By API key: arrays in an order that Kafka draws, or that of a hash map of topic ids, which differ
#: between sides.
_UNORDERED: Final[Mapping[int, frozenset[str]]] = {
    0: frozenset({"Responses", "Responses.PartitionResponses"}),
    20: frozenset({"Responses"}),
    35: frozenset({"Results.Topics"}),
    **dict.fromkeys((78, 79), frozenset({"Responses", "Responses.Partitions"})),
    **dict.fromkeys((83, 84, 85, 86, 87), frozenset({"Results", "Results.Partitions"})),
}


#: By API key: arrays that list what all rounds have left, and the field that names it.
_LISTED: Final[Mapping[int, tuple[str, str]]] = {
    16: ("Groups", "GroupId"),
    66: ("TransactionStates", "TransactionalId"),
}


_DESCRIBE_CONFIGS: Final = 32
_BROKER_LOGGER: Final = 8


def _with_root_logger(result: Tree) -> Tree:
    """Return a result of DescribeConfigs; of a broker's loggers only the root.

    A broker has a logger for each class that it has used so far.
    """
    if result["ResourceType"] != _BROKER_LOGGER:
        return result
    return result | {"Configs": [config for config in result["Configs"] if config["Name"] == "root"]}


def normalised(api_key: int, tree: Tree) -> Tree:
    """Return an answer without what varies.

    Each volatile value that is allowed becomes ``...``, an array in no order is sorted, and what
    rounds have left, or classes, is not listed.
    """
    if api_key == _DESCRIBE_CONFIGS:
        tree = tree | {"Results": [_with_root_logger(result) for result in tree["Results"]]}
    if api_key in _LISTED:
        array, name = _LISTED[api_key]
        tree = tree | {array: [item for item in tree[array] if not item[name].startswith(ROUNDS)]}
    fields, unordered = _BY_KEY.get(api_key, {}), _UNORDERED.get(api_key, frozenset())
    return _normalised(tree, "", fields, unordered) if fields or unordered else tree


def _normalised(value: Any, path: str, fields: Mapping[str, Volatile], unordered: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: _normalised(inner, f"{path}.{name}" if path else name, fields, unordered)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        items = [_normalised(inner, path, fields, unordered) for inner in value]
        return sorted(items, key=repr) if path in unordered else items
    entry = fields.get(path)
    return ... if entry is not None and entry.allows(value) else value
