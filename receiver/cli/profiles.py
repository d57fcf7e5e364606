"""The sidecars that a command asks: ``--url``, named profiles, or the default.

Profiles are in a YAML file of the user (XDG Base Directory Specification), by the clusters' names::

    defaults: {token_file: ops.token, ca_file: ca.pem}
    profiles:
      prod-eu: {url: "https://telemetry.prod-eu:8642"}
      prod-us: {url: "https://telemetry.prod-us:8642", token_file: prod-us.token}
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from receiver.patterns import compile_pattern
from receiver.settings.errors import settings_errors
from spark_streaming import plain_yaml
from spark_streaming.files import FileError, MissingFileError
from spark_streaming.plain_yaml import PlainYamlError

DEFAULT_URL: Final = "http://127.0.0.1:8642"
URL_VARIABLE: Final = "KAFKA_TELEMETRY_URL"
PROFILE_VARIABLE: Final = "KAFKA_TELEMETRY_PROFILE"

_SHOWN: Final = 10


class ProfileError(Exception):
    """The profiles can't be used.

    The text names file, field, value and fix, a line for each mistake.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A sidecar to ask."""

    name: str
    """The profile's name, or host and port of the URL."""
    url: str
    token_file: Path | None = None
    ca_file: Path | None = None
    client_certificate: Path | None = None
    """PEM file with the certificate to show."""
    client_key: Path | None = None
    """PEM file with its private key."""


class _Access(BaseModel):
    """How to reach a sidecar."""

    model_config = ConfigDict(extra="forbid", strict=True)

    token_file: Path | None = None
    ca_file: Path | None = None
    client_certificate: Path | None = None
    client_key: Path | None = None


class _Profile(_Access):
    """A named sidecar."""

    url: str

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        problem = url_problem(url)
        if problem is not None:
            raise ValueError(problem)
        return url


class _Profiles(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    defaults: _Access = Field(default_factory=_Access)
    profiles: dict[str, _Profile] = Field(default_factory=dict)


def url_problem(url: str) -> str | None:
    """Return why a text is not the URL of a REST API; None if it is one."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL("")
    if parsed.scheme in {"http", "https"} and parsed.host:
        return None
    return f"not a URL such as {DEFAULT_URL}"


def profiles_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the file, whether it exists or not."""
    folder = environ.get("XDG_CONFIG_HOME", "")
    # The specification ignores a path that is not absolute.
    base = Path(folder) if Path(folder).is_absolute() else Path("~/.config").expanduser()
    return base / "kafka-telemetry" / "profiles.yaml"


def targets(
    urls: Sequence[str], profiles: Sequence[str], given: Target, environ: Mapping[str, str]
) -> list[Target]:
    """Return the sidecars to ask, without repeats.

    Args:
        profiles: Those of ``--profile``: names, or patterns (RE2) of whole names.
        given: The files of other options; they take precedence over those of a profile.
        environ: The environment variables, which count if neither is given.

    Raises:
        ProfileError: The file is wrong, or has no such profile.
    """
    if not urls and not profiles:
        urls = environ.get(URL_VARIABLE, "").split()
        profiles = [] if urls else environ.get(PROFILE_VARIABLE, "").split()
    if not urls and not profiles:
        urls = [DEFAULT_URL]
    found = [replace(given, url=url, name=_name_of(url)) for url in dict.fromkeys(urls)]
    if profiles:
        found += [_over(given, target) for target in _chosen(profiles, environ)]
    return found


def profile_names(environ: Mapping[str, str]) -> list[str]:
    """Return the names of all profiles; raise ProfileError if the file is wrong."""
    return [target.name for target in _read(profiles_file(environ))]


def _chosen(wanted: Sequence[str], environ: Mapping[str, str]) -> list[Target]:
    file = profiles_file(environ)
    known = _read(file)
    chosen: dict[str, Target] = {}
    for pattern in wanted:
        matching = [target for target in known if _matches(pattern, target.name)]
        if not matching:
            raise ProfileError(f"--profile {pattern}: {_no_such(pattern, known, file)}")
        chosen |= {target.name: target for target in matching}
    return list(chosen.values())


def _matches(pattern: str, name: str) -> bool:
    if name == pattern:
        return True
    try:
        return compile_pattern(pattern).fullmatch(name.encode()) is not None
    except ValueError as error:
        raise ProfileError(f"--profile {pattern}: is no regular expression (RE2): {error}") from None


def _no_such(pattern: str, known: Sequence[Target], file: Path) -> str:
    if not known:
        return f"{file} has no profiles: write profiles: {{{pattern}: {{url: ...}}}} there, or give --url"
    names = [target.name for target in known]
    close = difflib.get_close_matches(pattern, names, n=1)
    if close:
        return f"is not in {file}; did you mean {close[0]}?"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"is not in {file}; known are {', '.join(names[:_SHOWN])}{more}"


def _read(file: Path) -> list[Target]:
    try:
        document = plain_yaml.read(file)
        if document is not None and not isinstance(document, dict):
            raise PlainYamlError("", "expected the keys defaults and profiles")
        read = _Profiles.model_validate_json(json.dumps(document or {}))
    except MissingFileError:
        return []
    except (FileError, PlainYamlError) as error:
        raise ProfileError(f"{file}: {error}") from None
    except ValidationError as error:
        lines = [f"{file}: {mistake}" for mistake in settings_errors(error, _Profiles)]
        raise ProfileError("\n".join(lines)) from None
    return [
        Target(name=name, url=profile.url, **_files(file.parent, read.defaults, profile))
        for name, profile in read.profiles.items()
    ]


def _files(folder: Path, defaults: _Access, profile: _Profile) -> dict[str, Path | None]:
    """Return the files of a profile; paths are relative to the folder of the profiles."""
    found: dict[str, Path | None] = {}
    for field in _Access.model_fields:
        path = getattr(profile, field) or getattr(defaults, field)
        found[field] = None if path is None else folder / path.expanduser()
    return found


def _over(given: Target, profile: Target) -> Target:
    return replace(
        profile,
        **{field: path for field in _Access.model_fields if (path := getattr(given, field)) is not None},
    )


def _name_of(url: str) -> str:
    return url.partition("://")[2].rstrip("/") or url
