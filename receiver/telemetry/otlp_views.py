"""Alternative protobuf schemas of OTLP metrics, which merge or skip messages in C.

To walk a push message by message in Python would take ten times as long. The schemas use two
properties of protobuf (opentelemetry-proto, ``metrics.proto``): it merges the occurrences of a
singular field into one message, and it keeps fields that the schema lacks as bytes.

Schemas of the outer messages, which leave everything inside them as bytes:

- ``Outline``: every ResourceMetrics and ScopeMetrics separately, their fields singular as in OTLP.
  Re-encoding gives the same bytes exactly when the encoding is the usual one, without duplicates.
- ``OneResource``: one ResourceMetrics, which concatenates the ScopeMetrics of all.
- ``OneScope``: one ResourceMetrics with one ScopeMetrics, which concatenates all metrics.

Schemas of all messages, each merged with its like, so that parsing allocates no memory by message:

- ``Checked``: has every field. It parses exactly the bytes that OTLP parses.
- ``Frames``: has only the message fields. The bytes of all other fields are unknown to it and kept,
  so the total minus its size is the size of the messages' tags and lengths.

Schemas of metrics, whatever message contains them:

- ``MetricList``: the metrics as bytes.
- ``Counted``: one merged metric, with every name, description, unit and data point.
- ``Identified``: each metric with what tells its series apart: the name, the kind, and the
  attributes of each data point. It keeps other fields until ``DiscardUnknownFields``.
- ``AttributeKeys``: one merged metric, with the key of every attribute of points, exemplars and
  metrics, and every value that may contain nested attributes.
- ``MetricHead``: one metric without its data.

The callers decide when a merge is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.resource.v1 import resource_pb2

_Field = descriptor_pb2.FieldDescriptorProto
_ONE: Final = _Field.LABEL_OPTIONAL
_MANY: Final = _Field.LABEL_REPEATED

# A separate pool, because the default one is shared by the whole process.
_POOL: Final = descriptor_pool.DescriptorPool()

# The fields of a message by name: number, label, and message type; None leaves the field as bytes.
_Fields = dict[str, tuple[int, Any, str | None]]

#: The data fields of a Metric with their numbers. In each, data points are field 1.
DATA_KINDS: Final = {"gauge": 5, "sum": 7, "histogram": 9, "exponential_histogram": 10, "summary": 11}


def _messages(package: str, root: str, messages: dict[str, _Fields]) -> type[Any]:
    """Build a schema of these messages, and return the class of the message ``root``."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    for name, fields in messages.items():
        descriptor = file.message_type.add(name=name)
        for field, (number, label, message) in fields.items():
            kind = _Field.TYPE_BYTES if message is None else _Field.TYPE_MESSAGE
            type_name = None if message is None else f".{package}.{message}"
            descriptor.field.add(name=field, number=number, label=label, type=kind, type_name=type_name)
    _POOL.Add(file)
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{package}.{root}"))


def _view(package: str, *, resource_metrics: Any, resource: Any, scope_metrics: Any, scope: Any) -> type[Any]:
    """Build a schema with these labels.

    A ``scope`` of None leaves ScopeMetrics as bytes.
    """
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
Identified: Final = _messages(
    "receiver.identified",
    "ScopeMetrics",
    {
        "ScopeMetrics": {"metrics": (2, _MANY, "Metric")},
        "Metric": {
            "name": (1, _ONE, None),
            "gauge": (5, _ONE, "Numbers"),
            "sum": (7, _ONE, "Numbers"),
            "histogram": (9, _ONE, "Histograms"),
            "exponential_histogram": (10, _ONE, "ExponentialHistograms"),
            "summary": (11, _ONE, "Summaries"),
        },
        "Numbers": {"data_points": (1, _MANY, "NumberDataPoint")},
        "Histograms": {"data_points": (1, _MANY, "HistogramDataPoint")},
        "ExponentialHistograms": {"data_points": (1, _MANY, "ExponentialHistogramDataPoint")},
        "Summaries": {"data_points": (1, _MANY, "SummaryDataPoint")},
        "NumberDataPoint": {"attributes": (7, _MANY, None)},
        "HistogramDataPoint": {"attributes": (9, _MANY, None)},
        "ExponentialHistogramDataPoint": {"attributes": (1, _MANY, None)},
        "SummaryDataPoint": {"attributes": (7, _MANY, None)},
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
    """Return the keys, and whether values may contain nested attributes."""
    merged = [view.metrics.metadata]
    for kind in DATA_KINDS:
        points = getattr(view.metrics, kind).data_points
        merged.append(points.attributes)
        if kind != "summary":
            merged.append(points.exemplars.filtered_attributes)
    keys = {key for attributes in merged for key in attributes.key}
    return keys, any(attributes.value.array_value or attributes.value.kvlist_value for attributes in merged)


def _merged(*, with_scalars: bool) -> type[Any]:
    """Build a schema of all of OTLP's messages, in which no message field is repeated."""

    def merge(message: Any) -> None:
        fields = [field for field in message.field if with_scalars or field.type == _Field.TYPE_MESSAGE]
        for field in fields:
            # A oneof keeps only its last field, and each switch between them allocates a message.
            field.ClearField("oneof_index")
            field.ClearField("proto3_optional")
            if field.type == _Field.TYPE_MESSAGE:
                field.label = _ONE
        kept = [_Field.FromString(field.SerializeToString()) for field in fields]
        del message.field[:], message.oneof_decl[:]
        message.field.extend(kept)
        for nested in message.nested_type:
            merge(nested)

    # A separate pool, because the messages have OTLP's own names.
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
