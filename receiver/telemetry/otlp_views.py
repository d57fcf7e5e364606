"""OTLP's messages, seen by protobuf in other ways than as what they are.

Owns views of one encoding (opentelemetry-proto, ``metrics.proto``), because protobuf does in C what taking
messages apart one by one in Python would take ten times as long for. What makes them useful: protobuf merges
the occurrences of a field that is not repeated, so that a view with such a field makes one message of many.

The outer messages, everything inside them left as bytes:

- ``Outline``: every ResourceMetrics and ScopeMetrics apart, their fields singular as in OTLP. Written out
  again, it has the same bytes exactly where nothing is said twice or in an odd way.
- ``OneResource``: the ResourceMetrics as *one* message, which concatenates the ScopeMetrics of all of them.
- ``OneScope``: likewise, and the ScopeMetrics as one too, which concatenates all metrics.

All messages, each merged with its like, so that reading costs no memory by message:

- ``Checked``: with every field: bytes can be read as it exactly where they can be read as OTLP.
- ``Frames``: with no field that is not a message. All others are unknown to it, so it keeps their bytes; what
  is missing from its size is what messages are wrapped in.

Some metrics, out of whatever message they were in:

- ``MetricList``: as bytes.
- ``Counted``: merged into one, which so has every name, description, unit and data point there is.
- ``AttributeKeys``: merged into one, which so has the key of every attribute of a point, an exemplar or the
  metric itself, and every value in which attributes may be nested.
- ``MetricHead``: one of them, without its data.

It must not decide when such a merger is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.resource.v1 import resource_pb2

__all__ = [
    "DATA_KINDS",
    "AttributeKeys",
    "Checked",
    "Counted",
    "Frames",
    "MetricHead",
    "MetricList",
    "OneResource",
    "OneScope",
    "Outline",
    "attribute_keys",
    "points_in",
    "points_of",
]

_Field = descriptor_pb2.FieldDescriptorProto
_ONE: Final = _Field.LABEL_OPTIONAL
_MANY: Final = _Field.LABEL_REPEATED

# A pool of our own: in the default one, these would be names that everybody sees.
_POOL: Final = descriptor_pool.DescriptorPool()


#: The fields of a message: number, how often each may occur, the message that it is; None leaves it as bytes.
_Fields = dict[str, tuple[int, Any, str | None]]

#: What a Metric may hold: OTLP's field names with their numbers. In each, data points are field 1.
DATA_KINDS: Final = {"gauge": 5, "sum": 7, "histogram": 9, "exponential_histogram": 10, "summary": 11}


def _messages(package: str, root: str, messages: dict[str, _Fields]) -> type[Any]:
    """Make a view of these messages; the class is that of the one named ``root``."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    for name, fields in messages.items():
        descriptor = file.message_type.add(name=name)
        for field, (number, label, of) in fields.items():
            kind = _Field.TYPE_BYTES if of is None else _Field.TYPE_MESSAGE
            type_name = None if of is None else f".{package}.{of}"
            descriptor.field.add(name=field, number=number, label=label, type=kind, type_name=type_name)
    _POOL.Add(file)
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{package}.{root}"))


def _view(package: str, *, resource_metrics: Any, resource: Any, scope_metrics: Any, scope: Any) -> type[Any]:
    """Make a view: how often each field may occur; a ``scope`` of None leaves ScopeMetrics as bytes."""
    messages: dict[str, _Fields] = {
        "MetricsData": {"resource_metrics": (1, resource_metrics, "ResourceMetrics")},
        "ResourceMetrics": {
            "resource": (1, resource, None),
            "scope_metrics": (2, scope_metrics, None if scope is None else "ScopeMetrics"),
            "schema_url": (3, resource, None),
        },
    }
    if scope is not None:
        messages["ScopeMetrics"] = {
            "scope": (1, scope, None),
            "metrics": (2, _MANY, None),
            "schema_url": (3, scope, None),
        }
    return _messages(package, "MetricsData", messages)


Outline: Final = _view(
    "receiver.outline", resource_metrics=_MANY, resource=_ONE, scope_metrics=_MANY, scope=_ONE
)
OneResource: Final = _view(
    "receiver.oneresource", resource_metrics=_ONE, resource=_MANY, scope_metrics=_MANY, scope=None
)
OneScope: Final = _view(
    "receiver.onescope", resource_metrics=_ONE, resource=_MANY, scope_metrics=_ONE, scope=_MANY
)

MetricList: Final = _messages(
    "receiver.metriclist", "ScopeMetrics", {"ScopeMetrics": {"metrics": (2, _MANY, None)}}
)
MetricHead: Final = _messages(
    "receiver.metrichead",
    "Metric",
    {"Metric": {"name": (1, _ONE, None), "description": (2, _ONE, None), "unit": (3, _ONE, None)}},
)
Counted: Final = _messages(
    "receiver.counted",
    "ScopeMetrics",
    {
        "ScopeMetrics": {"metrics": (2, _ONE, "Metric")},
        "Metric": {
            "name": (1, _MANY, None),
            "description": (2, _MANY, None),
            "unit": (3, _MANY, None),
            **{kind: (number, _ONE, "Data") for kind, number in DATA_KINDS.items()},
        },
        "Data": {"data_points": (1, _MANY, None)},
    },
)
AttributeKeys: Final = _messages(
    "receiver.attributekeys",
    "ScopeMetrics",
    {
        "ScopeMetrics": {"metrics": (2, _ONE, "Metric")},
        "Metric": {
            "gauge": (5, _ONE, "Numbers"),
            "sum": (7, _ONE, "Numbers"),
            "histogram": (9, _ONE, "Histograms"),
            "exponential_histogram": (10, _ONE, "ExponentialHistograms"),
            "summary": (11, _ONE, "Summaries"),
            "metadata": (12, _ONE, "KeyValue"),
        },
        "Numbers": {"data_points": (1, _ONE, "NumberDataPoint")},
        "Histograms": {"data_points": (1, _ONE, "HistogramDataPoint")},
        "ExponentialHistograms": {"data_points": (1, _ONE, "ExponentialHistogramDataPoint")},
        "Summaries": {"data_points": (1, _ONE, "SummaryDataPoint")},
        "NumberDataPoint": {"attributes": (7, _ONE, "KeyValue"), "exemplars": (5, _ONE, "Exemplar")},
        "HistogramDataPoint": {"attributes": (9, _ONE, "KeyValue"), "exemplars": (8, _ONE, "Exemplar")},
        "ExponentialHistogramDataPoint": {
            "attributes": (1, _ONE, "KeyValue"),
            "exemplars": (11, _ONE, "Exemplar"),
        },
        "SummaryDataPoint": {"attributes": (7, _ONE, "KeyValue")},
        "Exemplar": {"filtered_attributes": (7, _ONE, "KeyValue")},
        "KeyValue": {"key": (1, _MANY, None), "value": (2, _ONE, "AnyValue")},
        "AnyValue": {"array_value": (5, _MANY, None), "kvlist_value": (6, _MANY, None)},
    },
)


def points_in(counted: Any) -> int:
    """Count the data points in a ``Counted``."""
    metric = counted.metrics
    # Not in a loop: this runs over every push.
    return (
        len(metric.gauge.data_points)
        + len(metric.sum.data_points)
        + len(metric.histogram.data_points)
        + len(metric.exponential_histogram.data_points)
        + len(metric.summary.data_points)
    )


def points_of(metrics: Sequence[bytes]) -> int:
    """Count the data points in encoded metrics."""
    return points_in(Counted.FromString(MetricList(metrics=metrics).SerializeToString()))


def attribute_keys(view: Any) -> tuple[set[bytes], bool]:
    """Return the keys in an ``AttributeKeys``, and whether further ones may be nested in values."""
    merged = [view.metrics.metadata]
    for kind in DATA_KINDS:
        points = getattr(view.metrics, kind).data_points
        merged.append(points.attributes)
        if kind != "summary":
            merged.append(points.exemplars.filtered_attributes)
    keys = {key for attributes in merged for key in attributes.key}
    return keys, any(attributes.value.array_value or attributes.value.kvlist_value for attributes in merged)


def _merged(*, with_scalars: bool) -> type[Any]:
    """Make a view of all messages, no message field of which is repeated."""

    def merge(message: Any) -> None:
        fields = [field for field in message.field if with_scalars or field.type == _Field.TYPE_MESSAGE]
        for field in fields:
            # Of a oneof only the last field stays, and each change of mind makes a message.
            field.ClearField("oneof_index")
            field.ClearField("proto3_optional")
            if field.type == _Field.TYPE_MESSAGE:
                field.label = _ONE
        kept = [_Field.FromString(field.SerializeToString()) for field in fields]
        del message.field[:], message.oneof_decl[:]
        message.field.extend(kept)
        for nested in message.nested_type:
            merge(nested)

    # The names are OTLP's own: the pool is another one.
    pool = descriptor_pool.DescriptorPool()
    for module in (common_pb2, resource_pb2, metrics_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for message in file.message_type:
            merge(message)
        pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName(metrics_pb2.MetricsData.DESCRIPTOR.full_name)
    )


Checked: Final = _merged(with_scalars=True)
Frames: Final = _merged(with_scalars=False)
