"""Reads Kafka's message definitions from the jar of its clients."""

from __future__ import annotations

import functools
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.testbed import parts

_FOLDER: Final = "common/message/"
_COMMENT_LINE: Final = re.compile(r"^\s*//.*$", re.MULTILINE)
_VERSIONS: Final = re.compile(r"(\d+)(?:-(\d+)|(\+))?")
_LATEST: Final = 32_767


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Field:
    """A field of a message.

    Attributes:
        name: Its name.
        kind: Its type without ``[]``: a primitive's name, or ``struct``.
        is_array: Whether it is an array.
        versions: The versions that have it.
        nullable: The versions in which it may be null.
        tag: Its tag; None if it is no tagged field.
        tagged: The versions in which it is tagged.
        entity: What it names, such as ``topicName``; empty if the definition does not say.
        default: Its default as written; None if there is none.
        struct: The fields of a ``struct``.
    """

    name: str
    kind: str
    is_array: bool
    versions: range
    nullable: range
    tag: int | None
    tagged: range
    entity: str
    default: str | None
    struct: Struct | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Struct:
    """Fields in their order."""

    fields: tuple[Field, ...]

    def of(self, version: int) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
        """Return the plain and the tagged fields of a version."""
        return _of(self, version)


@functools.cache
def _of(struct: Struct, version: int) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
    present = [field for field in struct.fields if version in field.versions]
    tagged = tuple(field for field in present if version in field.tagged)
    return tuple(field for field in present if version not in field.tagged), tagged


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """An RPC.

    Attributes:
        key: Its API key.
        name: Its name, without ``Request``.
        versions: The versions that are stable.
        flexible: The versions with compact types and tagged fields.
        request: The request's body.
        response: The response's body.
    """

    key: int
    name: str
    versions: range
    flexible: range
    request: Struct
    response: Struct


def load(jar: Path | None = None) -> Mapping[int, Api]:
    """Return all RPCs by API key.

    Args:
        jar: The jar of Kafka's clients; None: the testbed's.

    Raises:
        NotSetUpError: The testbed lacks Kafka.
    """
    return _load(jar or _clients_jar())


@functools.cache
def _load(jar: Path) -> Mapping[int, Api]:
    requests: dict[int, dict[str, Any]] = {}
    responses: dict[int, dict[str, Any]] = {}
    for message in _messages(jar):
        if message["type"] in ("request", "response") and message["validVersions"] != "none":
            (requests if message["type"] == "request" else responses)[message["apiKey"]] = message
    return {key: _api(request, responses[key]) for key, request in sorted(requests.items())}


def _clients_jar() -> Path:
    (jar,) = (parts.KAFKA.require() / "jars").glob(f"kafka-clients-{parts.KAFKA_VERSION}.jar")
    return jar


def _messages(jar: Path) -> Iterator[dict[str, Any]]:
    with zipfile.ZipFile(jar) as files:
        for name in files.namelist():
            if name.startswith(_FOLDER) and name.endswith(".json"):
                yield json.loads(_COMMENT_LINE.sub("", files.read(name).decode()))


def _api(request: dict[str, Any], response: dict[str, Any]) -> Api:
    versions = _versions(request["validVersions"])
    return Api(
        key=request["apiKey"],
        name=request["name"].removesuffix("Request"),
        versions=versions[:-1] if request.get("latestVersionUnstable") else versions,
        flexible=_versions(request["flexibleVersions"]),
        request=_struct(request["fields"], _commons(request)),
        response=_struct(response["fields"], _commons(response)),
    )


def _commons(message: dict[str, Any]) -> dict[str, Any]:
    return {common["name"]: common["fields"] for common in message.get("commonStructs", ())}


def _struct(fields: list[dict[str, Any]], commons: dict[str, Any]) -> Struct:
    return Struct(fields=tuple(_field(field, commons) for field in fields))


def _field(text: dict[str, Any], commons: dict[str, Any]) -> Field:
    kind = text["type"].removeprefix("[]")
    is_struct = kind[0].isupper()
    default = text.get("default")
    return Field(
        name=text["name"],
        kind="struct" if is_struct else kind,
        is_array=text["type"].startswith("[]"),
        versions=_versions(text["versions"]),
        nullable=_versions(text.get("nullableVersions", "none")),
        tag=text.get("tag"),
        tagged=_versions(text.get("taggedVersions", "none")),
        entity=text.get("entityType", ""),
        default=None if default is None else str(default),
        struct=_struct(text.get("fields") or commons[kind], commons) if is_struct else None,
    )


def _versions(text: str) -> range:
    """Return the versions of ``3``, ``3-5``, ``3+`` or ``none``."""
    if text == "none":
        return range(0)
    found = _VERSIONS.fullmatch(text)
    if found is None:
        raise ValueError(f"versions {text!r} are none of 3, 3-5, 3+ and none")
    first, last, open_end = found.groups()
    return range(int(first), (_LATEST if open_end else int(last or first)) + 1)
