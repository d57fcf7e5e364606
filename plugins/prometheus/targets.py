"""Derives target labels from a client instance's Resource.

They are the labels of each series, the labels of ``target_info``, and ``job`` and ``instance``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from plugins._shared.attribute_text import attribute_text
from plugins.prometheus.names import label_name
from plugins.prometheus.trust import RECEIVER_LABELS, client_label

#: Names and values, sorted by name; no name twice, no empty value.
Labels = tuple[tuple[str, str], ...]

#: Bound on a value's characters, because each series repeats its target's. Identifying ones are
#: shorter.
_MAX_VALUE: Final = 1_024
#: Bound on the client's attributes in ``target_info``.
_MAX_INFO_LABELS: Final = 64
#: Bound on the characters of a label's name.
MAX_LABEL_NAME: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLabels:
    """The labels of each of a target's series, and of its ``target_info``."""

    series: Labels
    info: Labels


def target_labels(
    resource: bytes, *, names: Sequence[str], job: str, reserved: frozenset[str]
) -> TargetLabels:
    """Derive a target's labels from its Resource.

    ``job`` is the operator's. ``instance`` is the client instance id, which is unique.

    A label that the receiver guarantees has exactly its attribute's name. A client's attribute
    whose translated name is reserved gets a prefix
    (:func:`~plugins.prometheus.trust.client_label`), even if the receiver does not set that label.
    If attributes get the same name, the last by key wins. Values and the number of labels are
    bounded, because a scraper with limits refuses the whole scrape.

    ``names`` are the attributes that are labels of each series. ``reserved`` is the result of
    :func:`~plugins.prometheus.trust.reserved_labels`.

    Raises:
        google.protobuf.message.DecodeError: The Resource is malformed.

    Source: OpenTelemetry, "Prometheus and OpenMetrics Compatibility", "Resource Attributes".
    """
    attributes = {
        attribute.key: attribute_text(attribute.value)[:_MAX_VALUE]
        for attribute in Resource.FromString(resource).attributes
    }
    own = {"job": job, "instance": attributes.get("client_instance_id", "")}
    series = {name: attributes.pop(name, "") for name in names}
    info = {name: attributes.pop(name) for name in RECEIVER_LABELS & attributes.keys()}
    # Keys that are valid label names come last, so that their values win.
    keys = sorted(attributes, key=lambda key: (label_name(key) == key, key))
    for key in keys[-_MAX_INFO_LABELS:]:
        name = client_label(label_name(key), reserved)
        if len(name) <= MAX_LABEL_NAME:
            info[name] = attributes[key]
    return TargetLabels(series=_sorted({**series, **own}), info=_sorted({**info, **own}))


def _sorted(labels: dict[str, Any]) -> Labels:
    return tuple(sorted((name, value) for name, value in labels.items() if value))
