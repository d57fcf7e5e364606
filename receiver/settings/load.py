"""Loading: a YAML file, the environment over it, one validated :class:`ReceiverSettings` out of both.

Owns the reading of the file and the order of precedence: defaults, then the file, then the environment.
It must say each problem on one line and must not start anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from receiver.settings.environment import merge
from receiver.settings.errors import SettingsError, key_text, problem_of
from receiver.settings.model import ReceiverSettings
from receiver.settings.plain_yaml import PlainYamlError, parse
from receiver.settings.schema import Loc

__all__ = ["MAX_FILE_BYTES", "load"]

#: A configuration is written by hand: a larger file is a wrong path.
MAX_FILE_BYTES = 1_048_576


def load(path: Path | None, environ: Mapping[str, str]) -> ReceiverSettings:
    """Read the configuration.

    Args:
        path: The YAML file; None when everything comes from the environment.
        environ: The process's environment; ``KAFKA_TELEMETRY_*`` variables override the file's keys.

    Returns:
        The validated settings.

    Raises:
        SettingsError: The file cannot be read, or a key, type or value is wrong.
    """
    document = _read(path) if path is not None else {}
    merged, origins = merge(document, environ, ReceiverSettings)
    source = path.name if path is not None else "environment"
    broken = _not_unicode(merged, ())
    if broken is not None:
        variable = _origin(broken, origins)
        where = ("environment", variable) if variable else (source, key_text(broken))
        raise SettingsError(*where, "not Unicode: half a character, or a byte that is not UTF-8")
    try:
        # Strictly, as JSON: lists become tuples and texts paths, but "1" is no integer and true is no 1.
        return ReceiverSettings.model_validate_json(json.dumps(merged), strict=True)
    except ValidationError as error:
        problem = problem_of(error, ReceiverSettings)
        variable = _origin(problem.loc, origins)
        if variable is not None:
            raise SettingsError("environment", variable, problem.text, problem.value) from None
        raise SettingsError(source, key_text(problem.loc), problem.text, problem.value) from None


def _origin(loc: Loc, origins: Mapping[Loc, str]) -> str | None:
    # A variable may hold a whole list or mapping, with the problem somewhere inside it.
    for length in range(len(loc), 0, -1):
        variable = origins.get(loc[:length])
        if variable is not None:
            rest = key_text(loc[length:])
            return f"{variable}: {rest}" if rest else variable
    return None


def _not_unicode(value: Any, loc: Loc) -> Loc | None:
    # Python reads such text from an escape or a variable's bytes; JSON has no form for it.
    if isinstance(value, str):
        return None if value.isascii() or value.encode(errors="ignore").decode() == value else loc
    entries: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        if any(_not_unicode(key, loc) is not None for key in value):
            return loc
        entries = value.items()
    elif isinstance(value, list):
        entries = enumerate(value)
    found = (_not_unicode(below, (*loc, key)) for key, below in entries)
    return next((broken for broken in found if broken is not None), None)


def _read(path: Path) -> dict[str, Any]:
    source = path.name
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError(str(path), "", f"cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise SettingsError(source, "", f"larger than {MAX_FILE_BYTES} bytes: is it the right file?")
    try:
        document = parse(content)
    except PlainYamlError as error:
        raise SettingsError(source, error.where, error.problem) from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise SettingsError(source, "", "expected a mapping of keys such as broker, listeners and plugins")
    return document
