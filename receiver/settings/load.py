"""Loads the configuration: defaults, YAML file, environment variables.

pydantic-settings is not used (2.16 was tried). It ignores variables with the prefix that name no
setting, cannot set an element of a list (``LISTENERS__0__BIND``), reads numbers in texts, and its
errors do not tell whether a value came from the file or from a variable.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from receiver.settings.earlier_names import with_present_names
from receiver.settings.environment import merge, origin, reads_as_scalar
from receiver.settings.errors import SettingsError, settings_errors, together
from receiver.settings.model import ReceiverSettings
from spark_streaming import plain_yaml
from spark_streaming.files import FileError
from spark_streaming.plain_yaml import PlainYamlError, key_text, walk
from spark_streaming.units import with_units


def load(path: Path, environ: Mapping[str, str]) -> ReceiverSettings:
    """Load and validate the YAML file.

    Variables ``KAFKA_TELEMETRY_*`` override its keys.

    Raises:
        SettingsError: The file cannot be read, or a key, type or value is wrong. Its ``further``
            has the other mistakes.
    """
    merged = read_merged(path, environ)
    try:
        # Strict JSON mode accepts a list for a tuple and text for a path, but not "1" or true for
        # an integer.
        document = with_units(with_present_names(merged), ReceiverSettings)
        return ReceiverSettings.model_validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        errors = settings_errors(error, ReceiverSettings)
        raise together([sourced(problem, path, environ) for problem in errors]) from None


def read_merged(path: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the file's document with the variables over its keys, not validated.

    Raises:
        SettingsError: The file can't be read, or a variable names no setting.
    """
    merged = merge(_read(path), environ, ReceiverSettings)
    for loc, value in walk(merged):
        if not _is_unicode(value) or not all(map(_is_unicode, loc)):
            problem = "not Unicode: half of a surrogate pair, or a byte that is not UTF-8"
            raise sourced(SettingsError("", key_text(loc), problem, loc=loc), path, environ)
    return merged


def sourced(error: SettingsError, path: Path, environ: Mapping[str, str]) -> SettingsError:
    """Return the error with the file or variable that the setting came from."""
    if error.source:
        return error
    found = origin(error.loc, environ)
    if found is None:
        return SettingsError(path.name, error.key, error.problem, error.value, error.loc)
    variable, rest = found
    if rest:
        return SettingsError("environment", f"{variable}: {key_text(rest)}", error.problem, error.value)
    problem = error.problem
    if problem.startswith("expected text") and reads_as_scalar(environ[variable]):
        # Without the value, which may be a secret.
        problem += f"; to set it as text, add double quotes inside those of the shell: {variable}='\"...\"'"
    return SettingsError("environment", variable, problem, error.value)


def _is_unicode(value: Any) -> bool:
    # Python reads other text from an escape or from the bytes of a variable. JSON cannot represent
    # it.
    return not isinstance(value, str) or value.encode(errors="ignore").decode() == value


def _read(path: Path) -> dict[str, Any]:
    source = path.name
    try:
        document = plain_yaml.read(path)
    except FileError as error:
        raise SettingsError(str(path), "", str(error)) from None
    except PlainYamlError as error:
        raise SettingsError(source, error.where, error.problem) from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise SettingsError(source, "", "expected a mapping of keys such as broker, listeners and plugins")
    return document
