"""No token raises, names a client without the broker, or leaves a secret behind."""

from __future__ import annotations

import gc
import json
from types import FunctionType, ModuleType

from hypothesis import given
from hypothesis import strategies as st

from receiver.principal.sasl import MAX_NAME_BYTES, UNKNOWN_PRINCIPAL, SaslExchange
from tests.unit.principal.certificates import base64url

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
SECRET = "correct-horse-battery-staple"
TRACES = (SECRET, base64url(SECRET.encode()).decode())

fragments = st.sampled_from(
    [b"\0", b"n,,", b"n=alice", b"a=alice", b"alice", b",r=abc", b",tokenauth=true", b"\x01", b"auth=Bearer ",
     b".", b"=2C", b"\xff", base64url(b'{"sub":"alice"}'), b"secret"]
)  # fmt: skip
tokens = st.binary(max_size=80) | st.lists(fragments, max_size=8).map(b"".join)
answers = tokens | st.sampled_from([b"", b"v=c2ln", b"r=abc", b"e=x"])
steps = st.lists(st.tuples(st.booleans(), tokens, answers), max_size=8)


names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40)


def held_by(exchange: SaslExchange) -> list[object]:
    """All that can be reached from an exchange, without code."""
    found: dict[int, object] = {}
    left: list[object] = [exchange]
    while left:
        one = left.pop()
        if id(one) not in found and not isinstance(one, (type, ModuleType, FunctionType)):
            found[id(one)] = one
            left.extend(gc.get_referents(one))
    return list(found.values())


def assert_keeps_no_secret(exchange: SaslExchange) -> None:
    for held in held_by(exchange):
        assert not any(trace in str(held) for trace in TRACES)


def let_in(mechanism: str, token: bytes) -> SaslExchange:
    exchange = SaslExchange(mechanism)
    exchange.client_token(token)
    if mechanism.startswith("SCRAM"):
        exchange.server_token(b"r=abc,s=c2FsdA==,i=4096")
        exchange.client_token(f"c=biws,r=abc,p={SECRET}".encode())
    assert exchange.principal is None
    assert_keeps_no_secret(exchange)
    exchange.server_token(b"v=c2ln" if mechanism.startswith("SCRAM") else b"")
    assert_keeps_no_secret(exchange)
    return exchange


@given(st.sampled_from(MECHANISMS), steps)
def test_nothing_raises_and_a_principal_stays(
    mechanism: str, passing: list[tuple[bool, bytes, bytes]]
) -> None:
    exchange = SaslExchange(mechanism)
    requests = answered = 0
    for from_client, token, answer in passing:
        before = exchange.principal
        if from_client:
            requests += 1
            exchange.client_token(token)
            assert exchange.principal == before
        else:
            answered += 1
            exchange.server_token(answer)
            if before is not None:
                assert exchange.principal == before
            elif exchange.principal is not None:
                assert answered <= requests
                assert answered == 2 or not mechanism.startswith("SCRAM")
                assert answer.startswith(b"v=") or not mechanism.startswith("SCRAM")
                assert not answer or mechanism != "OAUTHBEARER"
        assert exchange.complete == (exchange.principal is not None)


@given(names)
def test_plain_names_the_client(name: str) -> None:
    assert let_in("PLAIN", f"\0{name}\0{SECRET}".encode()).principal == f"User:{name}"


@given(st.text(st.characters(min_codepoint=1, max_codepoint=0x7F), min_size=1, max_size=40), st.booleans())
def test_scram_names_the_client(name: str, by_token: bool) -> None:
    escaped = name.replace("=", "=3D").replace(",", "=2C")
    extensions = ",tokenauth=true" if by_token else ""
    exchange = let_in("SCRAM-SHA-256", f"n,,n={escaped},r=abc{extensions},secret={SECRET}".encode())
    assert exchange.principal == f"{'DelegationToken' if by_token else 'User'}:{name}"
    assert exchange.delegation_token_id == (name if by_token else None)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), st.booleans())
def test_oauthbearer_names_the_tokens_claim(name: str, ascii_only: bool) -> None:
    claims = json.dumps({"jti": SECRET, "sub": name, "nested": {"sub": "mallory"}}, ensure_ascii=ascii_only)
    parts = (b'{"alg":"none"}', claims.encode(), SECRET.encode())
    token = b"n,,\x01auth=Bearer " + b".".join(map(base64url, parts)) + b"\x01\x01"
    blank_ends = name == "" or name[0] <= " " or name[-1] <= " "
    assert let_in("OAUTHBEARER", token).principal == (UNKNOWN_PRINCIPAL if blank_ends else f"User:{name}")


@given(st.sampled_from(MECHANISMS), tokens)
def test_names_are_bounded(mechanism: str, token: bytes) -> None:
    principal = let_in(mechanism, token * 40).principal
    assert principal is not None
    assert len(principal.encode()) <= len("DelegationToken:") + MAX_NAME_BYTES
