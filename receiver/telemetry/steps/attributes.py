"""What becomes of attributes: one name and form for what clients name differently, then privacy.

Owns the normal form and the order of the two steps, on the parsed attributes of one data point, exemplar,
scope or Resource. It must not know where attributes are in a push.

======================  =====================================  ==============================================
a client's attribute    its value                              what it becomes
======================  =====================================  ==============================================
node_id, node.id        1, "1", "node-1" (franz-go,            node_id = "1", node_role = "broker"
                        librdkafka, Java)
node_id, node.id        "node-2147483646": 2^31 - 1 - the      node_id = "1", node_role = "coordinator"
                        broker's id (Java before 4.4)
node_id, node.id        "node-+1" (Java 4.4)                   node_id = "1", node_role = "coordinator"
node_id, node.id        -1, "-1", "node--1", any negative      node_id = "-1", node_role = "bootstrap"
node_id, node.id        anything else                          stays as it is
member_id               any (librdkafka)                       group_member_id
======================  =====================================  ==============================================

An attribute is not renamed to a name that another one has already, and no node_role is added beside one.
Rules hold for what is nested in values too; the normal form is not for these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from receiver.telemetry.steps.privacy import Privacy

__all__ = ["AttributeCounts", "attributes_of", "node", "rewrite"]

_NODE_ID: Final = "node_id"
_NODE_ROLE: Final = "node_role"
_NODE_KEYS: Final = (_NODE_ID, "node.id")
_MEMBER_ID: Final = "member_id"
_GROUP_MEMBER_ID: Final = "group_member_id"

_NODE = re.compile(r"(?:node-)?([+-]?)([0-9]{1,10})")

# Kafka's own test of what is a coordinator's connection: a node id is an int32, and no broker's is so large.
_MAX_ID = 2_147_483_647


@dataclass(slots=True)
class AttributeCounts:
    """What became of attributes, added up.

    Attributes:
        dropped: Attributes left out by a rule.
        hashed: Attributes whose value became a hash.
        passed_over: Whether some were passed over, because they were too many to look at.
    """

    dropped: int = 0
    hashed: int = 0
    passed_over: bool = False


def node(value: AnyValue) -> tuple[str, str] | None:
    """Read the value of a node's id.

    Args:
        value: An attribute's value, of any type.

    Returns:
        The node's id and role; None where it is no node's id.
    """
    kind = value.WhichOneof("value")
    if kind == "int_value":
        text = str(value.int_value)
    elif kind == "string_value":
        text = value.string_value
    else:
        return None
    found = _NODE.fullmatch(text)
    if found is None:
        return None
    sign, number = found[1], int(found[2])
    if number > _MAX_ID:
        return None
    if sign == "-":
        return f"-{number}", "bootstrap"
    if sign == "+":
        return str(number), "coordinator"
    if number > _MAX_ID // 2:
        return str(_MAX_ID - number), "coordinator"
    return str(number), "broker"


def rewrite(attributes: Any, *, normalize: bool, privacy: Privacy | None, counts: AttributeCounts) -> bool:
    """Normalise attributes, and drop or hash what rules say, in place.

    Args:
        attributes: A repeated field of KeyValue.
        normalize: Whether to give them their normal form.
        privacy: The rules, each of which is for an attribute that has or had the key; None: no rules.
        counts: Where to count what was dropped and hashed.

    Returns:
        Whether anything changed.
    """
    before = list(attributes)
    named = list(_normalized(before) if normalize else ((item.key, item) for item in before))
    changed = False
    if privacy is not None:
        kept = []
        for old_key, item in named:
            action = privacy.attribute(old_key, item.key)
            if action == "drop":
                counts.dropped += 1
                continue
            if action == "hash":
                counts.hashed += 1
                item = KeyValue(key=item.key, value=AnyValue(string_value=privacy.hashed(item.value)))
            else:
                changed |= _rewrite_nested(item.value, privacy, counts)
            kept.append(item)
    else:
        kept = [item for _, item in named]
    if (
        not changed
        and len(kept) == len(before)
        and all(new is old for new, old in zip(kept, before, strict=True))
    ):
        return False
    del attributes[:]
    attributes.extend(kept)
    return True


def _rewrite_nested(value: Any, privacy: Privacy, counts: AttributeCounts) -> bool:
    """Drop or hash what rules say of the attributes nested in a value; return whether anything changed."""
    kind = value.WhichOneof("value")
    if kind == "kvlist_value":
        return rewrite(value.kvlist_value.values, normalize=False, privacy=privacy, counts=counts)
    if kind == "array_value":
        changed = [_rewrite_nested(item, privacy, counts) for item in value.array_value.values]
        return True in changed
    return False


def _normalized(attributes: list[KeyValue]) -> Iterator[tuple[str, KeyValue]]:
    """Give each attribute its normal form, with the key that it had."""
    keys = {item.key for item in attributes}
    for item in attributes:
        key = item.key
        if key in _NODE_KEYS and (key == _NODE_ID or _NODE_ID not in keys):
            known = node(item.value)
            if known is not None:
                node_id, role = known
                yield key, KeyValue(key=_NODE_ID, value=AnyValue(string_value=node_id))
                if _NODE_ROLE not in keys:
                    keys.add(_NODE_ROLE)
                    yield _NODE_ROLE, KeyValue(key=_NODE_ROLE, value=AnyValue(string_value=role))
                continue
        elif key == _MEMBER_ID and _GROUP_MEMBER_ID in keys:
            # It keeps its name, and rules for the other mean it too.
            key = _GROUP_MEMBER_ID
        elif key == _MEMBER_ID:
            yield key, KeyValue(key=_GROUP_MEMBER_ID, value=item.value)
            continue
        yield key, item


def attributes_of(points: Any) -> Iterator[Any]:
    """Iterate over the attributes of data points and of their exemplars, as repeated fields."""
    for point in points:
        yield point.attributes
        for exemplar in getattr(point, "exemplars", ()):
            yield exemplar.filtered_attributes
