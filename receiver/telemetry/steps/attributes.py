"""Rewrites attributes: one name and form for all clients, then the privacy rules.

======================  =====================================  ===================================
a client's attribute    its value                              becomes
======================  =====================================  ===================================
node_id, node.id        1, "1", "node-1" (franz-go,            node_id = "1", node_role = "broker"
                        librdkafka, Java)
node_id, node.id        "node-2147483646": 2^31 - 1 - the      node_id = "1",
                        broker's id (Java before 4.4)          node_role = "coordinator"
node_id, node.id        "node-+1" (Java 4.4)                   node_id = "1",
                                                               node_role = "coordinator"
node_id, node.id        -1, "-1", "node--1", any negative;     node_id = "-1",
                        "bootstrap" (KIP-714's draft)          node_role = "bootstrap"
node_id, node.id        anything else                          unchanged
member_id               any (librdkafka)                       group_member_id
======================  =====================================  ===================================

An attribute is not renamed to a key that another attribute has, and a node_role that the client
sends stays the only one. Privacy rules also apply to attributes nested in values; normalisation
does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from receiver.telemetry.steps.counts import StepCounts
from receiver.telemetry.steps.privacy import Privacy

_NODE_ID: Final = "node_id"
_NODE_ROLE: Final = "node_role"
_NODE_KEYS: Final = (_NODE_ID, "node.id")
_MEMBER_ID: Final = "member_id"
_GROUP_MEMBER_ID: Final = "group_member_id"

_BOOTSTRAP: Final = "bootstrap"
_NODE = re.compile(r"(?:node-)?([+-]?)([0-9]{1,10})")

# Kafka's own test for a coordinator's connection: a node id is an int32, and no broker has one in
# the upper half.
_MAX_ID = 2_147_483_647


def node(value: AnyValue) -> tuple[str, str] | None:
    """Return the node id and role of an attribute's value.

    None when it is not a node id.
    """
    kind = value.WhichOneof("value")
    if kind == "int_value":
        text = str(value.int_value)
    elif kind == "string_value":
        text = value.string_value
    else:
        return None
    if text == _BOOTSTRAP:
        return "-1", _BOOTSTRAP
    found = _NODE.fullmatch(text)
    if found is None:
        return None
    sign, number = found[1], int(found[2])
    if number > _MAX_ID:
        return None
    if sign == "-":
        return f"-{number}", _BOOTSTRAP
    if sign == "+":
        return str(number), "coordinator"
    if number > _MAX_ID // 2:
        return str(_MAX_ID - number), "coordinator"
    return str(number), "broker"


def rewrite(attributes: Any, *, normalize: bool, privacy: Privacy | None, counts: StepCounts) -> bool:
    """Normalise a repeated field of KeyValue and apply privacy rules to it, in place.

    The rules apply to the old and the new key. Returns whether anything changed.
    """
    before = list(attributes)
    renamed = list(_normalized(before) if normalize else ((item.key, item) for item in before))
    changed = False
    if privacy is not None:
        kept = []
        for old_key, item in renamed:
            action = privacy.attribute(old_key, item.key)
            if action == "drop":
                counts.dropped_attributes += 1
                continue
            if action == "hash":
                counts.hashed_attributes += 1
                item = KeyValue(key=item.key, value=AnyValue(string_value=privacy.hashed(item.value)))
            else:
                changed |= _rewrite_nested(item.value, privacy, counts)
            kept.append(item)
    else:
        kept = [item for _, item in renamed]
    if (
        not changed
        and len(kept) == len(before)
        and all(new is old for new, old in zip(kept, before, strict=True))
    ):
        return False
    del attributes[:]
    attributes.extend(kept)
    return True


def _rewrite_nested(value: Any, privacy: Privacy, counts: StepCounts) -> bool:
    """Apply privacy rules to the attributes nested in a value.

    Return whether anything changed.
    """
    kind = value.WhichOneof("value")
    if kind == "kvlist_value":
        return rewrite(value.kvlist_value.values, normalize=False, privacy=privacy, counts=counts)
    if kind == "array_value":
        changed = [_rewrite_nested(item, privacy, counts) for item in value.array_value.values]
        return True in changed
    return False


def _normalized(attributes: list[KeyValue]) -> Iterator[tuple[str, KeyValue]]:
    """Yield each attribute in its normal form, with its old key."""
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
            # It keeps its key, but rules for group_member_id apply to it too.
            key = _GROUP_MEMBER_ID
        elif key == _MEMBER_ID:
            yield key, KeyValue(key=_GROUP_MEMBER_ID, value=item.value)
            continue
        yield key, item


def attributes_of(points: Any) -> Iterator[Any]:
    """Iterate over the attribute lists of data points and their exemplars."""
    for point in points:
        yield point.attributes
        for exemplar in getattr(point, "exemplars", ()):
            yield exemplar.filtered_attributes
