"""DescribeDelegationToken responses compared with kio, which lacks v0 (the same bytes as v1)."""

from __future__ import annotations

import datetime
import importlib
import io
import struct
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer
from kio.static.primitive import i32Timedelta, i64

from receiver.wire import k41_describe_delegation_token
from receiver.wire.errors import WireError
from receiver.wire.k38_create_delegation_token import DelegationToken
from receiver.wire.k41_describe_delegation_token import SUPPORTED_VERSIONS
from receiver.wire.primitives import Reader

TOKENS = (
    DelegationToken(token_id="q3Rk", principal_type="User", principal_name="alice"),
    DelegationToken(token_id="x-_0", principal_type="User", principal_name="böb"),
)


def described(version: int, error_code: KioErrorCode = KioErrorCode.none) -> bytes:
    """Return a response written by kio; each token has another number of renewers."""
    module: Any = importlib.import_module(f"kio.schema.describe_delegation_token.v{max(1, version)}.response")
    requester = {"token_requester_principal_type": "User", "token_requester_principal_name": "root"}
    answer = module.DescribeDelegationTokenResponse(
        error_code=error_code,
        tokens=tuple(
            module.DescribedDelegationToken(
                principal_type=token.principal_type,
                principal_name=token.principal_name,
                **(requester if version >= 3 else {}),
                issue_timestamp=i64(1),
                expiry_timestamp=i64(2),
                max_timestamp=i64(3),
                token_id=token.token_id,
                hmac=b"a secret" * 8,
                renewers=(
                    module.DescribedDelegationTokenRenewer(principal_type="User", principal_name="carol"),
                )
                * renewers,
            )
            for renewers, token in enumerate(TOKENS)
        ),
        throttle_time=i32Timedelta.parse(datetime.timedelta(0)),
    )
    buffer = io.BytesIO()
    entity_writer(type(answer))(buffer, answer)
    return buffer.getvalue()


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_the_owners_are_read_and_not_requesters_or_renewers(version: int) -> None:
    assert k41_describe_delegation_token.decode_response(Reader(described(version)), version) == TOKENS


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_an_error_response_has_no_token(version: int) -> None:
    refused = described(version, KioErrorCode.delegation_token_auth_disabled)
    assert k41_describe_delegation_token.decode_response(Reader(refused), version) == ()


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_a_truncated_response_is_an_error_without_secrets(version: int) -> None:
    data = described(version)
    behind_the_tokens = 4 + (version >= 2)
    for length in range(len(data) - behind_the_tokens):
        with pytest.raises(WireError) as caught:
            k41_describe_delegation_token.decode_response(Reader(data[:length]), version)
        assert "secret" not in str(caught.value)


def test_an_impossible_count_of_tokens_is_an_error() -> None:
    with pytest.raises(WireError, match="Tokens"):
        k41_describe_delegation_token.decode_response(Reader(struct.pack(">hi", 0, 1 << 30) + bytes(1000)), 1)


@pytest.mark.parametrize(
    ("version", "count", "token", "renewer"),
    [
        (1, "00000032", "0000 0000" + "00" * 24 + "0000 00000000 00000032", "0000 0000"),
        (2, "33", "01 01" + "00" * 24 + "01 01 33", "01 01 00"),
    ],
)
def test_the_shortest_tokens_and_renewers_are_read(
    version: int, count: str, token: str, renewer: str
) -> None:
    flexible = version >= 2
    body = bytes.fromhex("0000" + count + (token + renewer * 50 + "00" * flexible) * 50)
    empty = DelegationToken(token_id="", principal_type="", principal_name="")
    assert k41_describe_delegation_token.decode_response(Reader(body), version) == (empty,) * 50


@pytest.mark.parametrize("version", [-1, 4])
def test_an_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match=f"version {version} is not one of 0 to 3"):
        k41_describe_delegation_token.decode_response(Reader(described(3)), version)
