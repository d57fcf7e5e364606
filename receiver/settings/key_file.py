"""Reads the key of keyed hashes from ``telemetry.privacy.key``.

No error shows any part of the key.
"""

from __future__ import annotations

from typing import Final

from receiver.settings.errors import SettingsError
from receiver.settings.metric_processing import PrivacySettings
from spark_streaming.files import MAX_SECRET_BYTES, FileError, read_bounded

#: A shorter key can be guessed.
MIN_KEY_BYTES: Final = 16

_SETTING: Final = "telemetry.privacy.key"


def hash_key(privacy: PrivacySettings) -> bytes | None:
    """Read the key, without a newline at its end, if anything is hashed."""
    if privacy.key is None or not privacy.hashes:
        return None
    path = privacy.key.file
    try:
        key = read_bounded(path, MAX_SECRET_BYTES)
    except FileError as error:
        raise SettingsError(_SETTING, str(path), str(error)) from None
    key = key.removesuffix(b"\n").removesuffix(b"\r")
    if len(key) < MIN_KEY_BYTES:
        problem = f"has {len(key)} bytes, but a key needs at least {MIN_KEY_BYTES}: "
        fix = "create one with `head -c 32 /dev/urandom | base64`"
        raise SettingsError(_SETTING, str(path), problem + fix)
    return key
