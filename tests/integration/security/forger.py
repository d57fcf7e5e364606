"""A client that forges SASL logins and telemetry in raw frames."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from tests.conformance.payloads import OTLP
from tests.integration.gateway.support import GatewaySidecar, Raw, get_subscriptions, push
from tests.integration.security.support import TIMEOUT_S
from tests.testbed.broker import SASL_USERS
from tests.testbed.ports import LOOPBACK
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import request_frame

OK: Final = 0
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
CREATE_DELEGATION_TOKEN, DESCRIBE_DELEGATION_TOKEN = 38, 41

#: The broker closes the connection in place of an answer.
CLOSED: Final = "closed"

NOBODY: Final = "User:ANONYMOUS"

#: Passwords and tokens that forgers sent; none may appear in a log or an answer.
SENT_SECRETS: Final[set[str]] = {*SASL_USERS.values()}

#: The connections, by their name in the log, whose push left the sidecar; one push each.
LET_IN: Final[list[str]] = []

# Offset of the error code in an answer, if it is not right after the correlation id.
_CODE_AT: Final = {71: 9, 72: 9, CREATE_DELEGATION_TOKEN: 5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request in a frame."""

    frame: bytes

    @property
    def api_key(self) -> int:
        return int(struct.unpack_from(">h", self.frame, 4)[0])

    @property
    def correlation_id(self) -> bytes:
        return self.frame[8:12]


Outcome = int | Literal["closed"]


class Forger(Raw):
    """A client that sends any requests.

    Args:
        port: The listener's port.

    Attributes:
        source_port: Its own port, known after its end too.
        source: Its name in the log.
        heard: The answers to its last requests.
    """

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.source_port = self.port
        self.source = f"{LOOPBACK}:{self.port}"
        self.heard: list[bytes] = []

    def codes_of(self, *asked: Asked) -> list[Outcome]:
        """Send all requests in one write; return the error codes, CLOSED for an end."""
        self.heard = []
        try:
            self.send(b"".join(item.frame for item in asked))
            for _ in asked:
                self.heard.append(self.frame())
        except (EOFError, ConnectionError):
            pass
        codes: list[Outcome] = [self._code(*pair) for pair in zip(asked, self.heard, strict=False)]
        return codes if len(codes) == len(asked) else [*codes, CLOSED]

    @staticmethod
    def _code(asked: Asked, answer: bytes) -> int:
        assert answer[:4] == asked.correlation_id
        return int(struct.unpack_from(">h", answer, _CODE_AT.get(asked.api_key, 4))[0])


def handshake(mechanism: str = "PLAIN", correlation_id: int = 1, *, version: int = 1) -> Asked:
    name = struct.pack(">h", len(mechanism)) + mechanism.encode()
    return Asked(frame=request_frame(SASL_HANDSHAKE, version, correlation_id, name))


def authenticate(token: str | bytes, correlation_id: int = 2) -> Asked:
    data = token if isinstance(token, bytes) else token.encode()
    body = struct.pack(">i", len(data)) + data
    return Asked(frame=request_frame(SASL_AUTHENTICATE, 1, correlation_id, body))


def plain(user: str, password: str | None = None, correlation_id: int = 2) -> Asked:
    secret = SASL_USERS[user] if password is None else password
    SENT_SECRETS.update((secret, base64.b64encode(f"\0{user}\0{secret}".encode()).decode()))
    return authenticate(f"\0{user}\0{secret}", correlation_id)


def api_versions(correlation_id: int) -> Asked:
    return Asked(frame=request_frame(API_VERSIONS, 0, correlation_id))


def asks(correlation_id: int = 71) -> Asked:
    """Make a GetTelemetrySubscriptions request."""
    return Asked(frame=get_subscriptions(correlation_id=correlation_id))


def describes() -> Asked:
    """Make a DescribeDelegationToken v1 request for any owner."""
    return Asked(frame=request_frame(DESCRIBE_DELEGATION_TOKEN, 1, 41, struct.pack(">i", -1)))


def creates(owner: str) -> Asked:
    """Make a CreateDelegationToken v3 request (KIP-373)."""
    body = b"\0" + _compact("User") + _compact(owner) + b"\1" + struct.pack(">q", -1) + b"\0"
    return Asked(frame=request_frame(CREATE_DELEGATION_TOKEN, 3, 38, body))


def read_created(answer: bytes) -> tuple[str, str]:
    """Decode CreateDelegationToken v3: the token's id, and its SCRAM password."""
    rest = answer[7:]
    for _ in range(4):  # owner and requester
        rest = rest[rest[0] :]
    rest = rest[3 * 8 :]
    token_id, rest = rest[1 : rest[0]].decode(), rest[rest[0] :]
    return token_id, base64.b64encode(rest[1 : rest[0]]).decode()


def _compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def pushes(instance: bytes, subscription_id: int, correlation_id: int = 72) -> Asked:
    """Make a PushTelemetry request of an instance that has got its subscriptions."""
    return Asked(frame=push(instance, subscription_id, OTLP, correlation_id))


class Scram:
    """The client's messages of SCRAM-SHA-256 (RFC 5802), correct or forged.

    Args:
        user: The user's name.
        password: None: the correct one.
        extensions: Text after the nonce.
    """

    def __init__(self, user: str, password: str | None = None, *, extensions: str = "") -> None:
        self._password = SASL_USERS[user] if password is None else password
        self._bare = f"n={user},r=0123456789{extensions}"
        SENT_SECRETS.add(self._password)

    def first(self, *, authzid: str = "") -> Asked:
        self._header = f"n,{authzid and 'a=' + authzid},"
        return authenticate(self._header + self._bare)

    def final(self, server_first: bytes) -> Asked:
        message = server_first.decode()
        server = dict(part.split("=", 1) for part in message.split(","))
        salted = hashlib.pbkdf2_hmac(
            "sha256", self._password.encode(), base64.b64decode(server["s"]), int(server["i"])
        )
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        final = f"c={base64.b64encode(self._header.encode()).decode()},r={server['r']}"
        signed = f"{self._bare},{message},{final}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        SENT_SECRETS.add(base64.b64encode(proof).decode())
        return authenticate(f"{final},p={base64.b64encode(proof).decode()}")


def token_of(answer: bytes) -> bytes:
    """Return the broker's token in its answer to SaslAuthenticate v1, without an error."""
    assert answer[4:8] == bytes(4)  # no error, and no words about it
    (length,) = struct.unpack_from(">i", answer, 8)
    return answer[12 : 12 + length]


def scram(raw: Forger, login: Scram, *, authzid: str = "") -> list[Outcome]:
    """Log in; return the broker's answers to handshake, first and final message."""
    outcomes = raw.codes_of(handshake("SCRAM-SHA-256"), login.first(authzid=authzid))
    if outcomes != [OK, OK]:
        return outcomes
    return outcomes + raw.codes_of(login.final(token_of(raw.heard[1])))


def bearer(claims: str, *, header: str = '{"alg":"none"}', authzid: str = "") -> Asked:
    """Make an OAUTHBEARER token (RFC 7628) with an unsigned JSON Web Token."""
    jwt = ".".join(base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode() for text in (header, claims))
    SENT_SECRETS.update((jwt, jwt.split(".")[1]))
    return authenticate(f"n,{authzid and 'a=' + authzid},\x01auth=Bearer {jwt}.\x01\x01")


def claims(**more: Any) -> str:
    now = int(time.time())
    return json.dumps({"iat": now, "exp": now + 36_000, **more})


class Watch:
    """The sidecar's counts on one listener, its log and its pushes, since this was made."""

    def __init__(self, sidecar: GatewaySidecar, listener: str = "SASL") -> None:
        self._sidecar = sidecar
        self._listener = listener
        self._before = self._now()
        self._logged = len(sidecar.logged_objects())  # ports are used again: what was before is another's

    def connect(self) -> Forger:
        return Forger(self._sidecar.port(self._listener))

    def counted(self) -> dict[str, int]:
        """Return the nonzero counts of logins, early requests and pushes."""
        grown = {key: int(value - self._before.get(key, 0)) for key, value in self._now().items()}
        return {key: value for key, value in grown.items() if value}

    def principal(self, raw: Forger) -> str | None:
        """Return the principal of a forger's connection; None if it is closed."""
        shown = self._sidecar.connections(self._listener)
        found = [item["principal"] for item in shown if item["source_port"] == raw.source_port]
        return found[0] if found else None

    def ended_as(self, raw: Forger) -> set[str]:
        """Wait for the connection's end; return all its principals in the log."""
        wait_until(
            lambda: self.principal(raw) is None, timeout_s=TIMEOUT_S, what="the end of a forger's connection"
        )
        return {line["principal"] for line in self._since() if line.get("source") == raw.source}

    def pushed_by(self, raw: Forger) -> str:
        """Wait for a forger's push at the console plugin; return its principal."""
        found: list[str] = []

        def came_out() -> bool:
            found[:] = [push["principal"] for push in came(self._since()) if push["source"] == raw.source]
            return bool(found)

        wait_until(came_out, timeout_s=TIMEOUT_S, what="a push of a forger's")
        (principal,) = found
        LET_IN.append(raw.source)
        return principal

    def _since(self) -> list[dict[str, Any]]:
        return self._sidecar.logged_objects()[self._logged :]

    def _now(self) -> dict[str, float]:
        counted: dict[str, float] = {}
        for name, label in (
            ("authenticated_total", "outcome"),
            ("protocol_errors_total", "reason"),
            ("pushes_total", "outcome"),
        ):
            for labels, value in self._sidecar.series(name).items():
                found = dict(labels)
                if found.get("listener", self._listener) == self._listener:
                    key = f"{name.split('_')[0]} {found[label]}"
                    counted[key] = counted.get(key, 0) + value
        return counted


def came(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pushes that the console plugin printed among these lines."""
    return [line for line in lines if "metrics" in line and "event" not in line]
