"""Logins as steps: PLAIN and SCRAM-SHA-256, in SaslAuthenticate and as bare tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from typing import Final, Literal

from tests.conformance import answers, requests
from tests.conformance.conversation import Conversation, Request, Step
from tests.conformance.talk import Fate
from tests.conformance.words import request
from tests.testbed.broker import SASL_USERS

USER: Final = "alice"

#: Users whose PLAIN tokens begin like requests: key 71 and 72.
LOOKALIKES: Final = ("Gina", "Hugo")
PASSWORDS: Final = {**SASL_USERS, **dict.fromkeys(LOOKALIKES, "lookalike-secret")}

_SECURITY: Final = "org.apache.kafka.common.security"
#: Settings of this suite's brokers, in addition to the testbed's.
BROKER_PROPERTIES: Final = {
    "listener.name.sasl.plain.sasl.jaas.config": (
        f"{_SECURITY}.plain.PlainLoginModule required "
        + " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
        + ";"
    )
}

_NONCE: Final = "conformance"
_CLIENT_FIRST: Final = f"n={USER},r={_NONCE}"


def plain_token(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()


PLAIN_TOKEN: Final = plain_token(USER, PASSWORDS[USER])


def handshake(
    mechanism: str, *, version: int = 1, correlation_id: int | None = None, cut: int | None = None
) -> Request:
    """SaslHandshake; after version 0 come bare tokens, after version 1 SaslAuthenticate."""
    return request(
        f"SaslHandshake v{version}",
        requests.SASL_HANDSHAKE,
        version,
        lambda _: requests.string(mechanism),
        lambda _: answers.sasl_handshake,
        header_tags=None,
        correlation_id=correlation_id,
        cut=cut,
    )


def authenticate(
    token: bytes | Literal["scram first", "scram final"] = PLAIN_TOKEN, *, correlation_id: int | None = None
) -> Request:
    """SaslAuthenticate v1."""

    def body(conversation: Conversation) -> bytes:
        data = token if isinstance(token, bytes) else _scram(token, conversation)
        return struct.pack(">i", len(data)) + data

    return request(
        "SaslAuthenticate",
        requests.SASL_AUTHENTICATE,
        1,
        body,
        lambda _: answers.sasl_authenticate,
        header_tags=None,
        correlation_id=correlation_id,
    )


def bare_token(token: bytes) -> Step:
    """Send a token without a request header, and note the one that answers it."""

    def run(conversation: Conversation) -> None:
        conversation.talk.send(requests.frame(token))
        answer = conversation.talk.receive()
        seen = answers.Seen(text=str(answer)) if isinstance(answer, Fate) else answers.token(answer)
        conversation.note("bare token", seen)

    return Step(run=run)


#: The whole of a login, by mechanism.
LOGIN: Final[dict[str, tuple[Step, ...]]] = {
    "PLAIN": (handshake("PLAIN"), authenticate()),
    "SCRAM-SHA-256": (
        handshake("SCRAM-SHA-256"),
        authenticate("scram first"),
        authenticate("scram final"),
    ),
}


def _scram(message: str, conversation: Conversation) -> bytes:
    """RFC 5802's client messages, for a server's answer that the conversation has read."""
    if message == "scram first":
        return f"n,,{_CLIENT_FIRST}".encode()
    server_first = conversation.reading.sasl_payload.decode()
    if not server_first:
        return b"there was no first message of the server's"
    attributes = dict(part.split("=", 1) for part in server_first.split(","))
    salted = hashlib.pbkdf2_hmac(
        "sha256", PASSWORDS[USER].encode(), base64.b64decode(attributes["s"]), int(attributes["i"])
    )
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    client_final = f"c=biws,r={attributes['r']}"
    signed = f"{_CLIENT_FIRST},{server_first},{client_final}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{client_final},p={base64.b64encode(proof).decode()}".encode()
