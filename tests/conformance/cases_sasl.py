"""Cases of a SASL_PLAINTEXT listener with PLAIN and SCRAM-SHA-256 (KIP-43, KIP-152)."""

from __future__ import annotations

from typing import Final

from tests.conformance.conversation import Case, Step, byte_by_byte, together
from tests.conformance.sasl import (
    LOGIN,
    LOOKALIKES,
    PASSWORDS,
    PLAIN_TOKEN,
    authenticate,
    bare_token,
    handshake,
    plain_token,
)
from tests.conformance.words import api_versions, expect_close, get, metadata, produce, push

_PLAIN: Final = LOGIN["PLAIN"]


def _case(name: str, *steps: Step, goes_on: bool = True) -> Case:
    return Case(name=name, steps=steps, listener="SASL", goes_on=goes_on)


_LOGINS = tuple(
    case
    for mechanism, login in LOGIN.items()
    for case in (
        _case(f"{mechanism}: login, then telemetry", *login, get(), push(), metadata()),
        _case(
            f"{mechanism}: ApiVersions before and after",
            api_versions(0),
            *login,
            api_versions(3),
            get(),
            push(),
        ),
        _case(f"{mechanism}: a newer client", api_versions(99), api_versions(5), *login, get()),
        _case(f"{mechanism}: a newer client, afterwards", *login, api_versions(99), api_versions(5), get()),
        _case(
            f"{mechanism}: pipelined afterwards",
            *login,
            together(metadata(), get(), produce(0), api_versions(3)),
        ),
        _case(f"{mechanism}: ApiVersions v5 of nobody, before", api_versions(5), *login, get()),
    )
)

_BEFORE = (
    _case("ApiVersions twice before authentication", api_versions(0), api_versions(3)),
    _case("ApiVersions of newer clients three times before authentication", *(api_versions(99),) * 3),
    _case(
        "ApiVersions of a newer client before authentication, then v0",
        api_versions(6),
        api_versions(0),
        *_PLAIN,
    ),
    _case(
        "ApiVersions with a bad name before authentication", api_versions(3, name="bad name"), api_versions(3)
    ),
    _case(
        "ApiVersions with a wrong node before authentication", api_versions(5, cluster_id="wrong", node_id=99)
    ),
    _case(
        "ApiVersions with a wrong node before authentication, then login",
        api_versions(5, cluster_id="wrong", node_id=99),
        *_PLAIN,
        get(),
    ),
    _case(
        "ApiVersions with only a node before authentication, then again",
        api_versions(5, node_id=1),
        api_versions(5),
        *_PLAIN,
        get(),
    ),
    _case(
        "ApiVersions between handshake and authentication",
        handshake("PLAIN"),
        api_versions(3),
        authenticate(),
    ),
    _case(
        "ApiVersions pipelined with the handshake",
        together(api_versions(3), handshake("PLAIN")),
        authenticate(),
    ),
    _case(
        "a newer client's ApiVersions pipelined with the handshake",
        together(api_versions(99), handshake("PLAIN")),
        authenticate(),
        get(),
    ),
    _case(
        "the whole login in one write",
        together(api_versions(3), handshake("PLAIN"), authenticate(), get(), metadata(), api_versions(0)),
    ),
    _case("login byte by byte", byte_by_byte(api_versions(3), handshake("PLAIN"), authenticate(), get())),
    _case("an unknown mechanism", handshake("GSSAPI")),
    _case("a wrong password", handshake("PLAIN"), authenticate(plain_token("alice", "wrong")), get()),
    _case("SaslHandshake cut by a byte", handshake("PLAIN", cut=1)),
    _case("SaslHandshake of a version that is not there", handshake("PLAIN", version=9)),
)

#: Telemetry requests before authentication: nothing of them may be accepted.
UNAUTHENTICATED: Final = (
    _case("get before authentication", get()),
    _case("push before authentication", push()),
    _case("terminating push before authentication", push(terminating=True)),
    _case("metadata before authentication", metadata()),
    _case("get after ApiVersions, before authentication", api_versions(3), get()),
    _case("get after the handshake, before authentication", handshake("PLAIN"), get()),
    _case("get in the middle of SCRAM", handshake("SCRAM-SHA-256"), authenticate("scram first"), get()),
    _case(
        "get under the correlation id of an ApiVersions before it",
        together(api_versions(0, correlation_id=7), get(correlation_id=7)),
    ),
    _case(
        "push under the correlation id of a SaslHandshake before it",
        together(handshake("PLAIN", correlation_id=7), push(correlation_id=7)),
    ),
    _case(
        "push between ApiVersions under one correlation id",
        together(
            api_versions(0, correlation_id=-1),
            push(correlation_id=-1),
            api_versions(0, correlation_id=-1),
        ),
    ),
    _case(
        "push pipelined behind a failing login",
        together(handshake("PLAIN"), authenticate(plain_token("alice", "wrong")), push()),
    ),
    _case("get of version 1 before authentication", get(version=1)),
    _case("get of version 1 with the zero id before authentication", get(version=1, zero=True)),
    _case("get of version 1 after the handshake, before authentication", handshake("PLAIN"), get(version=1)),
    _case("get of version 99 before authentication", get(version=99)),
    _case("get cut by a byte before authentication", get(cut=1)),
)

#: A PLAIN token begins with a zero byte, so the first letter of a user's name can make it look like
#: a request: G is 71, H is 72.
_TOKENS = (
    _case(
        "bare tokens",
        handshake("PLAIN", version=0),
        bare_token(PLAIN_TOKEN),
        metadata(),
        produce(1),
    ),
    _case(
        "bare tokens, then ApiVersions",
        handshake("PLAIN", version=0),
        bare_token(PLAIN_TOKEN),
        api_versions(3),
    ),
    _case("bare tokens, then get", handshake("PLAIN", version=0), bare_token(PLAIN_TOKEN), get()),
    _case(
        "ApiVersions pipelined with bare tokens' handshake",
        together(api_versions(0), handshake("PLAIN", version=0)),
        bare_token(PLAIN_TOKEN),
        metadata(),
    ),
    *(
        _case(
            f"bare token of {user}",
            handshake("PLAIN", version=0),
            bare_token(plain_token(user, PASSWORDS[user])),
            metadata(),
            produce(1),
        )
        for user in LOOKALIKES
    ),
    *(
        _case(
            f"bare token of {user} with a wrong password",
            handshake("PLAIN", version=0),
            bare_token(plain_token(user, "it-is-wrong")),
        )
        for user in LOOKALIKES
    ),
    _case("a bare token before any handshake", bare_token(PLAIN_TOKEN), expect_close(), goes_on=False),
    _case("bare token of Gina before any handshake", bare_token(plain_token("Gina", "it-is-wrong"))),
)

_AGAIN = (
    _case("get of version 1 after login", *_PLAIN, get(version=1)),
    _case("login after a get of version 1", get(version=1), *_PLAIN),
    _case("SaslHandshake after login", *_PLAIN, handshake("PLAIN"), api_versions(3), get()),
    _case("SaslAuthenticate after login", *_PLAIN, authenticate(), get()),
    _case("SaslHandshake v0 after login", *_PLAIN, handshake("PLAIN", version=0), metadata()),
    Case(name="SaslHandshake without authentication", steps=(handshake("PLAIN"), api_versions(3), get())),
    Case(name="SaslHandshake v0 without authentication", steps=(handshake("PLAIN", version=0), metadata())),
    Case(
        name="SaslHandshake v0 without authentication, then get", steps=(handshake("PLAIN", version=0), get())
    ),
    Case(name="SaslAuthenticate without authentication", steps=(authenticate(), get())),
)

CASES: Final = _LOGINS + _BEFORE + UNAUTHENTICATED + _TOKENS + _AGAIN
