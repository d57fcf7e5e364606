"""The key of the hashes, read from its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.settings.errors import SettingsError
from receiver.settings.key_file import read_key


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_key_is_what_the_file_holds_but_for_its_last_newline(tmp_path: Path, end: bytes) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"\x00\xff" * 8 + end)
    assert read_key(file) == b"\x00\xff" * 8


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "holds 0 bytes, and a key has 16 at least"),
        (b"secret-of-15-by\n", "holds 15 bytes, and a key has 16 at least"),
        (b"x" * 65_537, "is larger than 65536 bytes"),
    ],
)
def test_what_is_no_key_is_refused_and_never_shown(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(SettingsError) as raised:
        read_key(file)
    assert str(raised.value).startswith(f"telemetry.privacy.key_file: {file}: {problem}")
    assert "secret" not in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"key_file: .*missing: cannot be read: No such file"):
        read_key(tmp_path / "missing")
