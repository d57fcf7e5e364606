"""The type of Unix sockets in settings: ``unix:/path``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from receiver.settings.hostport import HostPort
from receiver.settings.text_type import TextType

PREFIX: Final = "unix:"

#: Linux takes 107 bytes, and a socket has a longer name until it listens.
_MAX_BYTES: Final = 95


@dataclass(frozen=True, slots=True)
class SocketPath(TextType):
    """The file of a Unix socket to listen on."""

    EXPECTED = f"expected {PREFIX}/path"
    PATTERN = "^unix:/.+$"

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


#: Where something listens.
Bind: TypeAlias = HostPort | SocketPath


def parse_bind(text: str) -> Bind:
    """Parse the text of either, or raise ValueError."""
    return SocketPath.parse(text) if text.startswith(PREFIX) else HostPort.parse(text)
