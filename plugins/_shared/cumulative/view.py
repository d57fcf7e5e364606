"""OTLP messages in which metrics and attributes stay bytes.

In :data:`PushView` each metric is bytes, which :data:`MetricView` parses. In that, each attribute
is bytes. So attributes are looked up without a Python object for each key and value, and are
written back unchanged.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from opentelemetry.proto.metrics.v1 import metrics_pb2

_Field = descriptor_pb2.FieldDescriptorProto


def _view(message_name: str, *, as_bytes: frozenset[str]) -> type[Any]:
    """Build a type in which messages of other files, and these fields, are bytes."""
    file = descriptor_pb2.FileDescriptorProto()
    metrics_pb2.DESCRIPTOR.CopyToProto(file)
    ours = f".{file.package}."

    def leave_as_bytes(message: Any) -> None:
        for field in message.field:
            foreign = field.type == _Field.TYPE_MESSAGE and not field.type_name.startswith(ours)
            if foreign or field.name in as_bytes:
                # Repeated also where OTLP has one, because protobuf merges repeated occurrences.
                field.type, field.label = _Field.TYPE_BYTES, _Field.LABEL_REPEATED
                field.ClearField("type_name")
        for nested in message.nested_type:
            leave_as_bytes(nested)

    for message in file.message_type:
        leave_as_bytes(message)
    del file.dependency[:]
    # A separate pool, because the default one has these names already.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{message_name}"))


#: ``MetricsData`` whose Resources, scopes and metrics are bytes.
PushView: Final[type[Any]] = _view("MetricsData", as_bytes=frozenset({"metrics"}))

#: ``Metric`` whose attributes, exemplars and metadata are bytes.
MetricView: Final[type[Any]] = _view("Metric", as_bytes=frozenset({"exemplars"}))
