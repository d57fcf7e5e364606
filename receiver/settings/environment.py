"""Environment variables as settings: ``KAFKA_TELEMETRY_BROKER__ID=2``.

That variable is the same as ``broker: {id: 2}`` in the file. This module puts the values of
variables into the document of the file. The models validate them later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from receiver.numbers import whole_number
from receiver.settings import PREFIX
from receiver.settings.errors import SettingsError
from receiver.settings.schema import child_keys, child_type, options, takes_null, takes_text
from spark_streaming.plain_yaml import Loc, PlainYamlError, parse

#: Variables of the command line and the roll-up, which are not settings.
RESERVED = frozenset(
    {
        "KAFKA_TELEMETRY_URL",
        "KAFKA_TELEMETRY_PROFILE",
        "KAFKA_TELEMETRY_CONFIG",
        "KAFKA_TELEMETRY_TOKEN",
        "KAFKA_TELEMETRY_JARS",
        "KAFKA_TELEMETRY_PURE_PYTHON",
        "KAFKA_TELEMETRY_ROLLUP_CONFIG",
        "KAFKA_TELEMETRY_ROLLUP_POSTGRES",
    }
)

#: A higher index or number is text, which the models refuse.
_MAX_INDEX = 9_999
_MAX_NUMBER = 2**63 - 1

# Kubernetes sets such variables in every pod for each Service of the namespace. Without this
# exception a Service named `kafka-telemetry...` would prevent every start.
_SERVICE_LINK = re.compile(
    r"KAFKA_TELEMETRY_([A-Z0-9_]+_)?"
    r"(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)"
)

_SOURCE = "environment"


def variable_name(loc: Loc) -> str:
    """Return the variable of a key, such as ``KAFKA_TELEMETRY_LISTENERS__0__BIND``."""
    return PREFIX + "__".join(str(part) for part in loc).upper()


def merge(document: dict[str, Any], environ: Mapping[str, str], model: type[BaseModel]) -> dict[str, Any]:
    """Return a copy of the document with the values of environment variables over it.

    ``model`` has the type of each key. A variable with the prefix that names no key, or whose text
    cannot be read, raises SettingsError.
    """
    # A copy by JSON, because YAML anchors can make two keys share one value.
    merged: dict[str, Any] = json.loads(json.dumps(document))
    for loc, name in sorted(_paths(environ), key=lambda entry: [(isinstance(p, str), p) for p in entry[0]]):
        _place(merged, loc, _value(name, environ[name], _type_of(model, loc, name)), name)
    return merged


def origin(loc: Loc, environ: Mapping[str, str]) -> tuple[str, Loc] | None:
    """Find the variable that set a key, and the rest of the path.

    None: the key is the file's.

    The rest is not empty if the variable holds a whole list or mapping.
    """
    variables = dict(_paths(environ))
    for length in range(len(loc), 0, -1):
        if variable := variables.get(loc[:length]):
            return variable, loc[length:]
    return None


def reads_as_scalar(text: str) -> bool:
    """Whether a plugin's variable is read as a number, true, false or null."""
    return not isinstance(_untyped(text), str | list | dict)


def _paths(environ: Mapping[str, str]) -> list[tuple[Loc, str]]:
    paths: list[tuple[Loc, str]] = []
    for name in environ:
        if not name.startswith(PREFIX) or name in RESERVED:
            continue
        if "__" not in name and _SERVICE_LINK.fullmatch(name):
            continue
        parts = name.removeprefix(PREFIX).lower().split("__")
        if not all(parts):
            raise SettingsError(_SOURCE, name, "expected keys joined by two underscores")
        paths.append((tuple(map(_step, parts)), name))
    return paths


def _step(part: str) -> int | str:
    """Return a step of a path: an index or a key."""
    index = whole_number(part, _MAX_INDEX)
    return part if index is None else index


def _type_of(model: type[BaseModel], loc: Loc, name: str) -> Any:
    annotation: Any = model
    for depth, part in enumerate(loc):
        below = child_type(annotation, part)
        if below is None:
            known = ", ".join(variable_name((*loc[:depth], key)) for key in child_keys(annotation))
            raise SettingsError(_SOURCE, name, f"unknown setting{f'; known are {known}' if known else ''}")
        annotation = below
    return annotation


def _value(name: str, text: str, annotation: Any) -> Any:
    if annotation is Any:
        return _untyped(text)
    if text == "null" and takes_null(annotation):
        return None
    if int in options(annotation) and (number := whole_number(text, _MAX_NUMBER)) is not None:
        return number  # a number or a word such as auto
    if takes_text(annotation):
        return text
    try:
        return parse(text)
    except PlainYamlError as error:
        raise SettingsError(_SOURCE, name, f"expected JSON or YAML text: {error}") from None


def _untyped(text: str) -> Any:
    # Only the plugin knows the type. JSON is read as JSON. Any other text stays text, because YAML
    # would read parts of many passwords as syntax.
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        if not text.startswith(("[", "{")):
            return text
    try:
        return parse(text)
    except PlainYamlError:
        return text


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _place(document: dict[str, Any], loc: Loc, value: Any, name: str) -> None:
    here: Any = document
    for depth, part in enumerate(loc):
        if isinstance(here, list) and isinstance(part, int):
            if part > len(here):
                raise SettingsError(_SOURCE, name, f"the next index is {len(here)}, not {part}")
            if part == len(here):
                here.append(None)
        elif not isinstance(here, dict):
            raise SettingsError(_SOURCE, name, "cannot be set inside a value that is not a mapping or a list")
        if depth == len(loc) - 1:
            here[part] = value
            return
        if (here.get(part) if isinstance(here, dict) else here[part]) is None:
            here[part] = [] if isinstance(loc[depth + 1], int) else {}
        here = here[part]
