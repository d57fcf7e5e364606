"""CreateDelegationToken (API key 38): the owner of a new token (KIP-48).

Versions, as far as the owner is concerned:

- 0 and 1: the same bytes.
- 2: flexible (KIP-482).
- 3: the response also names the requester, who may create a token for another principal (KIP-373).

DescribeDelegationToken uses the same encoding for each token. A token's HMAC is a password and must
not be kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from receiver.wire import api_keys
from receiver.wire.api_keys import check_version
from receiver.wire.error_codes import ErrorCode
from receiver.wire.primitives import Reader

#: The versions that this module reads.
SUPPORTED_VERSIONS: Final = range(4)

#: The first flexible version of this message and of DescribeDelegationToken.
FIRST_FLEXIBLE: Final = 2

_FIRST_WITH_REQUESTER = 3

_TIMESTAMPS = Struct(">qqq")


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A delegation token without its HMAC."""

    token_id: str
    """The token's id, which is the user name of a login with it."""
    principal_type: str
    """Type of the owner's principal, ``User``."""
    principal_name: str
    """Name of the owner's principal."""


def decode_response(reader: Reader, version: int) -> DelegationToken | None:
    """Read the token of a response body; None if the response has an error.

    The bytes after the token stay unread.
    """
    check_version(api_keys.CREATE_DELEGATION_TOKEN, version, SUPPORTED_VERSIONS)
    if reader.int16("ErrorCode") != ErrorCode.NONE:
        return None
    return decode_token(reader, version)


def decode_token(reader: Reader, version: int) -> DelegationToken:
    """Read a token from its owner to its HMAC, which is skipped and not copied."""
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
