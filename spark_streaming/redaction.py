"""Removes secrets from texts that an operator reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: What stands in the place of a secret.
HIDDEN: Final = "**********"
#: Shorter values are no secrets, and would hide letters of words.
_MIN_CHARACTERS: Final = 4


def hide_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return the text with :data:`HIDDEN` in the place of each secret."""
    # The longest first, because one secret may contain another.
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _MIN_CHARACTERS:
            text = text.replace(secret, HIDDEN)
    return text
