"""Host names and addresses, as text in settings.

Pure: it resolves nothing.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

_MAX_NAME: Final = 253
_MAX_LABEL: Final = 63
_LABEL: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?")
_LOOKS_LIKE_IPV4: Final = re.compile(r"[0-9.]+")


def parse_host(text: str) -> str:
    """Return a host name or an address, checked; or raise ValueError with the fix.

    An IPv6 address is in brackets, and returned without them. A name has labels of 1 to 63 letters,
    digits, ``-`` and ``_``, and at most 253 characters (RFC 1035, section 2.3.4; ``_`` because
    Compose and Windows allow it). It may end with a dot.
    """
    if text.startswith("[") and text.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(text[1:-1]))
        except ValueError:
            raise ValueError(f"expected an IPv6 address in the brackets, for example [::1]: {text}") from None
    if ":" in text:
        raise ValueError(f"write an IPv6 address in brackets, for example [::1]: {text}")
    if not text:
        raise ValueError("the host is missing")
    if "$" in text or "{" in text or "}" in text:
        raise ValueError(f"variables such as {text} are not replaced here: write the host itself")
    if not text.isascii():
        raise ValueError(f"{text} is not ASCII: write the name in its xn-- form (IDNA)")
    if _LOOKS_LIKE_IPV4.fullmatch(text):
        try:
            return str(ipaddress.IPv4Address(text))
        except ValueError:
            raise ValueError(f"{text} is not an IPv4 address") from None
    for label in text.removesuffix(".").split("."):
        if not label:
            raise ValueError(f"{text} has an empty label: two dots in a row, or one at its begin")
        if len(label) > _MAX_LABEL:
            raise ValueError(f"{label} has {len(label)} characters, and a label has at most {_MAX_LABEL}")
        if not _LABEL.fullmatch(label):
            raise ValueError(f"{text} is not a host name: labels have letters, digits, - and _")
    if len(text) > _MAX_NAME:
        raise ValueError(f"{text} has {len(text)} characters, and a host name has at most {_MAX_NAME}")
    return text
