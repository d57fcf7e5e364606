"""The versions in which each API was used on a connection, in a few bytes.

The first :data:`SEEN_KEYS` bytes have the lowest version of each API key, the others the highest,
each plus 1. 0: the API was not used. ``receiver/native/_speedups.c`` notes them too.
"""

from __future__ import annotations

from typing import Final

#: API keys whose versions are noted, from 0.
SEEN_KEYS: Final = 96

SEEN_BYTES: Final = 2 * SEEN_KEYS

#: A higher version is noted as this one; Kafka's highest is below 20.
_HIGHEST: Final = 253


def note_version(seen: memoryview, api_key: int, version: int) -> None:
    """Note the version of a request."""
    if 0 <= api_key < SEEN_KEYS:
        value = min(max(version, 0), _HIGHEST) + 1
        if not seen[api_key] or value < seen[api_key]:
            seen[api_key] = value
        if value > seen[SEEN_KEYS + api_key]:
            seen[SEEN_KEYS + api_key] = value


def versions(seen: bytes) -> dict[int, tuple[int, int]]:
    """Return the lowest and the highest version of each API key that was used."""
    return {key: (seen[key] - 1, seen[SEEN_KEYS + key] - 1) for key in range(SEEN_KEYS) if seen[key]}
