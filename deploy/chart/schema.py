"""Generates values.schema.json, by which Helm checks values before it renders anything.

It is of draft 7, which every Helm 3 supports.
"""

from __future__ import annotations

from typing import Any, Final

from deploy.chart.configurations import configurations
from deploy.chart.shapes import SHAPES
from deploy.chart.values import Section, Value, ValuesError

_TYPES: Final = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}


def schema(values: Section) -> dict[str, Any]:
    """Make the schema of all values."""
    definitions = SHAPES | configurations()
    whole = _section(values)
    # Helm passes these to every dependency of a parent chart.
    whole["properties"]["global"] = {"type": "object"}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart kafka-client-telemetry",
        **_referring(whole, definitions),
        "definitions": {name: _referring(shape, definitions) for name, shape in sorted(definitions.items())},
    }


def _section(section: Section) -> dict[str, Any]:
    properties = {
        entry.path[-1]: _section(entry) if isinstance(entry, Section) else _value(entry)
        for entry in section.entries
    }
    described = {"description": section.description} if section.description else {}
    return described | {"type": "object", "properties": properties, "additionalProperties": False}


def _value(value: Value) -> dict[str, Any]:
    described: dict[str, Any] = {"description": value.description}
    if value.keywords.keys() & {"$ref", "type", "enum"}:
        return described | value.keywords
    kind = _TYPES.get(type(value.default))
    if kind is None:
        raise ValuesError(
            f"values.yaml: {'.'.join(value.path)}: "
            f"cannot infer a type from {value.default!r}; add `# @ {{type: ...}}`"
        )
    return described | {"type": kind} | value.keywords


def _referring(shape: Any, definitions: dict[str, dict[str, Any]]) -> Any:
    """Return the shape with its references as JSON pointers."""
    if isinstance(shape, list):
        return [_referring(part, definitions) for part in shape]
    if not isinstance(shape, dict):
        return shape
    name = shape.get("$ref")
    if isinstance(name, str):
        if name not in definitions:
            raise ValuesError(f"values.yaml: $ref: {name}: unknown shape")
        return shape | {"$ref": f"#/definitions/{name}"}
    return {key: _referring(value, definitions) for key, value in shape.items()}
