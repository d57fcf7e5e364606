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

__all__ = ["Labels", "TargetLabels", "target_labels"]

#: Names and values, sorted by name; no name twice, no empty value.
Labels = tuple[tuple[str, str], ...]

#: Characters of a value; each series repeats those of its target. What tells instances apart is shorter.
_MAX_VALUE: Final = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLabels:
    """A target as labels.

    Attributes:
        series: Of each of its series.
        info: Of its ``target_info``.
    """

    series: Labels
    info: Labels


def target_labels(resource: bytes, *, names: Sequence[str], job: str) -> TargetLabels:
    """Make a target's labels of its Resource.

    ``job`` is ``<service.namespace>/<service.name>`` or the name alone, where the client tells it, else the
    given one. ``instance`` is the client instance id, which no two clients share.

    A label that the receiver vouches for has the very name of its attribute. So an attribute whose key only
    becomes a label's name never joins or replaces one whose key is that name. Long values are cut.

    Args:
        resource: A ``Resource`` of ``resource.proto``.
        names: Attributes that are labels of each series.
        job: The label ``job`` of a client that tells none.

    Source: OpenTelemetry, "Prometheus and OpenMetrics Compatibility", "Resource Attributes".
    """
    attributes = {
        one.key: label_value(one.value)[:_MAX_VALUE] for one in Resource.FromString(resource).attributes
    }
    service = attributes.pop("service.name", "")
    namespace = attributes.pop("service.namespace", "")
    own = {
        "job": f"{namespace}/{service}" if namespace and service else service or job,
        "instance": attributes.get("client_instance_id", ""),
    }
    series = {name: attributes.pop(name, "") for name in names}
    info: dict[str, str] = {}
    # Keys that are label names already come last, so that theirs are the values.
    for key in sorted(attributes, key=lambda key: (label_name(key) == key, key)):
        info[label_name(key)] = attributes[key]
    for name in names:
        info.pop(name, None)
    return TargetLabels(series=_sorted({**series, **own}), info=_sorted({**info, **own}))


def _sorted(labels: dict[str, Any]) -> Labels:
    return tuple(sorted((name, value) for name, value in labels.items() if value))
