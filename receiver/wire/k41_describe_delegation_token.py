"""DescribeDelegationToken (API key 41): the owners of delegation tokens (KIP-48).

Versions, as far as the owners are concerned:

- 0 and 1: the same bytes.
- 2: flexible (KIP-482).
- 3: the response also names each token's requester (KIP-373).

A token's HMAC is a password and must not be kept.
"""

from __future__ import annotations

from typing import Final

from receiver.wire import api_keys
from receiver.wire.api_keys import check_version
from receiver.wire.error_codes import ErrorCode
from receiver.wire.k38_create_delegation_token import FIRST_FLEXIBLE, DelegationToken, decode_token
from receiver.wire.primitives import Reader

#: The versions that this module reads.
SUPPORTED_VERSIONS: Final = range(4)

#: Two empty strings, three timestamps, an empty id and HMAC, and no renewers, in the compact form.
_LEAST_TOKEN: Final = 2 + 3 * 8 + 2 + 1


def decode_response(reader: Reader, version: int) -> tuple[DelegationToken, ...]:
    """Read the tokens of a response body; none if the response has an error.

    The bytes after the last token stay unread.
    """
    check_version(api_keys.DESCRIBE_DELEGATION_TOKEN, version, SUPPORTED_VERSIONS)
    if reader.int16("ErrorCode") != ErrorCode.NONE:
        return ()
    array_length = reader.compact_array_length if version >= FIRST_FLEXIBLE else reader.array_length
    count = array_length("Tokens", item_size=_LEAST_TOKEN)
    return tuple([_described(reader, version) for _ in range(count)])


def _described(reader: Reader, version: int) -> DelegationToken:
    token = decode_token(reader, version)
    if version >= FIRST_FLEXIBLE:
        for _ in range(reader.compact_array_length("Renewers", item_size=3)):
            reader.compact_string("PrincipalType")
            reader.compact_string("PrincipalName")
            reader.tagged_fields("DescribedDelegationTokenRenewer's tagged fields")
        reader.tagged_fields("DescribedDelegationToken's tagged fields")
    else:
        for _ in range(reader.array_length("Renewers", item_size=4)):
            reader.string("PrincipalType")
            reader.string("PrincipalName")
    return token
