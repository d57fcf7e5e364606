"""CreateDelegationToken responses compared with kio, which lacks v0 (the same bytes as v1)."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer
from kio.static.primitive import i32Timedelta

from receiver.wire import k38_create_delegation_token
from receiver.wire.errors import WireError
from receiver.wire.k38_create_delegation_token import SUPPORTED_VERSIONS, DelegationToken
from receiver.wire.primitives import Reader

WHEN = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
ALICE = DelegationToken(token_id="q3Rk", principal_type="User", principal_name="Älice, CN=x")


def created(version: int, error_code: KioErrorCode = KioErrorCode.none) -> bytes:
    """Return a response written by kio; bob is the requester in versions that have one."""
    module: Any = importlib.import_module(f"kio.schema.create_delegation_token.v{max(1, version)}.response")
    kind = module.CreateDelegationTokenResponse
    everything = {
        "error_code": error_code,
        "principal_type": ALICE.principal_type,
        "principal_name": ALICE.principal_name,
        "token_requester_principal_type": "User",
        "token_requester_principal_name": "bob",
        "issue_timestamp": WHEN,
        "expiry_timestamp": WHEN,
        "max_timestamp": WHEN,
        "token_id": ALICE.token_id,
        "hmac": b"a secret" * 8,
        "throttle_time": i32Timedelta.parse(datetime.timedelta(0)),
    }
    names = {field.name for field in dataclasses.fields(kind)}
    buffer = io.BytesIO()
    entity_writer(kind)(buffer, kind(**{name: everything[name] for name in names}))
    return buffer.getvalue()


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_the_owner_is_read_and_not_the_requester(version: int) -> None:
    assert k38_create_delegation_token.decode_response(Reader(created(version)), version) == ALICE


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_an_error_response_has_no_token(version: int) -> None:
    refused = created(version, KioErrorCode.delegation_token_request_not_allowed)
    assert k38_create_delegation_token.decode_response(Reader(refused), version) is None


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_a_truncated_response_is_an_error_without_secrets(version: int) -> None:
    data = created(version)
    needed = data.index(b"a secret") + 64
    for length in range(needed):
        with pytest.raises(WireError) as caught:
            k38_create_delegation_token.decode_response(Reader(data[:length]), version)
        assert "secret" not in str(caught.value)
    assert k38_create_delegation_token.decode_response(Reader(data[:needed]), version) == ALICE


def test_the_text_of_a_token_has_no_secret() -> None:
    assert "secret" not in repr(k38_create_delegation_token.decode_response(Reader(created(3)), 3))


@pytest.mark.parametrize("version", [-1, 4])
def test_an_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match=f"version {version} is not one of 0 to 3"):
        k38_create_delegation_token.decode_response(Reader(created(3)), version)
