"""JSON schemas of the receiver's and the roll-up's configurations, from their types.

Helm checks keys, types, bounds and choices by them. The rest is checked by the receiver itself, in
the hook of ``templates/config-check-job.yaml``.

In a chart they differ from these types: the chart or the environment sets some keys, and secrets
are written as ``{file: PATH}``.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from receiver.api.documents import SubscriptionBody
from receiver.cli.subscription_presets import Preset
from receiver.host.discovery import installed_types
from receiver.host.settings import HostSettings
from receiver.settings.descriptions import descriptions
from receiver.settings.model import ReceiverSettings
from receiver.telemetry.owners import EXPECTED, MAX_EXPECTED, MAX_TEAM, MAX_TEXT
from receiver.telemetry.selectors import NEGATION, SELECTORS
from receiver.telemetry.subscription_checks import MAX_INTERVAL_MS, MAX_NAME_LENGTH, MIN_INTERVAL_MS
from spark_streaming.settings import RollupSettings
from spark_streaming.units import pattern

#: The plugins of the images. The receiver checks the settings of others.
BUILT_IN: Final = ("console", "kafka_topic", "otlp", "prometheus", "spool_files")
_FILE: Final = {
    "type": "object",
    "properties": {"file": {"type": "string", "pattern": "^/"}},
    "required": ["file"],
    "additionalProperties": False,
}


def configurations() -> dict[str, dict[str, Any]]:
    """Make the definitions by name, with those that they refer to."""
    shapes: dict[str, dict[str, Any]] = {}
    receiver = _shape(ReceiverSettings, "receiver", shapes)
    # The probes' port is read from it.
    shapes["receiver.RestSettings"]["required"] = ["bind"]
    receiver["properties"]["plugins"] = {"type": "array", "items": _plugin(shapes)}
    receiver["properties"]["rest"] = {"$ref": "receiver.RestSettings"}
    listener = copy.deepcopy(shapes["receiver.ListenerSettings"])
    listener["required"] = ["name"]
    for key in ("bind", "upstream", "addresses", "rewrite"):
        del listener["properties"][key]
    rollup = _shape(RollupSettings, "rollup", shapes)
    shapes = {name: _with_units(shape) for name, shape in shapes.items()}
    receiver, rollup, listener = map(_with_units, (receiver, rollup, listener))
    subscription = _shape(SubscriptionBody, "subscription", shapes)
    # The core checks these values; the rest of its checks is left to the receiver.
    subscription["properties"]["name"] = {"type": "string", "minLength": 1, "maxLength": MAX_NAME_LENGTH}
    subscription["properties"]["interval_ms"] |= {"minimum": MIN_INTERVAL_MS, "maximum": MAX_INTERVAL_MS}
    subscription["properties"]["match"]["propertyNames"] = {"enum": list(SELECTORS)}
    subscription["properties"]["preset"] = {
        "description": "In place of metrics: a subscription that comes with the receiver.",
        "enum": list(Preset),
    }
    subscription["required"].remove("metrics")
    subscription["oneOf"] = [{"required": ["metrics"]}, {"required": ["preset"]}]
    return shapes | {
        "receiverConfig": receiver,
        "listenerDefaults": listener,
        "listenerOverrides": {key: value for key, value in listener.items() if key != "required"},
        "rollupConfig": rollup,
        "subscription": subscription,
        "subscriptions": {
            "anyOf": [
                {"type": "array", "items": {"allOf": [{"$ref": "subscription"}, {"required": ["name"]}]}},
                {"type": "object", "additionalProperties": {"$ref": "subscription"}},
            ]
        },
        "owner": _owner(),
        "owners": {
            "anyOf": [
                {"type": "array", "items": {"allOf": [{"$ref": "owner"}, {"required": ["team"]}]}},
                {"type": "object", "additionalProperties": {"$ref": "owner"}},
            ]
        },
    }


def _owner() -> dict[str, Any]:
    text = {"type": "string", "maxLength": MAX_TEXT}
    expected = {"type": "array", "items": {"type": "string"}, "maxItems": MAX_EXPECTED}
    return {
        "type": "object",
        "properties": {
            "team": {"type": "string", "minLength": 1, "maxLength": MAX_TEAM},
            "match": {
                "type": "object",
                "propertyNames": {"enum": [*SELECTORS, *(f"{name}{NEGATION}" for name in SELECTORS)]},
                "additionalProperties": {"type": "string"},
            },
            "contact": text,
            "link": text,
            "expected": {
                "type": "object",
                "properties": dict.fromkeys(EXPECTED, expected),
                "additionalProperties": False,
            },
        },
        "required": ["match"],
        "additionalProperties": False,
    }


def _plugin(shapes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of an entry of ``plugins``: common keys, and the keys of its type."""
    types = installed_types()
    every = _shape(HostSettings, "plugin", shapes)["properties"]
    branches = []
    for name in BUILT_IN:
        shape = _shape(types[name].load().Config, name, shapes)
        shape["properties"] |= {"type": {"const": name}} | every
        shapes[f"plugin.{name}"] = shape
        branches.append(
            {
                "if": {"properties": {"type": {"const": name}}},
                "then": {"$ref": f"plugin.{name}"},
            }
        )
    return {
        "type": "object",
        "properties": {"type": {"type": "string", "minLength": 1}},
        "required": ["type"],
        "allOf": branches,
    }


class _Described(GenerateJsonSchema):
    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        shape = super().model_schema(schema)
        model: type[BaseModel] = schema["cls"]
        for name, text in descriptions(model).items():
            if name in shape.get("properties", {}):
                shape["properties"][name]["description"] = text
        return shape


def _shape(model: type[BaseModel], prefix: str, shapes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a model's schema; add the schemas that it refers to to ``shapes``, with a prefix."""
    schema = model.model_json_schema(ref_template=prefix + ".{model}", schema_generator=_Described)
    for name, definition in schema.pop("$defs", {}).items():
        shapes[f"{prefix}.{name}"] = _plain(definition)
    shape: dict[str, Any] = _plain(schema)
    return shape


def _with_units(shape: dict[str, Any]) -> dict[str, Any]:
    """Return a schema in which sizes and times may be text with a unit, as in the settings."""
    properties = {
        name: _or_text(value, text) if (text := pattern(name)) else value
        for name, value in shape.get("properties", {}).items()
    }
    return shape | {"properties": properties} if properties else shape


def _or_text(shape: dict[str, Any], text: str) -> dict[str, Any]:
    options = shape.get("anyOf") or [{key: value for key, value in shape.items() if key != "description"}]
    if not any(option.get("type") in {"integer", "number"} for option in options):
        return shape
    return {
        **{key: value for key, value in shape.items() if key == "description"},
        "anyOf": [*options, {"type": "string", "pattern": text}],
    }


def _plain(schema: Any, *, names: bool = False) -> Any:
    """Return a schema without unnecessary keywords; ``names``: its keys are property names."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if not names and schema.get("writeOnly"):
        # Text too: the chart's templates refuse it with a better message than a schema has.
        return {"description": schema.get("description", ""), "anyOf": [{"type": "string"}, _FILE]}
    return {
        key: _plain(value, names=not names and key == "properties")
        for key, value in schema.items()
        if names or key not in {"title", "default", "format"}
    }
