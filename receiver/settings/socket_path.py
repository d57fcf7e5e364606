"""The type of Unix sockets in settings: ``unix:/path``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from receiver.settings.hostport import HostPort

PREFIX: Final = "unix:"

#: Linux takes 107 bytes, and a socket has a longer name until it listens.
_MAX_BYTES: Final = 95


@dataclass(frozen=True, slots=True)
class SocketPath:
    """The file of a Unix socket to listen on."""

    path: Path

    @classmethod
    def parse(cls, text: str) -> SocketPath:
        """Parse ``unix:/path``, or raise ValueError."""
        path = text.removeprefix(PREFIX)
        if path == text or not path.startswith("/"):
            raise ValueError("expected unix: and an absolute path, for example unix:/run/bridge.sock")
        if len(path.encode()) > _MAX_BYTES or "\0" in path:
            raise ValueError(f"the path of a Unix socket has at most {_MAX_BYTES} bytes")
        return cls(Path(path))

    def __str__(self) -> str:
        return f"{PREFIX}{self.path}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate from text or from a ``SocketPath``, and serialise as text."""
        return core_schema.no_info_plain_validator_function(
            cls._validate, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the form of the text; :meth:`parse` checks more."""
        return {"type": "string", "pattern": "^unix:/.+$"}

    @classmethod
    def _validate(cls, value: Any) -> SocketPath:
        if isinstance(value, cls):
            return value
        if not isinstance(value, str):
            raise ValueError(f"expected {PREFIX}/path")
        return cls.parse(value)


#: Where something listens.
Bind: TypeAlias = HostPort | SocketPath


def parse_bind(text: str) -> Bind:
    """Parse the text of either, or raise ValueError."""
    return SocketPath.parse(text) if text.startswith(PREFIX) else HostPort.parse(text)
