"""SASL exchanges; tests/integration/test_principal_rules.py compares them with Kafka's servers."""

from __future__ import annotations

import json

import pytest

from receiver.principal.sasl import MAX_NAME_BYTES, MAX_TOKEN_BYTES, UNKNOWN_PRINCIPAL, SaslExchange
from tests.unit.principal.certificates import base64url

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SERVER_FIRST = b"r=abcdef,s=c2FsdA==,i=4096"
CLIENT_FINAL = b"c=biws,r=abcdef,p=cHJvb2Y="


def jwt(claims: bytes) -> bytes:
    return base64url(b'{"alg":"RS256"}') + b"." + base64url(claims) + b"." + base64url(b"signature")


def bearer(token: bytes, authzid: bytes = b"") -> bytes:
    return b"n," + authzid + b",\x01auth=Bearer " + token + b"\x01\x01"


def logged_in(mechanism: str, client_first: bytes, *, principal_claim: str = "sub") -> SaslExchange:
    """Return an exchange whose login the broker has accepted."""
    exchange = SaslExchange(mechanism, principal_claim=principal_claim)
    exchange.client_token(client_first)
    if mechanism in SCRAM:
        exchange.server_token(SERVER_FIRST)
        exchange.client_token(CLIENT_FINAL)
        assert (exchange.principal, exchange.complete) == (None, False)
        exchange.server_token(b"v=c2lnbmF0dXJl")
    else:
        assert (exchange.principal, exchange.complete) == (None, False)
        exchange.server_token(b"")
    assert exchange.complete
    return exchange


@pytest.mark.parametrize(
    ("token", "principal"),
    [
        (b"\0alice\0secret", "User:alice"),
        (b"alice\0alice\0secret", "User:alice"),
        (b"bob\0alice\0secret", UNKNOWN_PRINCIPAL),
        ("\0Jürgen\0secret".encode(), "User:Jürgen"),
        (b"\0a\nb\0\xff", "User:a\nb"),
        (b"\0alice\0sec\0ret", UNKNOWN_PRINCIPAL),
        (b"\0alice\0", UNKNOWN_PRINCIPAL),
        (b"\0\0secret", UNKNOWN_PRINCIPAL),
        (b"alice\0secret", UNKNOWN_PRINCIPAL),
        (b"", UNKNOWN_PRINCIPAL),
        (b"\0al\xc0\x80ice\0secret", UNKNOWN_PRINCIPAL),
        (b"\0al\xed\xa0\x80\0secret", UNKNOWN_PRINCIPAL),
        (b"\xff\0\xff\0secret", UNKNOWN_PRINCIPAL),
        (b"\0" + b"a" * MAX_NAME_BYTES + b"\0secret", "User:" + "a" * MAX_NAME_BYTES),
        (b"\0" + b"a" * (MAX_NAME_BYTES + 1) + b"\0secret", UNKNOWN_PRINCIPAL),
        (b"\0alice\0" + b"s" * (MAX_TOKEN_BYTES - 7), "User:alice"),
        (b"\0alice\0" + b"s" * (MAX_TOKEN_BYTES - 6), UNKNOWN_PRINCIPAL),
    ],
)
def test_plain(token: bytes, principal: str) -> None:
    assert logged_in("PLAIN", token).principal == principal


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize(
    ("token", "principal"),
    [
        (b"n,,n=alice,r=abc", "User:alice"),
        (b"n,a=alice,n=alice,r=abc", "User:alice"),
        (b"n,a=bob,n=alice,r=abc", UNKNOWN_PRINCIPAL),
        (b"n,,n=a=2Cb=3Dc,r=abc", "User:a,b=c"),
        (b"n,,n=a=3D2C,r=abc", "User:a=2C"),
        (b"n,a=a=3Db,n=a=3Db,r=abc", UNKNOWN_PRINCIPAL),  # Kafka compares the one escaped, the other not
        (b"n,,n=a=2c,r=abc", UNKNOWN_PRINCIPAL),
        (b"n,,m=x,n=alice,r=abc", "User:alice"),
        (b"n,,m=n=bob,n=alice,r=abc", "User:alice"),
        (b"n,,n=alice,r=abc,n=bob", "User:alice"),
        (b"n,,n=alice,n=bob,r=abc", UNKNOWN_PRINCIPAL),
        (b"y,,n=alice,r=abc", UNKNOWN_PRINCIPAL),
        (b"p=tls-unique,,n=alice,r=abc", UNKNOWN_PRINCIPAL),
        (b"n,,n=alice,r=", UNKNOWN_PRINCIPAL),
        (b"n,,n=,r=abc", UNKNOWN_PRINCIPAL),
        (b"n,,n=a\0b,r=abc", UNKNOWN_PRINCIPAL),
        ("n,,n=Jürgen,r=abc".encode(), UNKNOWN_PRINCIPAL),
        (b"n,,n=alice,r=abc,", UNKNOWN_PRINCIPAL),
        (b"n,,n=alice,r=abc\n", UNKNOWN_PRINCIPAL),
        (b"n,,n=alice,r=abc,tokenauth=false", "User:alice"),
        (b"n,,n=alice,r=abc,Tokenauth=true", "User:alice"),
        (b"n,,n=alice,r=abc,tokenauth=true,tokenauth=false", UNKNOWN_PRINCIPAL),
    ],
)
def test_scram(mechanism: str, token: bytes, principal: str) -> None:
    exchange = logged_in(mechanism, token)
    assert (exchange.principal, exchange.delegation_token_id) == (principal, None)


@pytest.mark.parametrize("true", [b"true", b"TRUE"])
def test_a_delegation_token_is_not_a_user_of_its_name(true: bytes) -> None:
    exchange = SaslExchange("SCRAM-SHA-256")
    exchange.client_token(b"n,,n=kT2=3D,r=abc,tokenauth=" + true)
    exchange.server_token(SERVER_FIRST)
    exchange.client_token(CLIENT_FINAL)
    ids = [exchange.delegation_token_id]
    exchange.server_token(b"v=c2lnbmF0dXJl")
    assert [*ids, exchange.delegation_token_id] == [None, "kT2="]
    assert exchange.principal == "DelegationToken:kT2="


@pytest.mark.parametrize(
    ("token", "principal"),
    [
        (bearer(jwt(b'{"sub":"alice","aud":["x"],"exp":1.5}')), "User:alice"),
        (bearer(jwt(b'{"sub":"alice"}'), b"a=alice"), "User:alice"),
        (bearer(jwt(b'{"sub":"alice"}'), b"a=bob"), UNKNOWN_PRINCIPAL),
        (bearer(jwt(b'{"sub":"alice"}')).replace(b"Bearer", b"bEARER  "), "User:alice"),
        (bearer(jwt(b'{"sub":"alice"}')).replace(b"Bearer", b"Basic"), UNKNOWN_PRINCIPAL),
        (bearer(jwt(b'{"sub":"alice"}')).replace(b"auth", b"x=y\x01auth"), "User:alice"),
        (bearer(jwt(b'{"sub":"alice"}') + b"\x01auth=Bearer " + jwt(b'{"sub":"bob"}')), UNKNOWN_PRINCIPAL),
        (bearer(jwt(b'{"sub":"alice"}'))[:-1], UNKNOWN_PRINCIPAL),
        (bearer(jwt('{"sub":"Jürgen"}'.encode())), "User:Jürgen"),
        (bearer(jwt(rb'{"sub":"\ud83d\ude00"}')), "User:😀"),
        (bearer(jwt(rb'{"sub":"\ud83d"}')), UNKNOWN_PRINCIPAL),
        (bearer(jwt(b'{"sub":"al\xffice"}')), UNKNOWN_PRINCIPAL),
        (bearer(jwt(b'{"sub":"alice","sub":"bob"}')), UNKNOWN_PRINCIPAL),
        (bearer(jwt(rb'{"sub":"alice","s\u0075b":"bob"}')), UNKNOWN_PRINCIPAL),
        (bearer(jwt(b'{"sub":" alice"}')), UNKNOWN_PRINCIPAL),
        (bearer(jwt(b'{"sub":""}')), UNKNOWN_PRINCIPAL),
        (bearer(jwt(b'{"sub":7}')), UNKNOWN_PRINCIPAL),
        (bearer(jwt(b'{"sub":{"sub":"alice"}}')), UNKNOWN_PRINCIPAL),
        (bearer(jwt(b'{"name":"alice"}')), UNKNOWN_PRINCIPAL),
        (bearer(jwt(b'"alice"')), UNKNOWN_PRINCIPAL),
        (bearer(jwt(b'{"sub":"alice"}x')), UNKNOWN_PRINCIPAL),
        (bearer(jwt(b'{"sub":"alice","x":' + b"[" * 40_000)), UNKNOWN_PRINCIPAL),
        (bearer(jwt(b'{"sub":"alice","x":' + b"1" * 9_000 + b"}")), UNKNOWN_PRINCIPAL),
        (bearer(jwt(json.dumps({"sub": "a" * (MAX_NAME_BYTES + 1)}).encode())), UNKNOWN_PRINCIPAL),
        (bearer(b"opaque"), UNKNOWN_PRINCIPAL),
        (bearer(b"a.b"), UNKNOWN_PRINCIPAL),
        (bearer(b"a.b.c.d.e"), UNKNOWN_PRINCIPAL),
        (bearer(b"a.AAAAA.c"), UNKNOWN_PRINCIPAL),
        (b"\x01", UNKNOWN_PRINCIPAL),
    ],
)
def test_oauthbearer(token: bytes, principal: str) -> None:
    assert logged_in("OAUTHBEARER", token).principal == principal


def test_another_claim_may_name_the_principal() -> None:
    token = bearer(jwt(b'{"sub":"7","email":"alice@example.com"}'))
    exchange = logged_in("OAUTHBEARER", token, principal_claim="email")
    assert exchange.principal == "User:alice@example.com"


@pytest.mark.parametrize("mechanism", ["GSSAPI", "AWS_MSK_IAM", "plain", ""])
def test_an_unknown_mechanism_gives_the_unknown_principal(mechanism: str) -> None:
    assert logged_in(mechanism, b"\0alice\0secret").principal == UNKNOWN_PRINCIPAL


def test_requests_may_run_ahead_of_answers() -> None:
    exchange = SaslExchange("SCRAM-SHA-256")
    for token in (b"n,,n=alice,r=abc", CLIENT_FINAL, b"n,,n=bob,r=abc"):
        exchange.client_token(memoryview(token))
    exchange.server_token(SERVER_FIRST)
    assert exchange.principal is None
    exchange.server_token(b"v=c2lnbmF0dXJl")
    assert exchange.principal == "User:alice"


def test_nothing_changes_a_name_once_the_broker_has_agreed() -> None:
    exchange = logged_in("PLAIN", b"\0alice\0secret")
    exchange.client_token(b"\0bob\0secret")
    exchange.server_token(b"")
    assert (exchange.principal, exchange.complete) == ("User:alice", True)


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM, "OAUTHBEARER", "GSSAPI"])
def test_a_response_without_a_request_completes_no_login(mechanism: str) -> None:
    exchange = SaslExchange(mechanism)
    exchange.server_token(b"v=c2lnbmF0dXJl")
    for _ in range(3):
        exchange.client_token(b"\0alice\0secret")
        exchange.server_token(b"")
    assert (exchange.principal, exchange.complete) == (None, False)


@pytest.mark.parametrize("final", [b"", b"e=other-error", b"V=c2ln", SERVER_FIRST])
def test_scram_fails_if_the_broker_does_not_prove_itself(final: bytes) -> None:
    exchange = SaslExchange("SCRAM-SHA-512")
    exchange.client_token(b"n,,n=alice,r=abc")
    exchange.server_token(b"v=tooSoon")
    exchange.client_token(CLIENT_FINAL)
    exchange.server_token(final)
    exchange.client_token(CLIENT_FINAL)
    exchange.server_token(b"v=c2lnbmF0dXJl")
    assert exchange.principal is None


def test_a_token_accepted_after_an_error_document_gives_the_unknown_principal() -> None:
    exchange = SaslExchange("OAUTHBEARER")
    exchange.client_token(bearer(jwt(b'{"sub":"alice"}')))
    exchange.server_token(b'{"status":"invalid_token"}')
    assert exchange.principal is None
    exchange.client_token(bearer(jwt(b'{"sub":"bob"}')))
    exchange.server_token(b"")
    assert exchange.principal == UNKNOWN_PRINCIPAL
