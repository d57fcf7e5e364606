"""Environment variables as settings: ``KAFKA_TELEMETRY_BROKER__ID=2`` is ``broker: {id: 2}``.

Owns the names of the variables and the reading of their text. It opens no file and validates no value:
it only puts values where the file's would be, and knows which variable each came from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from receiver.settings.errors import SettingsError
from receiver.settings.plain_yaml import PlainYamlError, parse
from receiver.settings.schema import (
    Loc,
    child_keys,
    child_type,
    takes_null,
    takes_text,
)

__all__ = ["PREFIX", "RESERVED", "merge", "origin", "unquoted", "variable_name"]

PREFIX = "KAFKA_TELEMETRY_"

#: Variables of the command line and the roll-up, which are no settings.
RESERVED = frozenset(
    {
        "KAFKA_TELEMETRY_URL",
        "KAFKA_TELEMETRY_CONFIG",
        "KAFKA_TELEMETRY_TOKEN",
        "KAFKA_TELEMETRY_JARS",
        "KAFKA_TELEMETRY_ROLLUP_CONFIG",
        "KAFKA_TELEMETRY_ROLLUP_POSTGRES",
    }
)

# Kubernetes gives every pod such variables for each Service of its namespace; one named
# `kafka-telemetry...` would otherwise stop every start.
_SERVICE_LINK = re.compile(
    r"KAFKA_TELEMETRY_([A-Z0-9_]+_)?"
    r"(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)"
)

_SOURCE = "environment"


def variable_name(loc: Loc) -> str:
    """The variable that sets a key, for example ``KAFKA_TELEMETRY_LISTENERS__0__BIND``."""
    return PREFIX + "__".join(str(part) for part in loc).upper()


def merge(document: dict[str, Any], environ: Mapping[str, str], model: type[BaseModel]) -> dict[str, Any]:
    """Lay the environment's settings over the file's.

    Args:
        document: The file's settings; not changed.
        environ: All variables of the process; those without the prefix are passed by.
        model: The type of the whole configuration.

    Returns:
        The settings together.

    Raises:
        SettingsError: A variable with the prefix names no key, or its text cannot be read.
    """
    merged: dict[str, Any] = _copied(document)
    for loc, name in sorted(_paths(environ), key=lambda entry: [(isinstance(p, str), p) for p in entry[0]]):
        _place(merged, loc, _value(name, environ[name], _type_of(model, loc, name)), name)
    return merged


def origin(loc: Loc, environ: Mapping[str, str]) -> tuple[str, Loc] | None:
    """Find the variable that set a key.

    Args:
        loc: The key's path in the merged settings.
        environ: What they were merged with.

    Returns:
        The variable, and the rest of the path inside of it, which is not empty where the variable holds a
        whole list or mapping; None where no variable set the key.

    Raises:
        SettingsError: As :func:`merge`, of a variable's name.
    """
    variables = dict(_paths(environ))
    for length in range(len(loc), 0, -1):
        if variable := variables.get(loc[:length]):
            return variable, loc[length:]
    return None


def _paths(environ: Mapping[str, str]) -> list[tuple[Loc, str]]:
    found: list[tuple[Loc, str]] = []
    for name in environ:
        if not name.startswith(PREFIX) or name in RESERVED:
            continue
        if "__" not in name and _SERVICE_LINK.fullmatch(name):
            continue
        parts = name.removeprefix(PREFIX).lower().split("__")
        if not all(parts):
            raise SettingsError(_SOURCE, name, "expected keys joined by two underscores")
        found.append((tuple(int(p) if p.isascii() and p.isdigit() else p for p in parts), name))
    return found


def _type_of(model: type[BaseModel], loc: Loc, name: str) -> Any:
    annotation: Any = model
    for depth, part in enumerate(loc):
        below = child_type(annotation, part)
        if below is None:
            known = child_keys(annotation)
            hint = (
                f"; known are {', '.join(variable_name((*loc[:depth], key)) for key in known)}"
                if known
                else ""
            )
            raise SettingsError(_SOURCE, name, f"names no setting{hint}")
        annotation = below
    return annotation


def _value(name: str, text: str, annotation: Any) -> Any:
    if annotation is Any:
        return _untyped(text)
    if text == "null" and takes_null(annotation):
        return None
    if takes_text(annotation):
        return text
    try:
        return parse(text)
    except PlainYamlError as error:
        raise SettingsError(_SOURCE, name, f"expected JSON or YAML text: {error}") from None


def _untyped(text: str) -> Any:
    # Only the plugin knows the type. JSON is what it says; anything else is text as it stands, because YAML
    # would take a part of many a password for syntax.
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        if not text.startswith(("[", "{")):
            return text
    try:
        return parse(text)
    except PlainYamlError:
        return text


def unquoted(text: str) -> bool:
    """Whether a variable's text, for a key of a plugin's own, is read as a number, true, false or null."""
    return not isinstance(_untyped(text), str | list | dict)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _place(document: dict[str, Any], loc: Loc, value: Any, name: str) -> None:
    here: Any = document
    for depth, part in enumerate(loc):
        last = depth == len(loc) - 1
        if isinstance(here, list) and isinstance(part, int):
            if part > len(here):
                raise SettingsError(_SOURCE, name, f"the next index is {len(here)}, not {part}")
            if part == len(here):
                here.append(None)
        elif not isinstance(here, dict):
            raise SettingsError(_SOURCE, name, "cannot be set inside a value that is no mapping or list")
        if last:
            here[part] = value
            return
        below = here[part] if isinstance(part, int) and isinstance(here, list) else here.get(part)
        if below is None:
            below = here[part] = [] if isinstance(loc[depth + 1], int) else {}
        here = below


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
