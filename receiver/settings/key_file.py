"""Reads the key of keyed hashes from ``telemetry.privacy.key``.

No error shows any part of the key.
"""

from __future__ import annotations

from typing import Final

from receiver.settings.errors import SettingsError
from receiver.settings.metric_processing import PrivacySettings

#: A shorter key can be guessed.
MIN_KEY_BYTES: Final = 16
#: A larger file is a wrong path.
_MAX_KEY_BYTES: Final = 65_536

_SETTING: Final = "telemetry.privacy.key"


def hash_key(privacy: PrivacySettings) -> bytes | None:
    """Read the key, without a newline at its end, if anything is hashed."""
    if privacy.key is None or not privacy.hashes:
        return None
    path = privacy.key.file
    try:
        with path.open("rb") as file:
            key = file.read(_MAX_KEY_BYTES + 1)
    except OSError as error:
        raise SettingsError(_SETTING, str(path), f"cannot be read: {error.strerror}") from None
    if len(key) > _MAX_KEY_BYTES:
        raise SettingsError(_SETTING, str(path), f"is larger than {_MAX_KEY_BYTES} bytes, so it is not a key")
    key = key.removesuffix(b"\n").removesuffix(b"\r")
    if len(key) < MIN_KEY_BYTES:
        problem = f"has {len(key)} bytes, but a key needs at least {MIN_KEY_BYTES}: "
        fix = "create one with `head -c 32 /dev/urandom | base64`"
        raise SettingsError(_SETTING, str(path), problem + fix)
    return key
