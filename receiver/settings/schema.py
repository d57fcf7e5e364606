"""Reads the types of settings models: keys, accepted values, bounds and secrets.

The environment variables, the errors and the configuration reference use it.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo

from receiver.settings.hostport import HostPort, HostPorts
from receiver.settings.socket_path import SocketPath
from spark_streaming.plain_yaml import Loc

_SECRETS = (SecretStr, SecretBytes)
_TEXTS = (str, Path, HostPort, HostPorts, SecretStr)
_NAMES = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    date: "a day such as 2026-11-29",
}


def _with_metadata(field: FieldInfo) -> Any:
    # Pydantic separates a field's type from its Annotated metadata. This joins them again.
    annotation: Any = field.annotation
    for entry in field.metadata:
        annotation = Annotated[annotation, entry]
    return annotation


def fields_of(model: type[BaseModel]) -> Iterator[tuple[str, Any, FieldInfo]]:
    """Yield name, type and definition of each key of a model, in order."""
    for name, field in model.model_fields.items():
        yield field.alias or name, _with_metadata(field), field


def options(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself, each without ``Annotated``."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return options(typing.get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return tuple(found for part in typing.get_args(annotation) for found in options(part))
    return (annotation,)


def _metadata(annotation: Any) -> Iterator[Any]:
    if typing.get_origin(annotation) is Annotated:
        first, *entries = typing.get_args(annotation)
        yield from _metadata(first)
        for entry in entries:
            yield from entry.metadata if isinstance(entry, FieldInfo) else (entry,)


def model_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model among a type's options, or None."""
    for option in options(annotation):
        if isinstance(option, type) and issubclass(option, BaseModel):
            return option
    return None


def child_type(annotation: Any, part: str | int) -> Any:
    """Return the type of a key or index below a type, or None."""
    for option in options(annotation):
        if option is Any:
            return Any
        origin, args = typing.get_origin(option), typing.get_args(option)
        if isinstance(option, type) and issubclass(option, BaseModel):
            found = next((annotation for name, annotation, _ in fields_of(option) if name == part), None)
            if found is not None:
                return found
        if origin in (tuple, list) and isinstance(part, int):
            return args[0]
        if origin is dict and isinstance(part, str):
            return args[1]
    return None


def type_at(model: Any, loc: Loc) -> Any:
    """Return the type at a path below a model, or None."""
    annotation = model
    for part in loc:
        annotation = child_type(annotation, part)
    return annotation


def child_keys(annotation: Any) -> tuple[str, ...]:
    """Return the keys of a type; none if it is not a model."""
    model = model_of(annotation)
    return tuple(name for name, _, _ in fields_of(model)) if model else ()


def takes_null(annotation: Any) -> bool:
    """Whether the type accepts null."""
    return any(option in (None, type(None), Any) for option in options(annotation))


def takes_text(annotation: Any) -> bool:
    """Whether the type accepts text, so that a variable's text must not be parsed."""
    return any(
        option is Any
        or (isinstance(option, type) and issubclass(option, _TEXTS))
        or (typing.get_origin(option) is Literal and isinstance(typing.get_args(option)[0], str))
        for option in options(annotation)
    )


def may_show(annotation: Any) -> bool:
    """Whether an error may show a value of the type: no secret and no unknown type."""
    if annotation is None:
        return False
    for option in options(annotation):
        if option is Any or (isinstance(option, type) and issubclass(option, _SECRETS)):
            return False
        if typing.get_origin(option) is Literal:
            continue
        if any(not may_show(part) for part in typing.get_args(option) if part is not Ellipsis):
            return False
    return True


def bounds(annotation: Any) -> str:
    """Return the bounds of a number, such as ``0 to 600``; empty without bounds."""
    limits: dict[str, Any] = {}
    for option in (annotation, *options(annotation)):
        for entry in _metadata(option):
            limits |= {
                kind: getattr(entry, kind) for kind in ("ge", "gt", "le", "lt") if hasattr(entry, kind)
            }
    low = limits.get("ge", f"more than {limits['gt']}" if "gt" in limits else None)
    high = limits.get("le", f"less than {limits['lt']}" if "lt" in limits else None)
    if low is not None and high is not None:
        return f"{low} to {high}"
    if low is not None:
        return f"at least {low}"
    return "" if high is None else f"at most {high}"


def type_name(annotation: Any) -> str:
    """Return the name of a type for operators, such as ``an integer or null``."""
    return " or ".join(dict.fromkeys(_option_name(option) for option in options(annotation)))


def _option_name(option: Any) -> str:
    origin, args = typing.get_origin(option), typing.get_args(option)
    if option in (None, type(None)):
        return "null"
    if origin is Literal or (isinstance(option, type) and issubclass(option, StrEnum)):
        names = [str(arg) for arg in args or option]
        return names[0] if len(names) == 1 else f"one of {', '.join(names)}"
    if origin in (tuple, list):
        inner = args[0]
        return "a list of " + (
            f"({type_name(inner)})" if typing.get_origin(inner) is Literal else _plural(type_name(inner))
        )
    if origin is dict or option is dict:
        return "a mapping"
    if option in _NAMES:
        return _NAMES[option]
    if isinstance(option, type):
        if issubclass(option, BaseModel):
            return "a mapping"
        if issubclass(option, HostPort | HostPorts):
            return "host:port"
        if issubclass(option, SocketPath):
            return "unix:/path"
        if issubclass(option, _SECRETS):
            return "text or {file: PATH}"
    return "a value"


def _plural(name: str) -> str:
    return {"a mapping": "mappings", "text": "texts", "an integer": "integers"}.get(name, f"({name})")
