"""Authentication: tokens in the configuration and in files, compared in constant time."""

import hashlib
import hmac
import os
from pathlib import Path
from typing import Any

import pytest
import structlog

from receiver.api.authentication import Authenticator, Caller, Refusal
from receiver.api.errors import ServerError
from receiver.settings.rest import RestSettings
from tests.unit.api.conftest import EDITOR_TOKEN, VIEWER_TOKEN, Clock, token_settings

VERA = Caller(name="vera", role="viewer", authenticated_by="token")
ED = Caller(name="ed", role="editor", authenticated_by="token")


def file_settings(*files: Path) -> RestSettings:
    tokens = [{"name": f.name, "role": "viewer", "file": str(f)} for f in files]
    return RestSettings.model_validate({"tokens": tokens})


def shown(authenticator: Authenticator, token: str) -> Caller | Refusal:
    return authenticator.authenticate([f"Bearer {token}".encode()], None)


def test_tokens_of_the_configuration() -> None:
    authenticator = Authenticator(token_settings())
    assert shown(authenticator, VIEWER_TOKEN) == VERA
    assert shown(authenticator, EDITOR_TOKEN) == ED
    assert authenticator.authenticate([b"bEARER  " + EDITOR_TOKEN.encode()], None) == ED


@pytest.mark.parametrize(
    ("authorization", "reason"),
    [
        ([], Refusal.NO_CREDENTIALS),
        ([b""], Refusal.MALFORMED_CREDENTIALS),
        ([b"Bearer"], Refusal.MALFORMED_CREDENTIALS),
        ([b"Bearer "], Refusal.MALFORMED_CREDENTIALS),
        ([b"Basic " + EDITOR_TOKEN.encode()], Refusal.MALFORMED_CREDENTIALS),
        ([EDITOR_TOKEN.encode()], Refusal.MALFORMED_CREDENTIALS),
        ([b"Bearer " + EDITOR_TOKEN.encode()] * 2, Refusal.MALFORMED_CREDENTIALS),
        ([b"Bearer " + EDITOR_TOKEN.encode()[:-1]], Refusal.UNKNOWN_TOKEN),
        ([b"Bearer " + EDITOR_TOKEN.encode() + b"x"], Refusal.UNKNOWN_TOKEN),
        ([b"Bearer " + EDITOR_TOKEN.upper().encode()], Refusal.UNKNOWN_TOKEN),
        ([b"Bearer " + hashlib.sha256(EDITOR_TOKEN.encode()).hexdigest().encode()], Refusal.UNKNOWN_TOKEN),
        ([b"Bearer \xff\x00"], Refusal.UNKNOWN_TOKEN),
    ],
)
def test_a_wrong_authorization_header_is_refused(authorization: list[bytes], reason: Refusal) -> None:
    assert Authenticator(token_settings()).authenticate(authorization, None) is reason


def test_every_token_is_compared_whichever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def noting(first: bytes, second: bytes) -> bool:
        compared.append((first, second))
        return real(first, second)

    monkeypatch.setattr(hmac, "compare_digest", noting)
    authenticator = Authenticator(token_settings())
    for token in (VIEWER_TOKEN, EDITOR_TOKEN, "neither"):
        compared.clear()
        shown(authenticator, token)
        digest = hashlib.sha256(token.encode()).digest()
        assert compared == [
            (digest, hashlib.sha256(item.encode()).digest()) for item in (VIEWER_TOKEN, EDITOR_TOKEN)
        ]


def test_without_tokens_and_clients_anybody_is_an_editor() -> None:
    anybody = Caller(name="anonymous", role="editor", authenticated_by="nothing")
    assert Authenticator(RestSettings()).authenticate([b"Bearer whatever"], None) == anybody


def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "token"
    file.write_text("the-first-token-of-all\n")
    authenticator = Authenticator(file_settings(file), clock)
    assert isinstance(shown(authenticator, "the-first-token-of-all"), Caller)
    file.with_name("new").write_text("the-second-token\n")
    file.with_name("new").replace(file)
    assert isinstance(shown(authenticator, "the-first-token-of-all"), Caller)  # the second is not over
    clock.now += 1.0
    assert shown(authenticator, "the-first-token-of-all") is Refusal.UNKNOWN_TOKEN
    assert isinstance(shown(authenticator, "the-second-token"), Caller)


def test_a_removed_token_file_revokes_the_token(tmp_path: Path) -> None:
    clock, file, other = Clock(), tmp_path / "token", tmp_path / "other"
    file.write_text("the-first-token-of-all")
    other.write_text("another-token-of-all")
    authenticator = Authenticator(file_settings(file, other), clock)
    for spoil in (file.unlink, lambda: file.write_text(""), lambda: file.write_text("two words of a token")):
        spoil()
        clock.now += 1.0
        with structlog.testing.capture_logs() as lines:
            assert shown(authenticator, "the-first-token-of-all") is Refusal.UNKNOWN_TOKEN
        assert shown(authenticator, "") is Refusal.MALFORMED_CREDENTIALS
        assert isinstance(shown(authenticator, "another-token-of-all"), Caller)
        assert "two words" not in str(lines)
    file.write_text("the-first-token-of-all")
    clock.now += 1.0
    assert isinstance(shown(authenticator, "the-first-token-of-all"), Caller)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        ("", "expected one token: at least 16 letters"),
        ("short", "expected one token: at least 16 letters"),
        ("a-token-that-has a blank", "expected one token: at least 16 letters"),
        ("one-token-of-two\none-token-of-two", "expected one token: at least 16 letters"),
        ("x" * 4097, "is larger than 4096 bytes"),
    ],
)
def test_a_token_file_without_a_token_stops_the_start(
    tmp_path: Path, content: str | None, problem: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ServerError) as caught:
        Authenticator(file_settings(file))
    assert str(caught.value).startswith(f"rest.tokens[0].file: {file}: {problem}")
    assert not content or content not in str(caught.value)


def test_a_named_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "token")
    with pytest.raises(ServerError, match="is not a regular file"):
        Authenticator(file_settings(tmp_path / "token"))


def test_no_token_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("the-first-token-of-all")
    authenticator = Authenticator(file_settings(file))
    shown(authenticator, "the-first-token-of-all")

    def reachable(value: Any, depth: int = 0) -> list[Any]:
        below = list(vars(value).values()) if hasattr(value, "__dict__") else []
        below += list(value) if isinstance(value, list | tuple | dict) else []
        return [value] + [item for b in below for item in reachable(b, depth + 1) if depth < 6]

    assert all("the-first-token" not in str(item) for item in reachable(authenticator))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"bind": "0.0.0.0:8642"}, "requires authentication"),
        ({"bind": "10.1.2.3:8642"}, "requires authentication"),
        ({"bind": "[::]:8642"}, "requires authentication"),
        (
            {"tokens": [{"name": n, "role": "viewer", "sha256": "0" * 64} for n in "ab"]},
            r"the same as tokens\[0\]",
        ),
        (
            {
                "tls": {"cert_file": "c", "key_file": "k", "client_ca_file": "a", "client_auth": "required"},
                "clients": [{"name": n, "role": "viewer", "subject": "CN=a"} for n in "ab"],
            },
            r"the same as clients\[0\].subject",
        ),
    ],
)
def test_refused_settings(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        RestSettings.model_validate(settings)
