"""Loads the roll-up's configuration from a YAML file and command-line options.

An error is one line that names the key, the value and the fix. It never shows the value of a
secret, of an unknown key, or of a mapping.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from spark_streaming.files import FileError
from spark_streaming.plain_yaml import PlainYamlError, read
from spark_streaming.settings import RollupSettings
from spark_streaming.units import example, with_units

_SECRET_KEYS: Final = frozenset({"postgres", "options", "token"})


class SettingsError(Exception):
    """Invalid configuration. The message is one line for the user."""


def load(file: Path | None, options: Mapping[str, Any]) -> RollupSettings:
    """Read and validate the configuration.

    Args:
        options: Values that override the file, in the same structure. None means not given.

    Raises:
        SettingsError: The file can't be read, or a key, type or value is wrong.
    """
    merged = _merge(_document(file) if file is not None else {}, options)
    source = f"{file.name}: " if file is not None else ""
    try:
        # Strict JSON turns strings into paths, but does not accept "1" or true for an integer.
        document = with_units(merged, RollupSettings)
        return RollupSettings.model_validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        found = error.errors(include_url=False)
        first = next((detail for detail in found if detail["type"] == "extra_forbidden"), found[0])
        raise SettingsError(source + _message(first)) from None
    except (TypeError, ValueError):
        raise SettingsError(f"{source}expected mappings of strings, numbers, true and false") from None


def _message(detail: ErrorDetails) -> str:
    key = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "value_error":
        problem = str(detail["ctx"]["error"])
        return f"{key}: {problem}" if key else problem
    if detail["type"] == "extra_forbidden":
        return f"{key}: unknown key{_hint(detail['loc'])}"
    value = detail["input"]
    secret = not _SECRET_KEYS.isdisjoint(detail["loc"]) or isinstance(value, dict | list)
    shown = "" if secret or detail["type"] == "missing" else f"{json.dumps(value)[:100]}: "
    unit = example(str(detail["loc"][-1])) if isinstance(value, str) else ""
    with_unit = f", or text with a unit such as {unit}" if unit else ""
    return f"{key}: {shown}{detail['msg'].replace('Input should be', 'must be')}{with_unit}"


def _hint(loc: tuple[int | str, ...]) -> str:
    model: type[BaseModel] | None = RollupSettings
    for part in loc[:-1]:
        annotation = model.model_fields[str(part)].annotation if model is not None else None
        parts = (annotation, *getattr(annotation, "__args__", ()))
        model = next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), None)
    if model is None:
        return ""
    close = difflib.get_close_matches(str(loc[-1]), model.model_fields, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known keys: {', '.join(model.model_fields)}"


def _document(file: Path) -> dict[str, Any]:
    try:
        document = read(file)
    except FileError as error:
        raise SettingsError(f"{file}: {error}") from None
    except PlainYamlError as error:
        raise SettingsError(f"{file.name}: {error}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise SettingsError(f"{file.name}: expected a mapping of keys such as source and postgres")
    return document


def _merge(document: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(document)
    for key, value in options.items():
        if isinstance(value, Mapping):
            nested = merged.get(key)
            value = _merge(nested if isinstance(nested, dict) else {}, value)
            if not value:
                continue
        if value is not None:
            merged[key] = value
    return merged
