"""Owners of delegation tokens: how they are learned, and the principal of a login with a token."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from receiver.brokers.delegation_tokens import DelegationTokens
from receiver.principal.sasl import UNKNOWN_PRINCIPAL
from receiver.session.effects import LoginOutcome
from receiver.wire.headers import RequestHeader
from receiver.wire.uuid import Uuid
from tests.testbed.scripted_broker import RANGES, Answers, framed, parse, request_frame
from tests.unit.session.support import (
    ARRIVALS,
    BYTE_BY_BYTE,
    WHOLE,
    Wire,
    api_versions,
    correlation_id_of,
    get_subscriptions,
    read_subscriptions,
)

SASL_HANDSHAKE, SASL_AUTHENTICATE, CREATE, DESCRIBE = 17, 36, 38, 41
TOKEN, OTHER = "q3RkFq_6QXaRrGYRpDAsWg", "0fJ6fVdQRSi5mL3lAqBb0A"
HMAC = b"what one logs in with"
NOT_ALLOWED = 64


def text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def token(token_id: str, owner: str, *, kind: str = "User") -> bytes:
    """A token up to its HMAC, as versions 0 and 1 have it."""
    return text(kind) + text(owner) + bytes(24) + text(token_id) + struct.pack(">i", len(HMAC)) + HMAC


def created(token_id: str, owner: str, error: int = 0) -> bytes:
    """The body of an answer to CreateDelegationToken v1."""
    return struct.pack(">h", error) + token(token_id, owner) + bytes(4)


def described(*tokens: bytes, error: int = 0) -> bytes:
    """The body of an answer to DescribeDelegationToken v1; each token has one renewer."""
    renewers = struct.pack(">i", 1) + text("User") + text("carol")
    return struct.pack(">hi", error, len(tokens)) + b"".join(item + renewers for item in tokens) + bytes(4)


class TokenBroker(Answers):
    """A broker that accepts every login and answers token requests with given bodies.

    Args:
        token_bodies: The bodies of its answers about tokens, in order.
    """

    def __init__(self, *token_bodies: bytes) -> None:
        super().__init__(ranges={**RANGES, CREATE: (1, 3), DESCRIBE: (1, 3)})
        self._token_bodies = list(token_bodies)
        self._tokens_seen = 0

    def to(self, data: bytes) -> bytes | None:
        request = parse(data)
        correlation_id = struct.pack(">i", request.correlation_id)
        if request.api_key in (CREATE, DESCRIBE):
            self.seen.append(request)
            return correlation_id + self._token_bodies.pop(0)
        if request.api_key == SASL_HANDSHAKE and request.api_version == 1:
            self._tokens_seen = 0
            return correlation_id + struct.pack(">hi", 0, 0)
        if request.api_key == SASL_AUTHENTICATE:
            self._tokens_seen += 1
            token = b"r=xyz,s=eA==,i=4096" if self._tokens_seen == 1 else b"v=eA=="
            return correlation_id + struct.pack(">hhi", 0, -1, len(token)) + token + bytes(8)
        return super().to(data)


def wire(
    *token_bodies: bytes,
    tokens: DelegationTokens | None = None,
    arrival: str = WHOLE,
    security_protocol: str = "SASL_PLAINTEXT",
) -> Wire:
    made = Wire(arrival=arrival, security_protocol=security_protocol, delegation_tokens=tokens)
    made.answers = TokenBroker(*token_bodies)
    return made


def create(correlation_id: int = 38, version: int = 1) -> bytes:
    return request_frame(CREATE, version, correlation_id, struct.pack(">iq", 0, -1))


def describe(correlation_id: int = 41, version: int = 1) -> bytes:
    return request_frame(DESCRIBE, version, correlation_id, struct.pack(">i", -1))


def log_in(made: Wire, name: str, *, with_token: bool = False) -> str:
    """Log in with SCRAM and return the principal."""
    mechanism = b"SCRAM-SHA-256"
    made.exchange(request_frame(SASL_HANDSHAKE, 1, 17, struct.pack(">h", len(mechanism)) + mechanism))
    first = f"n,,n={name},r=abc" + (",tokenauth=true" if with_token else "")
    for client_token in (first.encode(), b"c=biws,r=abcxyz,p=eA=="):
        made.exchange(
            request_frame(SASL_AUTHENTICATE, 1, 36, struct.pack(">i", len(client_token)) + client_token)
        )
    return made.identity.principal


def outcomes(made: Wire) -> list[LoginOutcome]:
    return [outcome for _, outcome in made.events.logins]


def learn(tokens: DelegationTokens, api_key: int, body: bytes, version: int = 1) -> None:
    header = b"\0\0\0\5" + (b"\0" if version >= 2 else b"")
    tokens.learn(RequestHeader(api_key=api_key, api_version=version, correlation_id=5), header + body)


# -- what is learned -----------------------------------------------------------------------------


def test_an_unknown_token_has_no_owner() -> None:
    assert DelegationTokens().owner(TOKEN) is None


def test_owners_are_learned_from_both_responses() -> None:
    tokens = DelegationTokens()
    learn(tokens, CREATE, created(TOKEN, "alice"))
    learn(tokens, DESCRIBE, described(token(OTHER, "bob", kind="Robot"), token(TOKEN, "alice")))
    assert tokens.owner(TOKEN) == "User:alice"
    assert tokens.owner(OTHER) == "Robot:bob"


@pytest.mark.parametrize(
    ("api_key", "body", "version"),
    [
        (CREATE, created(TOKEN, "alice", NOT_ALLOWED), 1),
        (DESCRIBE, described(token(TOKEN, "alice"), error=NOT_ALLOWED), 1),
        (CREATE, created(TOKEN, "alice")[:-30], 1),
        (DESCRIBE, described(token(TOKEN, "alice"), token(OTHER, "bob"))[:-30], 1),
        (CREATE, created(TOKEN, "alice"), 4),
        (DESCRIBE, described(token(TOKEN, "alice")), 4),
        (CREATE, created("x" * 256, "alice"), 1),
        (CREATE, created(TOKEN, "a" * 2044), 1),
        (CREATE, b"", 1),
    ],
    ids=[
        "create refused",
        "describe refused",
        "create cut",
        "describe cut",
        "create of a version to come",
        "describe of a version to come",
        "id too long",
        "owner too long",
        "empty",
    ],
)
def test_invalid_responses_teach_no_owner(api_key: int, body: bytes, version: int) -> None:
    tokens = DelegationTokens()
    learn(tokens, api_key, body, version)
    assert len(tokens) == 0


def test_a_token_with_two_owners_has_none_from_then_on() -> None:
    tokens = DelegationTokens()
    owners = []
    for owner in ("alice", "alice", "mallory", "mallory", "alice"):
        learn(tokens, CREATE, created(TOKEN, owner))
        owners.append(tokens.owner(TOKEN))
    assert owners == ["User:alice", "User:alice", None, None, None]
    assert len(tokens) == 1


def test_the_least_recently_used_token_is_forgotten_at_the_limit() -> None:
    tokens = DelegationTokens()
    for number in range(16_384):
        learn(tokens, CREATE, created(f"{number}", "alice"))
    assert tokens.owner("0") == "User:alice"  # used just now
    for number in range(16_384, 16_400):
        learn(tokens, CREATE, created(f"{number}", "alice"))
    assert len(tokens) == 16_384
    assert tokens.owner("0") == tokens.owner("16399") == tokens.owner("17") == "User:alice"
    assert tokens.owner("1") is tokens.owner("16") is None


# -- what passes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("arrival", ARRIVALS)
@pytest.mark.parametrize("correlation_id", [0, 7, -7, -(1 << 31), (1 << 31) - 1])
def test_requests_and_responses_pass_unchanged(arrival: str, correlation_id: int) -> None:
    made = wire(created(TOKEN, "alice"), described(token(OTHER, "bob")), arrival=arrival)
    log_in(made, "alice")
    answer = made.exchange(create(correlation_id))
    assert answer == struct.pack(">i", correlation_id) + created(TOKEN, "alice")
    answer = made.exchange(describe(correlation_id))
    assert answer == struct.pack(">i", correlation_id) + described(token(OTHER, "bob"))
    assert [request.body for request in made.seen()[-2:]] == [
        struct.pack(">iq", 0, -1),
        struct.pack(">i", -1),
    ]
    assert made.session.held_bytes == 0


@pytest.mark.parametrize("body", [b"", b"\0", bytes(300), b"\xff" * 300])
def test_an_answer_that_cannot_be_read_passes(body: bytes) -> None:
    made = wire(body, body)
    log_in(made, "alice")
    assert made.exchange(create()) == struct.pack(">i", 38) + body
    assert made.exchange(describe()) == struct.pack(">i", 41) + body


@pytest.mark.parametrize("arrival", [WHOLE, BYTE_BY_BYTE])
def test_an_answer_that_is_too_long_passes_unread_and_is_not_held(arrival: str) -> None:
    tokens = DelegationTokens()
    long = described(*(token(f"{number}", "alice") for number in range(4000)))
    assert len(long) > 262_144
    made = wire(created(TOKEN, "alice"), tokens=tokens, arrival=arrival)
    log_in(made, "alice")
    made.send(describe(-9))
    (request,) = made.forwarded()
    made.to_broker.clear()
    made.send(create(-9) + api_versions(0, -9))
    made.receive(framed(struct.pack(">i", request.correlation_id) + long)[:-1])
    assert made.session.responses.held == 0
    assert len(made.to_client) == 4 + 4 + len(long) - 1
    made.receive(long[-1:])
    made.answer()
    first, second, third = made.received()
    assert first == struct.pack(">i", -9) + long
    assert second == struct.pack(">i", -9) + created(TOKEN, "alice")
    assert correlation_id_of(third) == -9
    assert tokens.owner("1") is None
    assert tokens.owner(TOKEN) == "User:alice"


@pytest.mark.parametrize("arrival", [WHOLE, BYTE_BY_BYTE])
def test_behind_a_long_answer_bare_tokens_pass_too(arrival: str) -> None:
    long = described(*(token(f"{number}", "alice") for number in range(4000)))
    made = wire(arrival=arrival, security_protocol="PLAINTEXT")
    made.send(describe() + request_frame(SASL_HANDSHAKE, 0, 17, text("PLAIN")))
    request, _ = made.forwarded()
    handshake_and_token = framed(struct.pack(">ihi", 17, 0, 0)) + framed(b"")
    made.receive(framed(struct.pack(">i", request.correlation_id) + long) + handshake_and_token)
    assert bytes(made.to_client).endswith(long + handshake_and_token)


def test_a_client_cannot_forge_the_brokers_response() -> None:
    tokens = DelegationTokens()
    made = wire(created(TOKEN, "alice", NOT_ALLOWED), tokens=tokens)
    log_in(made, "mallory")
    # The client controls the response to another request, because here the broker echoes it.
    forged = request_frame(1, 0, 38, created(TOKEN, "alice"))
    made.send(forged + create(38) + forged)
    made.answer()
    assert len(made.received()) == 3
    assert len(tokens) == 0


def test_no_owner_is_learned_before_a_required_login() -> None:
    tokens = DelegationTokens()
    made = wire(created(TOKEN, "alice"), tokens=tokens)
    made.exchange(create())
    assert len(tokens) == 0


@pytest.mark.parametrize("security_protocol", ["PLAINTEXT", "SSL"])
def test_owners_are_learned_without_a_login_if_none_is_required(security_protocol: str) -> None:
    tokens = DelegationTokens()
    wire(created(TOKEN, "alice"), tokens=tokens, security_protocol=security_protocol).exchange(create())
    assert tokens.owner(TOKEN) == "User:alice"


@pytest.mark.parametrize(("api_key", "body"), [(CREATE, b"\0\0"), (DESCRIBE, b"\0\0\2")])
def test_owners_are_learned_from_kip_1313s_version_too(api_key: int, body: bytes) -> None:
    tokens = DelegationTokens()
    mine = Uuid(bytes(15) + b"\7")

    def compact(value: str) -> bytes:
        return bytes([len(value) + 1]) + value.encode()

    answer = body + b"".join(compact(value) for value in ("User", "alice", "User", "root")) + bytes(24)
    answer += compact(TOKEN) + b"\3ab" + (b"\1\0" if api_key == DESCRIBE else b"") + bytes(5)
    made = Wire(translates=True, security_protocol="SSL", delegation_tokens=tokens)
    made.upstream.learn({CREATE: (1, 3), DESCRIBE: (1, 3)})
    made.answers = TokenBroker(b"\0" + answer)
    head = struct.pack(">hhih", api_key, 4, 5, 3) + b"raw" + bytes(mine) + b"\0"
    assert made.exchange(framed(head + b"\1\0")) == struct.pack(">ib", 5, 0) + answer
    assert made.seen()[-1].api_version == 3
    assert tokens.owner(TOKEN) == "User:alice"


# -- logins --------------------------------------------------------------------------------------


def test_a_login_with_a_token_is_its_owners_on_any_connection() -> None:
    tokens = DelegationTokens()
    maker = wire(created(TOKEN, "alice"), tokens=tokens)
    log_in(maker, "alice")
    assert log_in(wire(tokens=tokens), TOKEN, with_token=True) == f"DelegationToken:{TOKEN}"
    maker.exchange(create())
    made = wire(tokens=tokens)
    assert log_in(made, TOKEN, with_token=True) == "User:alice"
    assert outcomes(made) == [LoginOutcome.SUCCEEDED]
    assert read_subscriptions(made.exchange(get_subscriptions())).error_code == 0


def test_a_user_named_like_a_token_is_not_its_owner() -> None:
    tokens = DelegationTokens()
    learn(tokens, CREATE, created(TOKEN, "alice"))
    assert log_in(wire(tokens=tokens), TOKEN) == f"User:{TOKEN}"


def names(made: Wire, tokens: DelegationTokens, steps: Sequence[str]) -> list[str]:
    """Log in with each token id or user, or learn TOKEN's owner (``is alice``), in order."""
    found = []
    for step in steps:
        if step.startswith("is "):
            learn(tokens, CREATE, created(TOKEN, step[3:]))
        else:
            found.append(log_in(made, step, with_token=step in (TOKEN, OTHER)))
    return found


@pytest.mark.parametrize(
    ("steps", "principals", "last"),
    [
        ((TOKEN, "is alice", TOKEN, TOKEN), ["token", "User:alice", "User:alice"], LoginOutcome.RENEWED),
        (("is alice", TOKEN, "is bob", TOKEN), ["User:alice", "User:alice"], LoginOutcome.RENEWED),
        (("is alice", "alice", TOKEN), ["User:alice", "User:alice"], LoginOutcome.RENEWED),
        (("is alice", TOKEN, "alice"), ["User:alice", "User:alice"], LoginOutcome.RENEWED),
        (("is alice", "bob", TOKEN), ["User:bob", UNKNOWN_PRINCIPAL], LoginOutcome.CHANGED),
        ((TOKEN, OTHER, TOKEN), ["token", UNKNOWN_PRINCIPAL, UNKNOWN_PRINCIPAL], LoginOutcome.CHANGED),
        (
            (TOKEN, "bob", "is bob", TOKEN),
            ["token", UNKNOWN_PRINCIPAL, UNKNOWN_PRINCIPAL],
            LoginOutcome.CHANGED,
        ),
    ],
    ids=[
        "the owner became known",
        "the owner became unknown",
        "a password, then the token",
        "the token, then a password",
        "another's token",
        "another token with an unknown owner",
        "unknown for good",
    ],
)
def test_reauthentication(steps: Sequence[str], principals: list[str], last: LoginOutcome) -> None:
    tokens = DelegationTokens()
    made = wire(tokens=tokens)
    expected = [f"DelegationToken:{TOKEN}" if principal == "token" else principal for principal in principals]
    assert names(made, tokens, steps) == expected
    assert outcomes(made)[-1] is last
