"""Where series come from: a client instance under one Resource, as labels.

Owns which of a Resource's attributes are labels of each series, which are labels of ``target_info``, and the
labels ``job`` and ``instance``. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from plugins.prometheus.names import label_name, label_value
from plugins.prometheus.trust import RECEIVER_LABELS, client_label

__all__ = ["MAX_LABEL_NAME", "Labels", "TargetLabels", "target_labels"]

#: Names and values, sorted by name; no name twice, no empty value.
Labels = tuple[tuple[str, str], ...]

#: Characters of a value; each series repeats those of its target. What tells instances apart is shorter.
_MAX_VALUE: Final = 1_024
#: Attributes of a client that are labels of its ``target_info``.
_MAX_INFO_LABELS: Final = 64
#: Characters of a label's name.
MAX_LABEL_NAME: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLabels:
    """A target as labels.

    Attributes:
        series: Of each of its series.
        info: Of its ``target_info``.
    """

    series: Labels
    info: Labels


def target_labels(
    resource: bytes, *, names: Sequence[str], job: str, reserved: frozenset[str]
) -> TargetLabels:
    """Make a target's labels from its Resource.

    ``job`` is the operator's. ``instance`` is the client instance id, which no two clients share.

    A label that the receiver vouches for has the very name of its attribute. An attribute of a client whose
    key only becomes a reserved name gets a prefix (:func:`~plugins.prometheus.trust.client_label`), also if
    the receiver sets no such label. Of attributes that get one name, the last by key counts. Long values are
    cut, and so is the number of labels: a scraper that limits them would refuse the whole scrape.

    Args:
        resource: A ``Resource`` of ``resource.proto``.
        names: Attributes that are labels of each series.
        job: The label ``job``.
        reserved: From :func:`~plugins.prometheus.trust.reserved_labels`.

    Raises:
        google.protobuf.message.DecodeError: The Resource cannot be read.

    Source: OpenTelemetry, "Prometheus and OpenMetrics Compatibility", "Resource Attributes".
    """
    attributes = {
        one.key: label_value(one.value)[:_MAX_VALUE] for one in Resource.FromString(resource).attributes
    }
    own = {"job": job, "instance": attributes.get("client_instance_id", "")}
    series = {name: attributes.pop(name, "") for name in names}
    info = {name: attributes.pop(name) for name in RECEIVER_LABELS & attributes.keys()}
    # Keys that are label names already come last, so that theirs are the values.
    keys = sorted(attributes, key=lambda key: (label_name(key) == key, key))
    for key in keys[-_MAX_INFO_LABELS:]:
        name = client_label(label_name(key), reserved)
        if len(name) <= MAX_LABEL_NAME:
            info[name] = attributes[key]
    return TargetLabels(series=_sorted({**series, **own}), info=_sorted({**info, **own}))


def _sorted(labels: dict[str, Any]) -> Labels:
    return tuple(sorted((name, value) for name, value in labels.items() if value))
