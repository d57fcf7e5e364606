"""The key of keyed hashes, read from its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.settings.broker import SecretFileSettings
from receiver.settings.errors import SettingsError
from receiver.settings.key_file import hash_key
from receiver.settings.metric_processing import PrivacySettings


def privacy(file: Path) -> PrivacySettings:
    return PrivacySettings(pseudonymize=("principal",), key=SecretFileSettings(file=file))


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_key_is_the_content_without_its_last_newline(tmp_path: Path, end: bytes) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"\x00\xff" * 8 + end)
    assert hash_key(privacy(file)) == b"\x00\xff" * 8


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "has 0 bytes, but a key needs at least 16"),
        (b"secret-of-15-by\n", "has 15 bytes, but a key needs at least 16"),
        (b"x" * 65_537, "is larger than 65536 bytes"),
    ],
)
def test_a_wrong_key_is_refused_and_not_shown(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(SettingsError) as raised:
        hash_key(privacy(file))
    assert str(raised.value).startswith(f"telemetry.privacy.key: {file}: {problem}")
    assert "secret" not in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"privacy.key: .*missing: cannot be read: No such file"):
        hash_key(privacy(tmp_path / "missing"))


def test_the_file_is_not_read_where_nothing_is_hashed(tmp_path: Path) -> None:
    assert hash_key(PrivacySettings(key=SecretFileSettings(file=tmp_path / "missing"))) is None
