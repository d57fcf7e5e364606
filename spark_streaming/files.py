"""Reads files whole, up to a bound: configurations, secrets and tokens.

The receiver reads its files here too. No error shows a file's content.
"""

from __future__ import annotations

import hashlib
import re
import stat
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from spark_streaming.system_errors import reason_of

#: A larger configuration is a wrong path, because it is written by hand.
MAX_CONFIGURATION_BYTES: Final = 1_048_576
#: A larger secret is a wrong path.
MAX_SECRET_BYTES: Final = 65_536
#: A larger file of tokens is a wrong path.
MAX_TOKEN_BYTES: Final = 4096

#: RFC 6750, section 2.1. A token of fewer than 16 characters can be guessed.
_OWN_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]{16,}=*")
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")

#: Identifies a state of a file; None: it can't be found.
Stamp: TypeAlias = tuple[int, ...] | None


class FileError(ValueError):
    """A file can't be used; the text is the reason, and follows the file's name."""


class MissingFileError(FileError):
    """There is no such file."""


def read_bounded(file: Path, max_bytes: int) -> bytes:
    """Read a file whole; raise FileError if it can't be read, or has more bytes."""
    try:
        with file.open("rb") as opened:
            return read_stream(opened, max_bytes)
    except FileNotFoundError as error:
        raise MissingFileError(f"cannot be read: {reason_of(error)}") from None
    except OSError as error:
        raise FileError(f"cannot be read: {reason_of(error)}") from None


def read_stream(stream: BinaryIO, max_bytes: int) -> bytes:
    """Read a stream to its end; raise FileError if it has more bytes."""
    content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise FileError(f"is larger than {max_bytes} bytes: check that it is the right file")
    return content


def read_secret(file: Path) -> str:
    """Read the text of a file, without one newline at its end.

    Raises:
        FileError: It can't be read, is too large, is no UTF-8, or is empty.
    """
    try:
        text = read_bounded(file, MAX_SECRET_BYTES).decode()
    except UnicodeDecodeError:
        raise FileError("is not UTF-8 text") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise FileError("is empty")
    return text


def read_token(file: Path) -> str:
    """Read a token to show to another program: visible ASCII characters.

    Raises:
        FileError: It can't be read, or holds no token.
    """
    return one_token(read_secret(file))


def one_token(text: str) -> str:
    """Return the token of a text that holds nothing else, or raise :class:`FileError`."""
    token = text.strip()
    if not _TOKEN.fullmatch(token):
        raise FileError("expected one token, without blanks")
    return token


def token_digest(file: Path) -> bytes:
    """Return the SHA-256 of a file's token, which callers have to show.

    Raises:
        FileError: It can't be read, or holds no token that is hard to guess.
    """
    try:
        is_regular = stat.S_ISREG(file.stat().st_mode)
    except OSError as error:
        raise FileError(f"cannot be read: {reason_of(error)}") from None
    if not is_regular:
        raise FileError("is not a regular file")  # a pipe would block
    token = read_bounded(file, MAX_TOKEN_BYTES).strip()
    if not _OWN_TOKEN.fullmatch(token):
        raise FileError(
            "expected one token: at least 16 letters, digits or any of ._~+/-, for example from "
            "`kafka-telemetry token new`"
        )
    return hashlib.sha256(token).digest()


def stamp(file: Path) -> Stamp:
    """Return what changes when a file is changed or replaced. It follows links."""
    try:
        status = file.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
