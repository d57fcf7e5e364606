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

from receiver.settings.environment import merge, origin, unquoted
from receiver.settings.errors import SettingsError, key_text, problem_of
from receiver.settings.model import ReceiverSettings
from receiver.settings.plain_yaml import PlainYamlError, parse
from receiver.settings.schema import Loc

__all__ = ["MAX_FILE_BYTES", "load", "sourced"]

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
    merged = merge(document, environ, ReceiverSettings)
    broken = _not_unicode(merged, ())
    if broken is not None:
        problem = "not Unicode: half a character, or a byte that is not UTF-8"
        raise sourced(SettingsError("", key_text(broken), problem, loc=broken), path, environ)
    try:
        # Strictly, as JSON: lists become tuples and texts paths, but "1" is no integer and true is no 1.
        return ReceiverSettings.model_validate_json(json.dumps(merged), strict=True)
    except ValidationError as error:
        found = problem_of(error, ReceiverSettings)
        wrong = SettingsError("", key_text(found.loc), found.text, found.value, found.loc)
        raise sourced(wrong, path, environ) from None


def sourced(error: SettingsError, path: Path | None, environ: Mapping[str, str]) -> SettingsError:
    """Name the file or the variable that a wrong setting came from.

    Args:
        error: What is wrong; returned as it is if it names its source.
        path: The file that was loaded.
        environ: What was loaded over it.

    Returns:
        The error to show.
    """
    if error.source:
        return error
    found = origin(error.loc, environ)
    if found is None:
        source = path.name if path is not None else "environment"
        return SettingsError(source, error.key, error.problem, error.value)
    variable, rest = found
    if rest:
        return SettingsError("environment", f"{variable}: {key_text(rest)}", error.problem, error.value)
    problem = error.problem
    if problem.startswith("expected text") and unquoted(environ[variable]):
        # Without the value, which may be a secret's.
        problem += f"; to give it as text, put it in double quotes inside the shell's: {variable}='\"...\"'"
    return SettingsError("environment", variable, problem, error.value)


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
