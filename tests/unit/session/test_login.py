"""Logins that pass: whose name counts, and when. The broker here takes anybody's telemetry, so what refuses
it is the session alone."""

from __future__ import annotations

import gc
import struct
from collections.abc import Sequence

import pytest

from receiver.session.login import LoginOutcome
from receiver.session.session import SessionEnd
from receiver.settings.limits import LimitsSettings, PrincipalLimitsSettings
from receiver.telemetry.connection import ANONYMOUS, UNKNOWN_PRINCIPAL
from receiver.telemetry.control.limits import Limits
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
    """A broker whose verdicts on logins are told beforehand: error code and token, one for each request."""

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
    limits: Limits | None = None,
) -> Wire:
    made = Wire(arrival=arrival, security_protocol=security_protocol, limits=limits)
    made.answers = SaslAnswers(verdicts, handshake_error=handshake_error)
    return made


def handshake(mechanism: str = "PLAIN", correlation_id: int = 17) -> bytes:
    name = mechanism.encode()
    return request_frame(17, 1, correlation_id, struct.pack(">h", len(name)) + name)


def authenticate(token: bytes, correlation_id: int = 36) -> bytes:
    return request_frame(SASL_AUTHENTICATE, 1, correlation_id, struct.pack(">i", len(token)) + token)


def plain(user: str, password: str = "open sesame") -> bytes:
    return authenticate(f"\0{user}\0{password}".encode())


def error_of(answer: bytes) -> int:
    return read_subscriptions(answer).error_code


def outcomes(made: Wire) -> list[tuple[str, LoginOutcome]]:
    return made.events.logins


@pytest.mark.parametrize("arrival", ARRIVALS)
def test_a_name_counts_once_the_broker_has_said_yes(arrival: str) -> None:
    made = wire(OK, arrival=arrival)
    made.exchange(handshake())
    made.send(plain("alice"))
    assert made.connection.principal == ANONYMOUS
    made.answer()
    made.received()
    assert made.connection.principal == "User:alice"
    assert made.connection.sasl_mechanism == "PLAIN"
    assert outcomes(made) == [("PLAIN", LoginOutcome.SUCCEEDED)]
    assert error_of(made.exchange(get_subscriptions())) == ErrorCode.NONE


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


def test_a_login_that_fails_names_nobody() -> None:
    made = wire(WRONG)
    made.exchange(handshake())
    made.exchange(plain("alice"))
    assert made.connection.principal == ANONYMOUS
    assert outcomes(made) == [("PLAIN", LoginOutcome.FAILED)]
    assert error_of(made.exchange(get_subscriptions())) == ErrorCode.ILLEGAL_SASL_STATE
    assert len(made.events.unauthenticated) == 1


def test_a_mechanism_that_the_broker_refuses_names_nobody_whatever_follows() -> None:
    made = wire(OK, handshake_error=ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    made.send(handshake() + plain("alice"))
    made.answer()
    made.received()
    assert made.connection.principal == ANONYMOUS
    assert outcomes(made) == [("PLAIN", LoginOutcome.FAILED)]


def test_nobody_pushes_on_a_sasl_listener_before_a_login_even_where_the_broker_takes_anybody() -> None:
    made = wire()
    assert error_of(made.exchange(get_subscriptions())) == ErrorCode.ILLEGAL_SASL_STATE
    made.exchange(api_versions(0))
    assert error_of(made.exchange(get_subscriptions())) == ErrorCode.ILLEGAL_SASL_STATE
    assert not made.events.subscriptions


def test_telemetry_behind_a_login_in_one_write_waits_for_the_verdict() -> None:
    made = wire(OK)
    made.send(handshake() + plain("alice") + get_subscriptions())
    made.answer()
    *_, answer = made.received()
    assert error_of(answer) == ErrorCode.NONE

    made = wire(WRONG)
    made.send(handshake() + plain("alice") + get_subscriptions())
    made.answer()
    *_, answer = made.received()
    assert error_of(answer) == ErrorCode.ILLEGAL_SASL_STATE


def test_the_name_of_an_exchange_that_failed_is_not_that_of_the_next() -> None:
    made = wire(WRONG, OK)
    made.send(handshake() + plain("alice") + handshake() + plain("mallory"))
    made.answer()
    made.received()
    assert made.connection.principal == "User:mallory"


def test_a_second_handshake_on_the_way_does_not_lend_its_name_to_the_first() -> None:
    made = wire(OK)
    # The broker's yes is to mallory's token, whatever exchange was begun behind it.
    made.send(handshake() + plain("mallory") + handshake("SCRAM-SHA-256"))
    made.answer()
    made.received()
    assert made.connection.principal == "User:mallory"
    assert made.connection.sasl_mechanism == "PLAIN"


def test_a_second_token_in_one_exchange_changes_nothing() -> None:
    made = wire(OK, OK)
    made.send(handshake() + plain("mallory") + plain("alice"))
    made.answer()
    made.received()
    assert made.connection.principal in {"User:mallory", UNKNOWN_PRINCIPAL}
    made = wire(WRONG, OK)
    made.send(handshake() + plain("mallory") + plain("alice"))
    made.answer()
    made.received()
    assert made.connection.principal == ANONYMOUS


def test_an_answer_under_the_clients_correlation_id_is_not_taken_for_the_verdict() -> None:
    made = wire(WRONG)
    # Each under the correlation id of the login: the broker answers ApiVersions to anybody.
    made.exchange(handshake())
    made.send(api_versions(0, 36) + authenticate(b"\0alice\0guess", 36) + api_versions(0, 36))
    made.answer()
    assert [correlation_id_of(answer) for answer in made.received()] == [36, 36, 36]
    assert made.connection.principal == ANONYMOUS


def test_logging_in_again_as_the_same_changes_nothing() -> None:
    made = wire(OK, OK)
    for _ in range(2):
        made.exchange(handshake())
        made.exchange(plain("alice"))
    assert made.connection.principal == "User:alice"
    assert [outcome for _, outcome in outcomes(made)] == [LoginOutcome.SUCCEEDED, LoginOutcome.RENEWED]


def test_while_logging_in_again_the_client_stays_who_it_was() -> None:
    made = wire(OK, WRONG)
    made.exchange(handshake())
    made.exchange(plain("alice"))
    made.exchange(handshake())
    made.exchange(plain("mallory"))
    assert made.connection.principal == "User:alice"


def test_logging_in_again_as_somebody_else_is_nobody_for_good() -> None:
    made = wire(OK, OK, OK)
    for user in ("alice", "mallory", "alice"):
        made.exchange(handshake())
        made.exchange(plain(user))
    assert made.connection.principal == UNKNOWN_PRINCIPAL
    assert [outcome for _, outcome in outcomes(made)][1] == LoginOutcome.CHANGED


def test_a_mechanism_that_shows_no_name_gives_the_unknown_principal() -> None:
    made = wire((0, b"token"), OK)
    made.exchange(handshake("GSSAPI"))
    made.exchange(authenticate(b"\x60\x82krb5"))
    assert made.connection.principal == UNKNOWN_PRINCIPAL
    assert made.connection.sasl_mechanism == "GSSAPI"


def test_a_login_in_front_of_a_listener_that_is_said_to_have_none_still_names_the_client() -> None:
    made = wire(OK, security_protocol="PLAINTEXT")
    made.exchange(handshake())
    made.exchange(plain("alice"))
    assert made.connection.principal == "User:alice"


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
def test_what_cannot_be_read_passes_and_names_nobody(request_bytes: bytes) -> None:
    made = wire(OK)
    if parse(request_bytes[4:]).api_key == SASL_AUTHENTICATE and b"alice" not in request_bytes:
        made.exchange(handshake())
    made.exchange(request_bytes)
    assert made.seen()[-1].body == parse(request_bytes[4:]).body
    assert made.connection.principal == ANONYMOUS


def test_nothing_of_a_password_is_held_while_the_broker_thinks() -> None:
    made = wire(OK)
    made.exchange(handshake())
    held = made.session.held_bytes
    made.send(plain("alice", "x" * 1000))
    assert made.session.held_bytes == held == 0


def test_one_connection_more_than_a_principal_may_have_is_closed_behind_the_answer() -> None:
    limits = Limits(LimitsSettings(principal=PrincipalLimitsSettings(connections=1)))
    first, second = wire(OK, limits=limits), wire(OK, limits=limits)
    for made in (first, second):
        made.exchange(handshake())
        made.exchange(plain("alice"))
    assert first.session.closing is None
    assert second.session.closing is SessionEnd.LIMIT
    assert len(second.events.exceeded) == 1


def test_who_logs_in_with_bare_tokens_is_unknown() -> None:
    made = wire()
    made.send(sasl_handshake(0))
    assert made.connection.principal == UNKNOWN_PRINCIPAL


def test_tagged_fields_of_a_header_are_not_kept_until_the_answer() -> None:
    made = wire(OK)
    made.exchange(handshake())
    tagged = b"\1\0\xa0\x8d\x06" + bytes(100_000)  # one tagged field of 100,000 bytes
    made.send(request_frame(SASL_AUTHENTICATE, 2, 36, tagged + b"\7\0a\0b" + b"\0\0"))
    found = [held for held in gc.get_objects() if isinstance(held, RequestHeader) and held.tagged_fields]
    assert not found
