"""Proofs of one token at both ends (docs/bridge-protocol.md).

Pure. A token never travels: each end sends an HMAC over both ends' random numbers.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

#: A shorter token could be guessed.
MIN_TOKEN_CHARS: Final = 16

_MAX_TOKENS: Final = 16

#: The two ends, which make different proofs.
BRIDGE: Final = b"kafka-telemetry bridge 1\0"
RECEIVER: Final = b"kafka-telemetry receiver 1\0"


class TokenError(ValueError):
    """A file of tokens can't be used; the text has no bytes of it."""


def parse_tokens(content: bytes) -> tuple[bytes, ...]:
    """Read the tokens of a file, one a line, or raise TokenError."""
    tokens = tuple(line.strip() for line in content.splitlines() if line.strip())
    if not tokens:
        raise TokenError("is empty; make a token with `openssl rand -hex 32`")
    if len(tokens) > _MAX_TOKENS:
        raise TokenError(f"has more than {_MAX_TOKENS} tokens")
    if any(len(token) < MIN_TOKEN_CHARS for token in tokens):
        raise TokenError(
            f"has a token of fewer than {MIN_TOKEN_CHARS} characters; make one with `openssl rand -hex 32`"
        )
    if any(len(token.split()) > 1 for token in tokens):
        raise TokenError("has a blank inside a token; write one token a line")
    return tokens


def proof(token: bytes, end: bytes, hello: bytes, challenge: bytes) -> bytes:
    """Return one end's proof: an HMAC-SHA256 over its name, Hello and Challenge."""
    return hmac.digest(token, end + hello + challenge, hashlib.sha256)


def find_token(tokens: Sequence[bytes], shown: bytes, hello: bytes, challenge: bytes) -> bytes | None:
    """Return the token that a bridge has proven to have, or None."""
    found = None
    # Compare with every token, because the time must not reveal which one matched.
    for token in tokens:
        if hmac.compare_digest(proof(token, BRIDGE, hello, challenge), shown):
            found = token
    return found
