"""The key of the hashes, read from its file.

Owns the reading of ``telemetry.privacy.key_file``. It must never put any of the key into a message.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from receiver.settings.errors import SettingsError
from receiver.settings.meaning import PrivacySettings

__all__ = ["MIN_KEY_BYTES", "hash_key", "read_key"]

#: A key of fewer bytes could be guessed.
MIN_KEY_BYTES: Final = 16
# A larger file is a wrong path.
_MAX_KEY_BYTES: Final = 65_536

_KEY: Final = "telemetry.privacy.key_file"


def hash_key(privacy: PrivacySettings) -> bytes | None:
    """Read the key of the hashes where anything is hashed.

    Args:
        privacy: What is to be hashed, and the key's file.

    Raises:
        SettingsError: As :func:`read_key`.
    """
    return read_key(privacy.key_file) if privacy.hashes and privacy.key_file else None


def read_key(path: Path) -> bytes:
    """Read the key of the hashes.

    Args:
        path: The file: any bytes; one newline at its end is left out.

    Returns:
        The key, :data:`MIN_KEY_BYTES` bytes at least.

    Raises:
        SettingsError: The file cannot be read, or holds no such key; the message tells the file's name.
    """
    try:
        with path.open("rb") as file:
            key = file.read(_MAX_KEY_BYTES + 1)
    except OSError as error:
        raise SettingsError(_KEY, str(path), f"cannot be read: {error.strerror}") from None
    if len(key) > _MAX_KEY_BYTES:
        raise SettingsError(_KEY, str(path), f"is larger than {_MAX_KEY_BYTES} bytes, so it is no key")
    key = key.removesuffix(b"\n").removesuffix(b"\r")
    if len(key) < MIN_KEY_BYTES:
        raise SettingsError(
            _KEY,
            str(path),
            f"holds {len(key)} bytes, and a key has {MIN_KEY_BYTES} at least: "
            "head -c 32 /dev/urandom | base64 makes one",
        )
    return key
