"""Forged login sequences, with the expected answers and principals.

The broker's listener authenticates everybody but for SASL_BEFORE_OPEN, whose serves anybody.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.integration.security.forger import (
    CLOSED,
    OK,
    Asked,
    Outcome,
    Scram,
    authenticate,
    bearer,
    claims,
    handshake,
    plain,
)
from tests.integration.security.support import ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED
from tests.testbed.broker import SASL_USERS

UNSUPPORTED_SASL_MECHANISM: Final = 33
ALICE, BOB, UNKNOWN = "User:alice", "User:bob", "User:unknown"

WRONG: Final = "wrong-secret"
SCRAM: Final = "SCRAM-SHA-256"

#: Counters of the sidecar.
SUCCEEDED, FAILED = "authenticated succeeded", "authenticated failed"
TOO_EARLY: Final = "protocol unauthenticated_telemetry"
ACCEPTED: Final = "pushes NONE"

_FAILS: Final[list[Outcome]] = [OK, SASL_AUTHENTICATION_FAILED, CLOSED]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A forger whose push must be refused.

    Attributes:
        login: Its requests.
        answers: The answers to these, to a request for subscriptions and to a push.
        counted: The sidecar's counts.
        listener: Where it connects.
    """

    login: tuple[Asked, ...] = ()
    answers: list[Outcome]
    counted: Mapping[str, int]
    listener: str = "SASL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A forger whose push is accepted under its true principal.

    Attributes:
        login: Its requests.
        answers: The answers to these.
        principal: The principal of the push.
        counted: The sidecar's counts besides a login and a push.
    """

    login: tuple[Asked, ...]
    answers: list[Outcome]
    principal: str
    counted: Mapping[str, int] = field(default_factory=dict)


REFUSED: Final[dict[str, Refused]] = {
    "nothing": Refused(answers=[CLOSED], counted={}),
    "a wrong password": Refused(
        login=(handshake(), plain("alice", WRONG)), answers=_FAILS, counted={FAILED: 1}
    ),
    "a wrong password, then a right one": Refused(
        login=(handshake(), plain("bob", WRONG), handshake(), plain("alice")),
        answers=_FAILS,
        counted={FAILED: 1},
    ),
    "two handshakes, two names": Refused(
        login=(handshake(SCRAM), handshake(), Scram("alice").first(), plain("bob")),
        answers=[OK, ILLEGAL_SASL_STATE, CLOSED],
        counted={FAILED: 1},
    ),
    "a login half way": Refused(
        login=(handshake(SCRAM), Scram("alice").first()),
        answers=[OK, OK, ILLEGAL_SASL_STATE, CLOSED],
        counted={TOO_EARLY: 1},
    ),
    "a handshake": Refused(
        login=(handshake(),), answers=[OK, ILLEGAL_SASL_STATE, CLOSED], counted={TOO_EARLY: 1}
    ),
    "a token without a handshake": Refused(login=(plain("alice"),), answers=[CLOSED], counted={}),
    "a mechanism that the broker lacks": Refused(
        login=(handshake("GSSAPI"), plain("alice")),
        answers=[UNSUPPORTED_SASL_MECHANISM, CLOSED],
        counted={FAILED: 1},
    ),
    **{
        f"two names in PLAIN: {token!r}": Refused(
            login=(handshake(), authenticate(token.format(SASL_USERS["alice"]))),
            answers=_FAILS,
            counted={FAILED: 1},
        )
        for token in ("bob\0alice\0{}", "\0alice\0{}\0bob", "bob\0alice\0{}\0", "alice\0bob\0{}")
    },
    **{
        f"two names in SCRAM: {first}": Refused(
            login=(handshake(SCRAM), authenticate(first)), answers=_FAILS, counted={FAILED: 1}
        )
        for first in (
            "n,,n=bob,n=alice,r=0123456789",
            "n,a=bob,n=alice,r=0123456789",
            "n,,r=0123456789,n=alice",
            "n,,n=alice,r=0123456789,tokenauth=true",
            "n,,n=alice,r=0123456789,tokenauth=false,tokenauth=true",
        )
    },
    "a bearer token of one on behalf of another": Refused(
        login=(handshake("OAUTHBEARER"), bearer(claims(sub="alice"), authzid="bob")),
        answers=_FAILS,
        counted={FAILED: 1},
    ),
    # The broker refuses in an answer without an error code, and waits for the client's reply
    # (RFC 7628).
    **{
        f"a bearer token with {what}": Refused(
            login=(handshake("OAUTHBEARER"), bearer(text)),
            answers=[OK, OK, ILLEGAL_SASL_STATE, CLOSED],
            counted={TOO_EARLY: 1},
        )
        for what, text in {
            "an object for a name": claims(sub={"sub": "alice"}),
            "a list for a name": claims(sub=["alice", "bob"]),
            "a nested name alone": claims(inner={"sub": "alice"}),
            "an end long ago": json.dumps({"sub": "alice", "iat": 0, "exp": 1}),
        }.items()
    },
    "nothing, where none is needed": Refused(listener="OPEN_BEFORE_SASL", answers=[CLOSED], counted={}),
    "a wrong password, where none is needed": Refused(
        listener="OPEN_BEFORE_SASL",
        login=(handshake(), plain("alice", WRONG)),
        answers=_FAILS,
        counted={FAILED: 1},
    ),
    "a login half way, where none is needed": Refused(
        listener="OPEN_BEFORE_SASL",
        login=(handshake(SCRAM), Scram("alice").first()),
        answers=[OK, OK, ILLEGAL_SASL_STATE, CLOSED],
        counted={TOO_EARLY: 1},
    ),
    "nothing, where the broker needs nothing": Refused(
        listener="SASL_BEFORE_OPEN", answers=[ILLEGAL_SASL_STATE] * 2, counted={TOO_EARLY: 2}
    ),
    "a login, where the broker needs nothing": Refused(
        listener="SASL_BEFORE_OPEN",
        login=(handshake(), plain("alice")),
        answers=[ILLEGAL_SASL_STATE] * 4,
        counted={FAILED: 1, TOO_EARLY: 2},
    ),
}

#: Cases in which it matters that the broker answers before the next request arrives.
ONE_BY_ONE: Final = (
    "a wrong password",
    "two handshakes, two names",
    "a login half way",
    "a bearer token with an end long ago",
    "a login half way, where none is needed",
    "a login, where the broker needs nothing",
)

TAKEN: Final[dict[str, Taken]] = {
    "a login": Taken(login=(handshake(), plain("alice")), answers=[OK, OK], principal=ALICE),
    # Without re-authentication (KIP-368), the broker refuses the second login, and continues.
    "alice's login, then bob's": Taken(
        login=(handshake(), plain("alice"), handshake(), plain("bob")),
        answers=[OK, OK, ILLEGAL_SASL_STATE, ILLEGAL_SASL_STATE],
        principal=ALICE,
        counted={FAILED: 1},
    ),
    "bob's login, then alice's": Taken(
        login=(handshake(), plain("bob"), handshake(), plain("alice")),
        answers=[OK, OK, ILLEGAL_SASL_STATE, ILLEGAL_SASL_STATE],
        principal=BOB,
        counted={FAILED: 1},
    ),
    "bob's token, then alice's": Taken(
        login=(handshake(), plain("bob"), plain("alice")),
        answers=[OK, OK, ILLEGAL_SASL_STATE],
        principal=BOB,
    ),
    **{
        what: Taken(login=(handshake("OAUTHBEARER"), token), answers=[OK, OK], principal=principal)
        for what, token, principal in (
            ("a nested name", bearer(claims(sub="alice", inner={"sub": "bob"})), ALICE),
            ("two algorithms", bearer(claims(sub="alice"), header='{"alg":"RS256","alg":"none"}'), ALICE),
            (
                "a name beside the algorithm",
                bearer(claims(sub="alice"), header='{"alg":"none","sub":"bob"}'),
                ALICE,
            ),
            # The broker uses the last of two names; another reader may use the first.
            ("two names, alice's first", bearer('{"sub":"alice","sub":"bob",' + claims()[1:]), UNKNOWN),
            ("two names, alice's last", bearer('{"sub":"bob",' + claims(sub="alice")[1:]), UNKNOWN),
        )
    },
}
