"""SASL logins: which name counts, and when.

The broker here accepts telemetry from any client, so every refusal is the session's own.
"""

from __future__ import annotations

import gc
import struct
from collections.abc import Sequence

import pytest

from receiver.principal.sasl import UNKNOWN_PRINCIPAL
from receiver.session.effects import LoginOutcome
from receiver.telemetry.identity import ANONYMOUS
from receiver.wire.error_codes import ErrorCode
from receiver.wire.headers import RequestHeader
from tests.testbed.scripted_broker import RANGES, Answers, parse, request_frame
from tests.unit.session.support import (
    ARRIVALS,
    WHOLE,
    Wire,
    api_versions,
    correlation_id_of,
    get_subscriptions,
    read_subscriptions,
    sasl_handshake,
)

SASL_AUTHENTICATE = 36
OK = (0, b"")
WRONG = (int(ErrorCode.SASL_AUTHENTICATION_FAILED), b"")


class SaslAnswers(Answers):
    """A broker with prepared answers to logins: an error code and a token for each request."""

    def __init__(self, verdicts: Sequence[tuple[int, bytes]], *, handshake_error: int = 0) -> None:
        super().__init__(ranges=RANGES)
        self._verdicts = list(verdicts)
        self._handshake_error = handshake_error

    def to(self, data: bytes) -> bytes | None:
        request = parse(data)
        if request.api_key == 17 and request.api_version == 1:
            self.seen.append(request)
            return struct.pack(">ihi", request.correlation_id, self._handshake_error, 0)
        if request.api_key != SASL_AUTHENTICATE:
            return super().to(data)
        self.seen.append(request)
        error, token = self._verdicts.pop(0)
        body = struct.pack(">hhi", error, -1, len(token)) + token + bytes(8)
        return struct.pack(">i", request.correlation_id) + body


def wire(
    *verdicts: tuple[int, bytes],
    arrival: str = WHOLE,
    security_protocol: str = "SASL_PLAINTEXT",
    handshake_error: int = 0,
) -> Wire:
    made = Wire(arrival=arrival, security_protocol=security_protocol)
    made.answers = SaslAnswers(verdicts, handshake_error=handshake_error)
    return made


def handshake(mechanism: str = "PLAIN", correlation_id: int = 17) -> bytes:
    name = mechanism.encode()
    return request_frame(17, 1, correlation_id, struct.pack(">h", len(name)) + name)


def authenticate(token: bytes, correlation_id: int = 36) -> bytes:
    return request_frame(SASL_AUTHENTICATE, 1, correlation_id, struct.pack(">i", len(token)) + token)


def plain(user: str, password: str = "open sesame") -> bytes:
    return authenticate(f"\0{user}\0{password}".encode())


def answered_error(answer: bytes) -> int:
    return read_subscriptions(answer).error_code


def outcomes(made: Wire) -> list[tuple[str, LoginOutcome]]:
    return made.events.logins


@pytest.mark.parametrize("arrival", ARRIVALS)
def test_a_name_counts_once_the_broker_accepts_the_login(arrival: str) -> None:
    made = wire(OK, arrival=arrival)
    made.exchange(handshake())
    made.send(plain("alice"))
    assert made.identity.principal == ANONYMOUS
    made.answer()
    made.received()
    assert made.identity.principal == "User:alice"
    assert made.identity.sasl_mechanism == "PLAIN"
    assert outcomes(made) == [("PLAIN", LoginOutcome.SUCCEEDED)]
    assert answered_error(made.exchange(get_subscriptions())) == ErrorCode.NONE


def test_the_client_sees_the_brokers_answers_under_its_own_correlation_ids() -> None:
    made = wire((0, b"challenge"))
    assert correlation_id_of(made.exchange(handshake(correlation_id=5))) == 5
    answer = made.exchange(authenticate(b"\0alice\0secret", correlation_id=6))
    assert correlation_id_of(answer) == 6
    assert answer[4:] == struct.pack(">hhi", 0, -1, 9) + b"challenge" + bytes(8)
    assert [request.body for request in made.seen()] == [
        b"\0\5PLAIN",
        struct.pack(">i", 13) + b"\0alice\0secret",
    ]


def test_a_failed_login_sets_no_principal() -> None:
    made = wire(WRONG)
    made.exchange(handshake())
    made.exchange(plain("alice"))
    assert made.identity.principal == ANONYMOUS
    assert outcomes(made) == [("PLAIN", LoginOutcome.FAILED)]
    assert answered_error(made.exchange(get_subscriptions())) == ErrorCode.ILLEGAL_SASL_STATE
    assert len(made.events.unauthenticated) == 1


def test_a_refused_mechanism_sets_no_principal() -> None:
    made = wire(OK, handshake_error=ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    made.send(handshake() + plain("alice"))
    made.answer()
    made.received()
    assert made.identity.principal == ANONYMOUS
    assert outcomes(made) == [("PLAIN", LoginOutcome.FAILED)]


def test_telemetry_before_a_required_login_is_refused_even_if_the_broker_accepts_it() -> None:
    made = wire()
    assert answered_error(made.exchange(get_subscriptions())) == ErrorCode.ILLEGAL_SASL_STATE
    made.exchange(api_versions(0))
    assert answered_error(made.exchange(get_subscriptions())) == ErrorCode.ILLEGAL_SASL_STATE
    assert not made.events.subscriptions


def test_telemetry_sent_together_with_a_login_waits_for_its_outcome() -> None:
    made = wire(OK)
    made.send(handshake() + plain("alice") + get_subscriptions())
    made.answer()
    *_, answer = made.received()
    assert answered_error(answer) == ErrorCode.NONE

    made = wire(WRONG)
    made.send(handshake() + plain("alice") + get_subscriptions())
    made.answer()
    *_, answer = made.received()
    assert answered_error(answer) == ErrorCode.ILLEGAL_SASL_STATE


def test_a_failed_exchanges_name_is_not_used_for_the_next() -> None:
    made = wire(WRONG, OK)
    made.send(handshake() + plain("alice") + handshake() + plain("mallory"))
    made.answer()
    made.received()
    assert made.identity.principal == "User:mallory"


def test_a_second_pipelined_handshake_does_not_change_the_first_ones_name() -> None:
    made = wire(OK)
    # The broker accepted mallory's token, whatever exchange began after it.
    made.send(handshake() + plain("mallory") + handshake("SCRAM-SHA-256"))
    made.answer()
    made.received()
    assert made.identity.principal == "User:mallory"
    assert made.identity.sasl_mechanism == "PLAIN"


def test_a_second_token_in_one_exchange_changes_nothing() -> None:
    made = wire(OK, OK)
    made.send(handshake() + plain("mallory") + plain("alice"))
    made.answer()
    made.received()
    assert made.identity.principal in {"User:mallory", UNKNOWN_PRINCIPAL}
    made = wire(WRONG, OK)
    made.send(handshake() + plain("mallory") + plain("alice"))
    made.answer()
    made.received()
    assert made.identity.principal == ANONYMOUS


def test_a_response_with_the_clients_correlation_id_does_not_end_the_login() -> None:
    made = wire(WRONG)
    # Each under the correlation id of the login: the broker answers ApiVersions before a login.
    made.exchange(handshake())
    made.send(api_versions(0, 36) + authenticate(b"\0alice\0guess", 36) + api_versions(0, 36))
    made.answer()
    assert [correlation_id_of(answer) for answer in made.received()] == [36, 36, 36]
    assert made.identity.principal == ANONYMOUS


def test_reauthentication_with_the_same_name_changes_nothing() -> None:
    made = wire(OK, OK)
    for _ in range(2):
        made.exchange(handshake())
        made.exchange(plain("alice"))
    assert made.identity.principal == "User:alice"
    assert [outcome for _, outcome in outcomes(made)] == [LoginOutcome.SUCCEEDED, LoginOutcome.RENEWED]


def test_the_principal_stays_during_reauthentication() -> None:
    made = wire(OK, WRONG)
    made.exchange(handshake())
    made.exchange(plain("alice"))
    made.exchange(handshake())
    made.exchange(plain("mallory"))
    assert made.identity.principal == "User:alice"


def test_reauthentication_with_another_name_makes_the_principal_unknown() -> None:
    made = wire(OK, OK, OK)
    for user in ("alice", "mallory", "alice"):
        made.exchange(handshake())
        made.exchange(plain(user))
    assert made.identity.principal == UNKNOWN_PRINCIPAL
    assert [outcome for _, outcome in outcomes(made)][1] == LoginOutcome.CHANGED


def test_a_mechanism_without_a_readable_name_gives_the_unknown_principal() -> None:
    made = wire((0, b"token"), OK)
    made.exchange(handshake("GSSAPI"))
    made.exchange(authenticate(b"\x60\x82krb5"))
    assert made.identity.principal == UNKNOWN_PRINCIPAL
    assert made.identity.sasl_mechanism == "GSSAPI"


def test_a_login_on_a_listener_without_sasl_still_sets_the_principal() -> None:
    made = wire(OK, security_protocol="PLAINTEXT")
    made.exchange(handshake())
    made.exchange(plain("alice"))
    assert made.identity.principal == "User:alice"


@pytest.mark.parametrize(
    "request_bytes",
    [
        authenticate(b"\0alice\0secret"),
        request_frame(SASL_AUTHENTICATE, 1, 36, b"\x7f\xff\xff\xff"),
        request_frame(SASL_AUTHENTICATE, 9, 36, b"\0\0\0\1x"),
        request_frame(17, 1, 17, b"\x7f"),
    ],
    ids=["without a handshake", "cut", "of a version that is not there", "handshake cut"],
)
def test_malformed_sasl_requests_pass_and_set_no_principal(request_bytes: bytes) -> None:
    made = wire(OK)
    if parse(request_bytes[4:]).api_key == SASL_AUTHENTICATE and b"alice" not in request_bytes:
        made.exchange(handshake())
    made.exchange(request_bytes)
    assert made.seen()[-1].body == parse(request_bytes[4:]).body
    assert made.identity.principal == ANONYMOUS


def test_no_password_is_held_until_the_brokers_response() -> None:
    made = wire(OK)
    made.exchange(handshake())
    held = made.session.held_bytes
    made.send(plain("alice", "x" * 1000))
    assert held == 0
    assert made.session.held_bytes < 1000


def test_a_login_with_bare_tokens_gives_the_unknown_principal() -> None:
    made = wire()
    made.send(sasl_handshake(0))
    assert made.identity.principal == UNKNOWN_PRINCIPAL


def test_tagged_fields_of_a_header_are_not_kept_until_the_answer() -> None:
    made = wire(OK)
    made.exchange(handshake())
    tagged = b"\1\0\xa0\x8d\x06" + bytes(100_000)  # one tagged field of 100,000 bytes
    made.send(request_frame(SASL_AUTHENTICATE, 2, 36, tagged + b"\7\0a\0b" + b"\0\0"))
    found = [held for held in gc.get_objects() if isinstance(held, RequestHeader) and held.tagged_fields]
    assert not found
