"""Writes the console's types of REST documents: ``python -m deploy.console``.

TypeScript's compiler checks the console's modules by them (tests/console).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from deploy.openapi import openapi_document

TYPES: Final = Path(__file__).parents[1] / "receiver" / "api" / "console" / "types" / "rest.d.ts"

_SIMPLE: Final = {
    "boolean": "boolean",
    "integer": "number",
    "null": "null",
    "number": "number",
    "string": "string",
}


def types() -> str:
    """Return a TypeScript interface for each schema of the OpenAPI document."""
    document = openapi_document()
    parts = ["// Made from the OpenAPI document by `make docs`.\n"]
    for name, schema in sorted(document["components"]["schemas"].items()):
        # A page of a list has the name of its item behind a separator that no identifier may have.
        if name.isidentifier():
            parts.append(_declaration(name, schema))
    return "\n".join(parts)


def _declaration(name: str, schema: dict[str, Any]) -> str:
    properties = schema.get("properties")
    if properties is None:
        return f"export type {name} = {_type(schema)};\n"
    lines = [
        f"  {field}{'' if field in schema.get('required', ()) else '?'}: {_type(value)};\n"
        for field, value in properties.items()
    ]
    return f"export interface {name} {{\n{''.join(lines)}}}\n"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in schema:
        return " | ".join(_type(choice) for choice in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if schema.get("type") == "array":
        return f"({_type(schema['items'])})[]"
    if schema.get("type") == "object":
        return _record(schema)
    return _SIMPLE.get(schema.get("type", ""), "unknown")


def _record(schema: dict[str, Any]) -> str:
    value = _type(schema["additionalProperties"]) if schema.get("additionalProperties") else "unknown"
    names = schema.get("propertyNames", {})
    # Of an enumeration, an answer has some keys only.
    if "$ref" in names or "enum" in names:
        return f"Partial<Record<{_type(names)}, {value}>>"
    return f"Record<string, {value}>"


if __name__ == "__main__":
    TYPES.write_text(types(), encoding="utf-8")
