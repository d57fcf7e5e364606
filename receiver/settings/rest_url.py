"""The URL of another program's REST API."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from receiver.hosts import parse_host
from receiver.settings.base import KeyMistakeError

#: Its form, for the JSON schema.
REST_URL_SCHEMA: Final = {"type": "string", "pattern": "^https?://[^/?#@]+/?$"}


def checked_rest_url(text: Any, expected: str, token_key: str) -> str:
    """Return a URL of scheme, host and port.

    Args:
        expected: What an error says instead.
        token_key: The key that holds what a URL must not.

    Raises:
        ValueError: It is none.
    """
    if not isinstance(text, str):
        raise ValueError(expected)
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ValueError(expected) from None
    if parts.scheme not in ("http", "https") or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(expected)
    if parts.username is not None or parts.password is not None:
        # Named as a key, because an error shows the values of keys that there are.
        raise KeyMistakeError(f"a URL must not hold a password: set {token_key}; {expected}", "password")
    try:
        host, _ = parts.hostname or "", parts.port  # a wrong port raises
    except ValueError:
        raise ValueError(f"the port must be a number up to 65535; {expected}") from None
    try:
        parse_host(f"[{host}]" if ":" in host else host)
    except ValueError as error:
        raise ValueError(f"{error}; {expected}") from None
    return f"{parts.scheme}://{parts.netloc}"
