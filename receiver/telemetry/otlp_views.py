"""OTLP's outer messages, seen by protobuf with everything inside them left as bytes.

Owns three views of one encoding (opentelemetry-proto, ``metrics.proto``), because protobuf does in C what
taking messages apart one by one in Python would take ten times as long for:

- ``Outline``: every ResourceMetrics and ScopeMetrics apart, their fields singular as in OTLP. Written out
  again, it has the same bytes exactly where nothing is said twice or in an odd way.
- ``OneResource``: the ResourceMetrics as *one* message. Protobuf merges occurrences of a singular field, so
  reading it concatenates the ScopeMetrics of all of them.
- ``OneScope``: likewise, and the ScopeMetrics as one too, so that reading it concatenates all metrics.

It must not decide when such a merger is right.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["OneResource", "OneScope", "Outline"]

_Field = descriptor_pb2.FieldDescriptorProto
_ONE: Final = _Field.LABEL_OPTIONAL
_MANY: Final = _Field.LABEL_REPEATED

# A pool of our own: in the default one, these would be names that everybody sees.
_POOL: Final = descriptor_pool.DescriptorPool()


def _view(package: str, *, resource_metrics: Any, resource: Any, scope_metrics: Any, scope: Any) -> type[Any]:
    """Make a view: how often each field may occur; a ``scope`` of None leaves ScopeMetrics as bytes."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")

    def message(name: str, **fields: tuple[int, Any, str | None]) -> None:
        descriptor = file.message_type.add(name=name)
        for field, (number, label, of) in fields.items():
            kind = _Field.TYPE_BYTES if of is None else _Field.TYPE_MESSAGE
            type_name = None if of is None else f".{package}.{of}"
            descriptor.field.add(name=field, number=number, label=label, type=kind, type_name=type_name)

    message("MetricsData", resource_metrics=(1, resource_metrics, "ResourceMetrics"))
    message(
        "ResourceMetrics",
        resource=(1, resource, None),
        scope_metrics=(2, scope_metrics, None if scope is None else "ScopeMetrics"),
        schema_url=(3, resource, None),
    )
    if scope is not None:
        message("ScopeMetrics", scope=(1, scope, None), metrics=(2, _MANY, None), schema_url=(3, scope, None))
    _POOL.Add(file)
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{package}.MetricsData"))


Outline: Final = _view(
    "receiver.outline", resource_metrics=_MANY, resource=_ONE, scope_metrics=_MANY, scope=_ONE
)
OneResource: Final = _view(
    "receiver.oneresource", resource_metrics=_ONE, resource=_MANY, scope_metrics=_MANY, scope=None
)
OneScope: Final = _view(
    "receiver.onescope", resource_metrics=_ONE, resource=_MANY, scope_metrics=_ONE, scope=_MANY
)
