"""Errors of the configuration, each one line with source, key, value and fix.

No error shows the value of a secret, of an unknown key (which may be a misspelt secret), or of a
key of unknown type.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from receiver.settings.base import KeyMistakeError
from receiver.settings.earlier_names import EARLIER_TLS_FILES
from receiver.settings.schema import (
    bounds,
    child_keys,
    child_type,
    may_show,
    model_of,
    options,
    type_at,
    type_name,
)
from spark_streaming.plain_yaml import Loc, key_text
from spark_streaming.units import example

_MAX_SHOWN = 100
#: The value of a key that has its default.
_ABSENT: Final = object()

#: Earlier names of keys, and what to write where both are given.
_RENAMED: Final = {**EARLIER_TLS_FILES, "password_file": "password: {file: PATH}"}


@dataclass(eq=False)
class SettingsError(Exception):
    """The configuration is wrong; ``str()`` is the line for the operator."""

    #: The file or ``environment``; empty while it is unknown.
    source: str
    #: Dotted path with indexes, or the environment variable; empty for the whole source.
    key: str
    problem: str
    #: JSON text; None if the value must not be shown or is missing.
    value: str | None = None
    #: The key's path in the merged settings while the source is unknown.
    loc: Loc = ()
    #: The other mistakes of the same configuration.
    further: tuple[SettingsError, ...] = ()

    def __str__(self) -> str:
        return ": ".join(part for part in (self.source, self.key, self.value, self.problem) if part)


def settings_errors(error: ValidationError, model: type[BaseModel]) -> list[SettingsError]:
    """Word the validation errors, one for each value.

    Unknown keys come first, because a misspelt key is also missing.
    """
    found: dict[Loc, SettingsError] = {}
    details = error.errors(include_url=False)
    for detail in sorted(details, key=lambda one: one["type"] != "extra_forbidden"):
        loc = _place(detail, model)
        if detail["type"] == "too_short" and any(
            entry["loc"][: len(loc)] == loc for entry in details if entry != detail
        ):
            continue  # pydantic does not count entries with mistakes
        shown = _shown(detail, model, loc)
        found.setdefault(loc, SettingsError("", key_text(loc), wording(detail, model), shown, loc))
    return list(found.values())


def together(errors: Sequence[SettingsError]) -> SettingsError:
    """Return the first of these errors, which holds the others."""
    first, *others = (problem for error in errors for problem in (error, *error.further))
    first.further = tuple(others)
    return first


def _shown(detail: ErrorDetails, model: type[BaseModel], loc: Loc) -> str | None:
    value, annotation = detail["input"], type_at(model, loc)
    for part in _key_to_change(detail):
        value = _child(value, part)
    # Without a path the value is the whole configuration with its secrets.
    if (
        not loc
        or value is _ABSENT
        or detail["type"] in {"missing", "extra_forbidden"}
        or not may_show(annotation)
    ):
        return None
    if isinstance(value, dict | list | tuple):
        return None
    if value is not None and (model_of(annotation) or model_of(child_type(annotation, 0))):
        # A value in place of a mapping may be a secret that belongs into the mapping.
        return None
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def wording(detail: ErrorDetails, model: type[BaseModel]) -> str:
    """Word a validation error of ``model`` on one line, without the value."""
    loc = _place(detail, model)
    kind, context = detail["type"], detail.get("ctx", {})
    annotation = type_at(model, loc)
    if kind == "extra_forbidden":
        return _unknown_key(str(loc[-1]), child_keys(type_at(model, loc[:-1])))
    if kind == "missing":
        return f"required: {type_name(annotation)}"
    if kind == "value_error":
        return _one_line(str(context["error"]))
    if kind in {"too_short", "string_too_short"}:
        least = context.get("min_length", 1)
        one, more = ("entry", "entries") if kind == "too_short" else ("character", "characters")
        return f"must have at least {least} {one if least == 1 else more}"
    if kind == "string_pattern_mismatch":
        return f"must match {context['pattern']}"
    limits = bounds(annotation)
    if kind.endswith(("_type", "_parsing", "_from_float", "literal_error", "enum")) or limits:
        unit = example(str(loc[-1])) if loc and isinstance(detail["input"], str) else ""
        with_unit = f", or text with a unit such as {unit}" if unit else ""
        return f"expected {type_name(annotation)}{f', {limits}' if limits else ''}{with_unit}"
    return _one_line(detail["msg"])


def _place(detail: ErrorDetails, model: type[BaseModel]) -> Loc:
    """Return the path of the value; pydantic adds the member of a union that it tried."""
    loc: Loc = tuple(detail["loc"])
    if detail["type"] not in {"extra_forbidden", "missing"}:
        while loc and type_at(model, loc) is None and len(options(type_at(model, loc[:-1]))) > 1:
            loc = loc[:-1]
    return (*loc, *_key_to_change(detail))


def _key_to_change(detail: ErrorDetails) -> Loc:
    error = detail.get("ctx", {}).get("error")
    return error.loc if isinstance(error, KeyMistakeError) else ()


def _child(value: object, part: str | int) -> object:
    if isinstance(value, dict) and part in value:
        return value[part]
    if isinstance(value, list) and isinstance(part, int):
        return value[part]
    return _ABSENT


def _unknown_key(key: str, known: tuple[str, ...]) -> str:
    new = _RENAMED.get(key, "")
    if new.partition(":")[0] in known:
        return f"unknown key; write {new}"
    close = difflib.get_close_matches(key, known, n=1)
    if close:
        return f"unknown key; did you mean {close[0]}?"
    return f"unknown key; known are {', '.join(known)}" if known else "unknown key"


def _one_line(text: str) -> str:
    return " ".join(text.split())
