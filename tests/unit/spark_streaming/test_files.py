"""Files are read up to a bound, and no error shows their content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_streaming.files import (
    MAX_SECRET_BYTES,
    MAX_TOKEN_BYTES,
    FileError,
    MissingFileError,
    read_bounded,
    read_secret,
    read_token,
    token_digest,
)


def test_a_file_up_to_the_bound_is_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 10)
    assert read_bounded(file, 10) == b"x" * 10
    with pytest.raises(FileError, match=r"^is larger than 9 bytes: check that it is the right file$"):
        read_bounded(file, 9)
    with pytest.raises(MissingFileError, match=r"^cannot be read: No such file or directory$"):
        read_bounded(tmp_path / "absent", 9)
    with pytest.raises(FileError, match=r"^cannot be read: Is a directory$"):
        read_bounded(tmp_path, 9)


@pytest.mark.parametrize(
    ("read", "content", "result"),
    [
        (read_secret, b"a\nb \r\n", "a\nb "),
        (read_secret, b"x" * MAX_SECRET_BYTES, "x" * MAX_SECRET_BYTES),
        (read_token, b"\n a-token.of-16~~ \n\n", "a-token.of-16~~"),
        (token_digest, b" 0123456789abcdef=\n", hashlib.sha256(b"0123456789abcdef=").digest()),
    ],
)
def test_what_is_around_it_is_left_out(
    tmp_path: Path, read: Callable[[Path], Any], content: bytes, result: str | bytes
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert read(file) == result


@pytest.mark.parametrize(
    ("read", "content", "problem"),
    [
        (read_secret, b"\n", "is empty"),
        (read_secret, b"hunter2\xff", "is not UTF-8 text"),
        (read_secret, b"hunter2" * MAX_SECRET_BYTES, "is larger than 65536 bytes"),
        (read_token, b"hunter2 hunter2", "expected one token, without blanks"),
        (token_digest, b"hunter2", "expected one token: at least 16 letters"),
        (token_digest, b"hunter2" * MAX_TOKEN_BYTES, "is larger than 4096 bytes"),
        (token_digest, None, "cannot be read: No such file"),
    ],
)
def test_a_mistake_is_named_and_the_content_is_not(
    tmp_path: Path, read: Callable[[Path], Any], content: bytes | None, problem: str
) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(FileError) as caught:
        read(file)
    assert str(caught.value).startswith(problem)
    assert "hunter2" not in str(caught.value)


def test_a_pipe_holds_no_token(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="is not a regular file"):
        token_digest(tmp_path / "pipe")
