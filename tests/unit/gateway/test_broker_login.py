"""The sidecar's own login at the broker: what it sends, and how it fails."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scramp import ScramMechanism

from receiver.brokers.upstream import Upstream
from receiver.gateway.upstream.broker_login import BrokerLoginError, log_in
from receiver.settings.broker import BrokerLoginSettings
from receiver.wire import k36_sasl_authenticate
from receiver.wire.primitives import Reader
from tests.unit.gateway.support import on_loop

SECRET = "correct horse"
HANDSHAKE, AUTHENTICATE = 17, 36

#: Returns the broker's token to the client's, or an error code.
Server = Callable[[bytes], bytes | int]


class Broker:
    """A broker that only knows logins; it remembers what it was asked."""

    def __init__(self, server: Server, *, handshake_error: int = 0, highest: int = 2) -> None:
        self._server = server
        self._handshake_error = handshake_error
        self.upstream = Upstream()
        self.upstream.learn({AUTHENTICATE: (0, highest)})
        self.asked: list[tuple[int, int]] = []

    async def __call__(self, api_key: int, version: int, body: bytes) -> bytes:
        self.asked.append((api_key, version))
        if api_key == HANDSHAKE:
            return struct.pack(">hih", self._handshake_error, 1, 6) + b"GSSAPI"
        token = k36_sasl_authenticate.decode_request(Reader(body), version).auth_bytes
        answer = self._server(token)
        error, sent = (answer, b"") if isinstance(answer, int) else (0, answer)
        if version < 2:
            lifetime = bytes(8) if version else b""
            return struct.pack(">hhi", error, -1, len(sent)) + sent + lifetime
        writer = (
            bytes([len(sent) + 1])
            if len(sent) < 127
            else bytes([(len(sent) + 1) % 128 | 128, (len(sent) + 1) // 128])
        )
        return struct.pack(">hB", error, 0) + writer + sent + bytes(9)


def settings(tmp_path: Path, mechanism: str = "PLAIN", content: bytes = SECRET.encode() + b"\n") -> Any:
    file = tmp_path / "password"
    file.write_bytes(content)
    return BrokerLoginSettings.model_validate(
        {"mechanism": mechanism, "username": "sidecar", "password": {"file": str(file)}}
    )


def try_login(broker: Broker, login: BrokerLoginSettings) -> None:
    on_loop(log_in(broker, broker.upstream, login))


def scram(mechanism: str, password: str, *, forge: bool = False) -> Server:
    """A broker's side of SCRAM; ``forge``: it does not know the password."""
    hashed = ScramMechanism(mechanism)
    salt, stored_key, server_key, iterations = hashed.make_auth_info(password)
    server = hashed.make_server(
        lambda _: (salt, stored_key, bytes(len(server_key)) if forge else server_key, iterations)
    )

    def answer(token: bytes) -> bytes:
        if token.startswith(b"n,,"):
            server.set_client_first(token.decode())
            return str(server.get_server_first()).encode()
        server.set_client_final(token.decode())
        return str(server.get_server_final()).encode()

    return answer


@pytest.mark.parametrize("highest", [0, 1, 2, 7])
def test_plain_sends_name_and_password(tmp_path: Path, highest: int) -> None:
    tokens: list[bytes] = []

    def server(token: bytes) -> bytes:
        tokens.append(token)
        return b""

    broker = Broker(server, highest=highest)
    try_login(broker, settings(tmp_path))
    assert tokens == [b"\0sidecar\0correct horse"]
    assert broker.asked == [(HANDSHAKE, 1), (AUTHENTICATE, min(highest, 2))]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_proves_both_sides(tmp_path: Path, mechanism: str) -> None:
    try_login(Broker(scram(mechanism, SECRET)), settings(tmp_path, mechanism))


def test_a_broker_that_does_not_know_the_password_is_refused(tmp_path: Path) -> None:
    broker = Broker(scram("SCRAM-SHA-512", SECRET, forge=True))
    with pytest.raises(BrokerLoginError, match=r"^the broker's SCRAM-SHA-512 messages are not valid$"):
        try_login(broker, settings(tmp_path, "SCRAM-SHA-512"))


@pytest.mark.parametrize(
    "token",
    [b"", b"\xff", b"r=x", b"e=other-error", b"r=a,s=!!!,i=4096", b"r=a,s=QQ==,i=999999999999999999999"],
)
def test_scram_messages_that_are_not_valid_name_no_secret(tmp_path: Path, token: bytes) -> None:
    with pytest.raises(BrokerLoginError) as raised:
        try_login(Broker(lambda _: token), settings(tmp_path, "SCRAM-SHA-256"))
    assert SECRET not in str(raised.value)


def test_a_refused_mechanism_names_those_that_are_offered(tmp_path: Path) -> None:
    broker = Broker(lambda _: b"", handshake_error=33)
    expected = "refuses PLAIN with UNSUPPORTED_SASL_MECHANISM; it offers GSSAPI"
    with pytest.raises(BrokerLoginError, match=expected):
        try_login(broker, settings(tmp_path))


def test_a_refused_login_is_named(tmp_path: Path) -> None:
    with pytest.raises(BrokerLoginError, match="refuses the login with SASL_AUTHENTICATION_FAILED"):
        try_login(Broker(lambda _: 58), settings(tmp_path))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"a\0b", "has a NUL character"),
        (b"x" * 65_537, "is larger than 65536 bytes"),
        (b"\xff\xfe", "is not UTF-8 text"),
    ],
)
def test_a_file_without_a_password_is_named(tmp_path: Path, content: bytes, expected: str) -> None:
    broker = Broker(lambda _: b"")
    with pytest.raises(BrokerLoginError, match=expected):
        try_login(broker, settings(tmp_path, content=content))
    assert broker.asked == []


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    login = settings(tmp_path)
    (tmp_path / "password").unlink()
    with pytest.raises(BrokerLoginError, match=r"broker.login.password.file .* cannot be read: No such file"):
        try_login(Broker(lambda _: b""), login)
