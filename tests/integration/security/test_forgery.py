"""No forged, replayed or interleaved login gets another user's principal.

Each says what every request is answered, who the sidecar says the client is, how many logins it
counted, and which pushes came out of it. Forgers know a client instance of alice's, and ask and
push in its name.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from typing import Final

import pytest

from receiver.principal.sasl import UNKNOWN_PRINCIPAL
from tests.integration.gateway.support import GatewaySidecar, read_get
from tests.integration.security.forged_logins import (
    ACCEPTED,
    ALICE,
    BOB,
    FAILED,
    ONE_BY_ONE,
    REFUSED,
    SCRAM,
    SUCCEEDED,
    TAKEN,
    TOO_EARLY,
    WRONG,
    Refused,
    Taken,
)
from tests.integration.security.forger import (
    CLOSED,
    LET_IN,
    NOBODY,
    OK,
    SENT_SECRETS,
    Asked,
    Forger,
    Outcome,
    Scram,
    Watch,
    api_versions,
    asks,
    came,
    creates,
    describes,
    handshake,
    plain,
    pushes,
    read_created,
    scram,
    token_of,
)
from tests.integration.security.support import (
    ILLEGAL_SASL_STATE,
    INTERVAL_MS,
    MISCONFIGURED,
    SASL_AUTHENTICATION_FAILED,
    TIMEOUT_S,
)
from tests.testbed import raw as requests
from tests.testbed.broker import SASL_USERS, KafkaBroker
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import framed
from tests.testbed.sidecar import config_for

DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, UNKNOWN_SUBSCRIPTION_ID = 64, 117
LISTENERS: Final = ("SASL", "REAUTH", *MISCONFIGURED)

#: The broker refuses any re-authentication that comes sooner (KIP-368).
NO_SOONER_THAN_S: Final = 1.1

Telemetry = tuple[Asked, Asked]


@pytest.fixture(scope="module")
def sidecar(secured_broker: KafkaBroker) -> Iterator[GatewaySidecar]:
    """A sidecar that logs everything, with two misconfigured listeners."""
    settings = config_for(secured_broker, listeners=MISCONFIGURED)
    settings["listeners"] = [
        {**setting, "bind": f"{LOOPBACK}:{free_port()}"}
        for setting in settings["listeners"]
        if setting["name"] in LISTENERS
    ]
    settings["log"] = {"level": "debug", "requests": True}
    settings["plugins"] = [{"type": "console", "format": "json", "metrics": True}]
    with GatewaySidecar(settings, wait_for_broker=False) as started:
        started.put_subscription("everything", ["*"], INTERVAL_MS)
        yield started


def new_instance(sidecar: GatewaySidecar) -> tuple[bytes, int]:
    """Return a new client instance of alice, and the id of its subscription.

    One that has pushed may not push again within its interval, over any connection.
    """
    with Watch(sidecar).connect() as raw:
        assert raw.codes_of(handshake(), plain("alice"), asks()) == [OK, OK, OK]
        _, instance, subscription_id = read_get(raw.heard[2])
    return instance, subscription_id


@pytest.fixture
def known(sidecar: GatewaySidecar) -> tuple[bytes, int]:
    return new_instance(sidecar)


@pytest.fixture
def telemetry(known: tuple[bytes, int]) -> Telemetry:
    """The forger's aim: to get subscriptions, and to push."""
    return asks(), pushes(*known)


# -- refused logins --------------------------------------------------------------------------------


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_no_push_is_accepted_after(sidecar: GatewaySidecar, telemetry: Telemetry, case: Refused) -> None:
    watch = Watch(sidecar, case.listener)
    with watch.connect() as raw:
        assert raw.codes_of(*case.login, *telemetry) == case.answers
        assert watch.principal(raw) in {NOBODY, None}
    assert watch.ended_as(raw) <= {NOBODY}
    assert watch.counted() == case.counted


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_no_push_after_a_forged_login_that_waits_for_each_answer(
    sidecar: GatewaySidecar, telemetry: Telemetry, name: str
) -> None:
    case = REFUSED[name]
    watch = Watch(sidecar, case.listener)
    heard: list[Outcome] = []
    with watch.connect() as raw:
        for item in (*case.login, *telemetry):
            if CLOSED not in heard:
                heard += raw.codes_of(item)
        assert heard == case.answers
        assert watch.principal(raw) in {NOBODY, None}
    assert watch.ended_as(raw) <= {NOBODY}
    assert watch.counted() == case.counted


# -- accepted logins -------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["SASL", "OPEN_BEFORE_SASL"])
@pytest.mark.parametrize("case", TAKEN.values(), ids=TAKEN)
def test_a_push_has_the_true_principal_after(
    sidecar: GatewaySidecar, telemetry: Telemetry, case: Taken, listener: str
) -> None:
    watch = Watch(sidecar, listener)
    with watch.connect() as raw:
        assert raw.codes_of(*case.login, *telemetry) == [*case.answers, OK, OK]
        assert watch.principal(raw) == case.principal
        assert watch.pushed_by(raw) == case.principal
    assert watch.ended_as(raw) == {case.principal}
    assert watch.counted() == {SUCCEEDED: 1, ACCEPTED: 1, **case.counted}


@pytest.mark.parametrize(("authzid", "extensions"), [("", ",n=bob"), ("alice", ""), ("", ",tokenauth=false")])
def test_scram_extensions_with_another_name_are_ignored(
    sidecar: GatewaySidecar, telemetry: Telemetry, authzid: str, extensions: str
) -> None:
    """The broker ignores such extensions and checks alice's password."""
    watch = Watch(sidecar)
    with watch.connect() as raw:
        assert scram(raw, Scram("alice", extensions=extensions), authzid=authzid) == [OK, OK, OK]
        assert raw.codes_of(*telemetry) == [OK, OK]
        assert watch.pushed_by(raw) == ALICE
    assert watch.ended_as(raw) == {ALICE}
    assert watch.counted() == {SUCCEEDED: 1, ACCEPTED: 1}


def test_bare_tokens_and_then_telemetry(sidecar: GatewaySidecar, telemetry: Telemetry) -> None:
    """After SaslHandshake v0 the broker itself answers telemetry and keeps the push."""
    watch = Watch(sidecar)
    with watch.connect() as raw:
        assert raw.codes_of(handshake(version=0)) == [OK]
        assert raw.exchange(framed(b"\0alice\0" + SASL_USERS["alice"].encode())) == b""
        assert raw.codes_of(*telemetry) == [OK, UNKNOWN_SUBSCRIPTION_ID]
        assert watch.principal(raw) == UNKNOWN_PRINCIPAL
    assert watch.ended_as(raw) <= {UNKNOWN_PRINCIPAL}
    assert watch.counted() == {}


@pytest.mark.parametrize("same", [0, 71, -1, -(1 << 31), (1 << 31) - 1])
def test_every_request_may_have_the_same_correlation_id(
    sidecar: GatewaySidecar, known: tuple[bytes, int], same: int
) -> None:
    """A public request and one that needs a login have the same correlation id."""
    watch = Watch(sidecar)
    rest = (api_versions(same), asks(same), pushes(*known, same), api_versions(same))
    with watch.connect() as raw:
        assert raw.codes_of(api_versions(same), *rest) == [OK, CLOSED]
    assert watch.ended_as(raw) <= {NOBODY}
    with watch.connect() as raw:
        wrong = plain("alice", WRONG, same)
        codes = raw.codes_of(api_versions(same), handshake("PLAIN", same), wrong, *rest)
        assert codes == [OK, OK, SASL_AUTHENTICATION_FAILED, CLOSED]
    assert watch.ended_as(raw) <= {NOBODY}
    assert watch.counted() == {FAILED: 1}
    with watch.connect() as raw:
        codes = raw.codes_of(api_versions(same), handshake("PLAIN", same), plain("alice", None, same), *rest)
        assert codes == [OK] * 7
        assert watch.pushed_by(raw) == ALICE
    assert watch.counted() == {FAILED: 1, SUCCEEDED: 1, ACCEPTED: 1}


# -- replays ---------------------------------------------------------------------------------------


def test_a_replayed_login_is_refused(sidecar: GatewaySidecar, telemetry: Telemetry) -> None:
    """The frames of a good login are sent again; the broker's nonce differs."""
    watch = Watch(sidecar)
    alice = Scram("alice")
    with watch.connect() as raw:
        first = alice.first()
        assert raw.codes_of(handshake(SCRAM), first) == [OK, OK]
        final = alice.final(token_of(raw.heard[1]))
        assert raw.codes_of(final) == [OK]
        assert watch.principal(raw) == ALICE
    with watch.connect() as raw:
        codes = raw.codes_of(handshake(SCRAM), first, final, *telemetry)
        assert codes == [OK, OK, SASL_AUTHENTICATION_FAILED, CLOSED]
    assert watch.ended_as(raw) <= {NOBODY}
    assert watch.counted() == {SUCCEEDED: 1, FAILED: 1}


def test_two_logins_cannot_swap_connections(sidecar: GatewaySidecar, telemetry: Telemetry) -> None:
    watch = Watch(sidecar)
    with watch.connect() as one, watch.connect() as other:
        alice, bob = Scram("alice"), Scram("bob")
        assert one.codes_of(handshake(SCRAM), alice.first()) == [OK, OK]
        assert other.codes_of(handshake(SCRAM), bob.first()) == [OK, OK]
        alices, bobs = alice.final(token_of(one.heard[1])), bob.final(token_of(other.heard[1]))
        assert one.codes_of(bobs, *telemetry) == [SASL_AUTHENTICATION_FAILED, CLOSED]
        assert other.codes_of(alices, *telemetry) == [SASL_AUTHENTICATION_FAILED, CLOSED]
    assert watch.ended_as(one) | watch.ended_as(other) <= {NOBODY}
    assert watch.counted() == {FAILED: 2}


def begin(watch: Watch, telemetry: Sequence[Asked]) -> Forger:
    """Log in as alice, and wait until she may log in again."""
    raw = watch.connect()
    assert raw.codes_of(handshake(), plain("alice"), *telemetry) == [OK, OK, OK, OK]
    assert watch.pushed_by(raw) == ALICE
    time.sleep(NO_SOONER_THAN_S)
    return raw


def test_reauthentication_under_another_name_is_refused(
    sidecar: GatewaySidecar, telemetry: Telemetry
) -> None:
    watch = Watch(sidecar, "REAUTH")
    with begin(watch, telemetry) as raw:
        assert raw.codes_of(handshake(), plain("bob")) == [OK, SASL_AUTHENTICATION_FAILED]
        assert watch.principal(raw) in {ALICE, None}
        assert raw.codes_of(*telemetry) == [CLOSED]
    assert watch.ended_as(raw) == {ALICE}
    assert watch.counted() == {SUCCEEDED: 1, FAILED: 1, ACCEPTED: 1}


def test_telemetry_after_a_reauthentication_under_another_name(
    sidecar: GatewaySidecar, telemetry: Telemetry
) -> None:
    """The broker answers earlier requests for alice and then refuses the login.

    What comes instead are its answers to the markers, under ids that the client has never heard of.
    """
    watch = Watch(sidecar, "REAUTH")
    with begin(watch, telemetry) as raw:
        again = (handshake("PLAIN", 11), plain("bob", None, 12), *telemetry)
        raw.send(b"".join(item.frame for item in again))
        answers = [raw.frame() for _ in again]
        assert raw.fate() in {"end", "reset"}
    ids = [struct.unpack_from(">i", answer)[0] for answer in answers]
    assert (ids[0], ids[3]) == (11, 12)
    assert max(ids[1:3]) < 0
    assert answers[3][4:6] == struct.pack(">h", SASL_AUTHENTICATION_FAILED)
    assert watch.ended_as(raw) == {ALICE}
    assert watch.counted() == {SUCCEEDED: 1, FAILED: 1, ACCEPTED: 1}


def test_telemetry_during_a_reauthentication(sidecar: GatewaySidecar, telemetry: Telemetry) -> None:
    watch = Watch(sidecar, "REAUTH")
    with begin(watch, telemetry) as raw:
        assert raw.codes_of(handshake(), telemetry[1], plain("bob")) == [OK, ILLEGAL_SASL_STATE, CLOSED]
    assert watch.ended_as(raw) == {ALICE}
    assert watch.counted() == {SUCCEEDED: 1, TOO_EARLY: 1, ACCEPTED: 1}


# -- delegation tokens (KIP-48) --------------------------------------------------------------------


def with_token(watch: Watch, token: tuple[str, str], sidecar: GatewaySidecar) -> str | None:
    """Log in with a delegation token (its id and password) and push; return the principal."""
    token_id, password = token
    telemetry = asks(), pushes(*new_instance(sidecar))
    with watch.connect() as raw:
        assert scram(raw, Scram(token_id, password, extensions=",tokenauth=true")) == [OK, OK, OK]
        codes = raw.codes_of(describes(), *telemetry)  # which tells nothing to who comes with a token
        assert codes == [DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, OK, OK]
        principal = watch.principal(raw)
        assert watch.pushed_by(raw) == principal
    return principal


def test_the_owner_of_a_token_made_through_the_sidecar_is_known(sidecar: GatewaySidecar) -> None:
    token = requests.create_delegation_token(sidecar.port("SASL"), "alice", SASL_USERS["alice"])
    assert with_token(Watch(sidecar), token, sidecar) == ALICE
    assert with_token(Watch(sidecar, "REAUTH"), token, sidecar) == ALICE


def test_the_owner_of_a_token_made_elsewhere_is_known_after_it_was_described(
    sidecar: GatewaySidecar, secured_broker: KafkaBroker
) -> None:
    token = requests.create_delegation_token(secured_broker.port("SASL"), "bob", SASL_USERS["bob"])
    watch = Watch(sidecar)
    assert with_token(watch, token, sidecar) == f"DelegationToken:{token[0]}"
    with watch.connect() as raw:
        assert raw.codes_of(describes()) == [CLOSED]  # without a login
    assert with_token(watch, token, sidecar) == f"DelegationToken:{token[0]}"
    with watch.connect() as raw:
        assert raw.codes_of(handshake(), plain("bob"), describes()) == [OK, OK, OK]
    assert with_token(watch, token, sidecar) == BOB


def test_a_token_has_its_owners_principal_whoever_requested_it(
    sidecar: GatewaySidecar, secured_broker: KafkaBroker
) -> None:
    watch = Watch(sidecar)
    with watch.connect() as raw:
        assert raw.codes_of(handshake(), plain("alice"), creates("bob")) == [OK, OK, OK]
        token = read_created(raw.heard[2])
    with Forger(secured_broker.port("SASL")) as raw:
        assert raw.codes_of(handshake(), plain("bob")) == [OK, OK]
        wait_until(
            lambda: token[0].encode() in raw.exchange(describes().frame),
            timeout_s=TIMEOUT_S,
            what="the broker to know the token",
        )
    assert with_token(watch, token, sidecar) == BOB


# -- after all of these ----------------------------------------------------------------------------


def test_only_accepted_pushes_left_the_sidecar(sidecar: GatewaySidecar, telemetry: Telemetry) -> None:
    watch = Watch(sidecar)
    with watch.connect() as raw:
        assert raw.codes_of(handshake(), plain("alice"), *telemetry) == [OK, OK, OK, OK]
        assert watch.pushed_by(raw) == ALICE
    pushes = came(sidecar.logged_objects())
    assert sorted(push["source"] for push in pushes) == sorted(LET_IN)
    accepted = sum(
        value for labels, value in sidecar.series("pushes_total").items() if ("outcome", "NONE") in labels
    )
    assert len(pushes) == accepted


def test_no_password_or_token_is_in_the_log_or_an_answer(sidecar: GatewaySidecar) -> None:
    lists = [f"/v1/{name}?limit=1000" for name in ("connections", "clients", "subscriptions")]
    paths = (*lists, "/metrics", "/livez", "/readyz")
    with Watch(sidecar).connect() as raw:
        assert scram(raw, Scram("alice")) == [OK, OK, OK]
        shown = {path: sidecar.http.get(path).text for path in paths}
    shown["the log"] = sidecar.log_text()
    assert ALICE in shown[lists[0]]
    assert ALICE in shown["the log"]
    assert [
        (secret, where) for where, text in shown.items() for secret in SENT_SECRETS if secret in text
    ] == []
