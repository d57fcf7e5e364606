"""Fuzzes the observation of one SASL login, in both directions.

An input is the mechanism (one byte) and then tokens, each after a byte of direction and two of
length. The names are compared with those that a broker reads (:mod:`tests.fuzz.login_broker`), and
no secret may be kept.
"""

from __future__ import annotations

import base64
import json
import struct
from random import Random
from typing import Any

from receiver.principal.sasl import UNKNOWN_PRINCIPAL, SaslExchange
from tests.fuzz.login_broker import claimed_principal
from tests.fuzz.target import Target, require

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "")
_HEAD = struct.Struct(">BH")
_MAX_BYTES = 2000
_SECRET = b"hunter2-hunter2"


def _steps(data: bytes) -> list[tuple[bool, bytes]]:
    """Read the tokens of an input: whether the client sends it, and its bytes."""
    found = []
    at = 0
    while at + _HEAD.size <= len(data):
        direction, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        found.append((direction % 2 == 0, data[at : at + size]))
        at += size
    return found


def _run(data: bytes) -> None:
    if not data:
        return
    mechanism = _MECHANISMS[data[0] % len(_MECHANISMS)]
    exchange = SaslExchange(mechanism, principal_claim="sub")
    first: bytes | None = None
    let_in: str | None = None
    for from_client, token in _steps(data[1:]):
        if from_client:
            exchange.client_token(token)
            first = token if first is None else first
        else:
            exchange.server_token(token)
        require(exchange.complete == (exchange.principal is not None), "complete, and nobody is in")
        require(let_in is None or exchange.principal == let_in, "the principal changed after the login")
        if from_client:
            require(exchange.principal == let_in, "a client's own word let it in")
        let_in = exchange.principal
    if let_in is not None and first is not None:
        _check_name(mechanism, first, let_in)
    _check_secret(exchange)


def _check_name(mechanism: str, token: bytes, principal: str) -> None:
    if principal == UNKNOWN_PRINCIPAL:
        return
    kind, _, name = principal.partition(":")
    require(bool(name) and kind in ("User", "DelegationToken"), f"{principal!r} is no principal")
    if mechanism == "OAUTHBEARER":
        payload = token.split(b".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))
        require(claims["sub"] == name, f"the claim is {claims['sub']!r}, the principal {principal!r}")
        return
    require(mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), f"{mechanism} shows no name")
    require(
        claimed_principal(mechanism, token) == principal, f"{principal!r} is somebody else for the broker"
    )


def _check_secret(exchange: SaslExchange) -> None:
    kept: list[Any] = [getattr(exchange, name) for name in SaslExchange.__slots__]
    for value in kept:
        require(not isinstance(value, bytes | bytearray | memoryview), "bytes of a token are kept")
        if isinstance(value, str):
            require(len(value.encode()) <= 2048 + 16, "a name without a bound is kept")
            require(_SECRET.decode() not in value or "alice" not in value, "a password is kept beside a name")


def token(data: bytes, *, from_client: bool = True) -> bytes:
    """Write a token of an input."""
    return _HEAD.pack(0 if from_client else 1, len(data)) + data


def _jwt(claims: str) -> bytes:
    encoded = [base64.urlsafe_b64encode(text.encode()).rstrip(b"=") for text in ('{"alg":"none"}', claims)]
    return b"n,,\x01auth=Bearer " + b".".join(encoded) + b".\x01\x01"


_CLAIMS = (
    '{"sub":"erin"}',
    '{"sub":"erin","sub":"mallory"}',
    '{"sub":["erin"]}',
    '{"sub":" erin"}',
    '{"iss":"x"}',
    '{"sub":"\\ud800"}',
    '{"sub":"a","x":' + "[" * 200 + "]" * 200 + "}",
    '{"sub":"e","n":NaN,"big":1e999}',
)
_FIRST: dict[int, tuple[bytes, ...]] = {
    0: (b"\0alice\0" + _SECRET, b"alice\0alice\0" + _SECRET, b"bob\0alice\0" + _SECRET, b"\0\0\0", b"alice"),
    1: (
        b"n,,n=carol,r=fyko+d2lbbFgONRv9qkxdawL",
        b"n,a=da=2Cve,n=da=2Cve,r=abc",
        b"n,a=dave,n=mallory,r=abc",
        b"n,,n=token-id,r=abc,tokenauth=true",
        b"n,,n=token-id,r=abc,tokenauth=false,tokenauth=true",
        b"n,,m=x,n=carol,r=abc,x=y",
        b"p=tls-server-end-point,,n=carol,r=abc",
    ),
    3: tuple(_jwt(claims) for claims in _CLAIMS),
    4: (b"\x60\x82opaque",),
    5: (b"",),
}
_FIRST[2] = _FIRST[1]
_SERVER = (b"r=fyko+d2lbbFgONRv9qkxdawLserver,s=c2FsdA==,i=4096", b"v=c2ln", b"e=other-error", b"", b"{}")


def _seeds() -> list[bytes]:
    seeds = []
    for mechanism, firsts in _FIRST.items():
        for first in firsts:
            seeds.append(bytes([mechanism]) + token(first) + token(b"", from_client=False))
            seeds.append(
                bytes([mechanism])
                + token(first)
                + token(_SERVER[0], from_client=False)
                + token(b"c=biws,r=x,p=" + base64.b64encode(_SECRET))
                + token(_SERVER[1], from_client=False)
            )
    return seeds


def _reshape(data: bytes, random: Random) -> bytes:
    """Change the tokens, or the claims of a JSON Web Token that stays valid."""
    mechanism = data[0] % len(_MECHANISMS) if data else 0
    steps = _steps(data[1:])
    for _ in range(1 + int(random.random() * 3)):
        at = int(random.random() * (len(steps) + 1))
        choice = int(random.random() * 7)
        if choice == 0 and steps:
            del steps[at - 1]
        elif choice == 1 and steps:
            steps.insert(at, random.choice(steps))
        elif choice == 2:
            steps.insert(at, (False, random.choice(_SERVER)))
        elif choice == 3:
            steps.insert(at, (True, random.choice(_FIRST[mechanism])))
        elif choice == 4:
            mechanism = random.randrange(len(_MECHANISMS))
        else:
            claims = bytearray(random.choice(_CLAIMS).encode())
            for _ in range(random.randrange(4)):
                where = random.randrange(len(claims))
                claims[where : where + random.randrange(2)] = random.choice(
                    (b'"', b"\\u0000", b",", b"9" * 99, b"{")
                )
            steps.insert(0, (True, _jwt(claims.decode("latin-1"))))
            mechanism = 3
    return bytes([mechanism]) + b"".join(token(content, from_client=client) for client, content in steps)


_TOKENS = (
    *(first for firsts in _FIRST.values() for first in firsts),
    *_SERVER,
    b"\0",
    b",",
    b"=2C",
    b"=3D",
    b"n=",
    b"a=",
    b",tokenauth=true",
    b"\x01auth=",
    b"\xed\xa0\x80",
    "\u0131\u212a".encode(),
    b"\r\n",
)

TARGET = Target(
    name="sasl",
    run=_run,
    seeds=_seeds,
    tokens=_TOKENS,
    reshape=_reshape,
    max_bytes=_MAX_BYTES,
    max_memory=8 << 20,
    brief=40_000,
)
