"""CreateDelegationToken, API key 38: only as much of the answer as tells whose the new token is (KIP-48).

What the versions changed, as far as that goes:

- 0 and 1: the same bytes.
- 2: flexible (KIP-482).
- 3: the response names the requester too, who may make a token for somebody else (KIP-373).

This module owns the bytes of a token as this response has it and each item of DescribeDelegationToken's. It
must not keep a token's HMAC, which is a password.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from receiver.wire import api_keys
from receiver.wire.api_keys import check_version
from receiver.wire.error_codes import ErrorCode
from receiver.wire.primitives import Reader

__all__ = ["FIRST_FLEXIBLE", "SUPPORTED_VERSIONS", "DelegationToken", "decode_response", "decode_token"]

#: The versions that this module reads.
SUPPORTED_VERSIONS: Final = range(4)

#: Of this message and of DescribeDelegationToken.
FIRST_FLEXIBLE: Final = 2

_FIRST_WITH_REQUESTER = 3

_TIMESTAMPS = Struct(">qqq")


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A delegation token, without what it takes to log in with it.

    Attributes:
        token_id: Its id, which is the user name of whoever logs in with it.
        principal_type: The type of its owner's principal, ``User``.
        principal_name: The name of its owner's principal.
    """

    token_id: str
    principal_type: str
    principal_name: str


def decode_response(reader: Reader, version: int) -> DelegationToken | None:
    """Read a response's body as far as the token; what follows it is left unread.

    Args:
        reader: At the body.
        version: The request's API version, one of :data:`SUPPORTED_VERSIONS`.

    Returns:
        The token; None where the broker made none.

    Raises:
        WireError: The bytes are no such body.
        ValueError: The version is not supported.

    Source: KIP-48, KIP-373.
    """
    check_version(api_keys.CREATE_DELEGATION_TOKEN, version, SUPPORTED_VERSIONS)
    if reader.int16("ErrorCode") != ErrorCode.NONE:
        return None
    return decode_token(reader, version)


def decode_token(reader: Reader, version: int) -> DelegationToken:
    """Read a token from its owner to its HMAC, over which it goes without a copy.

    Args:
        reader: At the owner's principal type.
        version: The request's API version, one of :data:`SUPPORTED_VERSIONS`.

    Raises:
        WireError: The bytes are no token.

    Source: KIP-48, KIP-373.
    """
    flexible = version >= FIRST_FLEXIBLE
    string = reader.compact_string if flexible else reader.string
    principal_type, principal_name = string("PrincipalType"), string("PrincipalName")
    if version >= _FIRST_WITH_REQUESTER:
        string("TokenRequesterPrincipalType")
        string("TokenRequesterPrincipalName")
    reader.fixed(_TIMESTAMPS, "IssueTimestamp, ExpiryTimestamp and MaxTimestamp")
    token_id = string("TokenId")
    (reader.compact_bytes_view if flexible else reader.bytes_view)("Hmac")
    return DelegationToken(token_id=token_id, principal_type=principal_type, principal_name=principal_name)
