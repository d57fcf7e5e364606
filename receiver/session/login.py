"""Who is at the other end: the SASL logins that pass through a connection (KIP-43, KIP-152, KIP-368).

Owns the connection's principal as far as SASL shows it. A principal counts once the **broker** has said that
the login succeeded, and it is then the one that the client named to the broker in that very exchange: who
named a delegation token (KIP-48) is its owner, where that is known, as it is to the broker. A login again
(KIP-368) may not change it: a broker refuses that, so a name that changes all the same is nobody's.

Requests and answers come here in the connection's order, which is the broker's too: so an answer belongs to
the exchange that was the latest when its request passed, also where a client does not wait for answers.

It must not keep a password or token, nor say one: see :mod:`receiver.principal.sasl`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeAlias

from receiver.principal.sasl import SaslExchange
from receiver.session.delegation_tokens import DelegationTokens
from receiver.session.messages import at_body
from receiver.telemetry.connection import UNKNOWN_PRINCIPAL, Connection
from receiver.wire import api_keys, k17_sasl_handshake, k36_sasl_authenticate
from receiver.wire.error_codes import ErrorCode
from receiver.wire.errors import WireError
from receiver.wire.headers import RequestHeader
from receiver.wire.primitives import Reader

__all__ = ["WATCHED", "Login", "LoginOutcome", "Observing"]

#: Requests that have to do with logins.
WATCHED: Final = frozenset(
    {
        api_keys.SASL_HANDSHAKE,
        api_keys.SASL_AUTHENTICATE,
        api_keys.CREATE_DELEGATION_TOKEN,
        api_keys.DESCRIBE_DELEGATION_TOKEN,
    }
)

#: Looks at the broker's answer to a request, which comes without its length.
Observing: TypeAlias = Callable[[bytes], None]


class LoginOutcome(StrEnum):
    """What became of a login."""

    SUCCEEDED = "succeeded"
    RENEWED = "renewed"
    CHANGED = "changed"
    FAILED = "failed"


class Login:
    """The logins of one connection.

    Args:
        connection: Its entry in the registry; principal and mechanism are set here.
        principal_claim: The claim of an OAUTHBEARER token that names the principal.
        delegation_tokens: Whose they are.
        on_outcome: Told of the end of each login, with its mechanism.

    Attributes:
        required: Whether the listener asks for a login.
        succeeded: Whether the broker has let the client in.
    """

    __slots__ = (
        "_connection",
        "_delegation_tokens",
        "_exchange",
        "_failed",
        "_named",
        "_on_outcome",
        "_principal_claim",
        "required",
        "succeeded",
    )

    def __init__(
        self,
        connection: Connection,
        *,
        principal_claim: str,
        delegation_tokens: DelegationTokens,
        on_outcome: Callable[[str, LoginOutcome], None],
    ) -> None:
        self._connection = connection
        self._principal_claim = principal_claim
        self._delegation_tokens = delegation_tokens
        self._on_outcome = on_outcome
        self._exchange: SaslExchange | None = None  # of the latest SaslHandshake that passed
        self._failed: SaslExchange | None = None  # the latest that the broker refused
        self._named: str | None = None  # what the client that the broker let in called itself
        self.required = connection.security_protocol.startswith("SASL_")
        self.succeeded = False

    def observe(self, header: RequestHeader, reader: Reader) -> Observing:
        """Take note of a request that has to do with logins: one of :data:`WATCHED`.

        Args:
            header: Its header; of SaslHandshake not of version 0, behind which come bare tokens.
            reader: At its body. What can't be read is the broker's to refuse.

        Returns:
            What has to see the broker's answer; an answer that can't be read says nothing.
        """
        if header.api_key == api_keys.SASL_HANDSHAKE:
            observing = self._handshake(header, reader)
        elif header.api_key == api_keys.SASL_AUTHENTICATE:
            observing = self._authenticate(header, reader)
        else:
            observing = self._learn_owners(header)

        def see(response: bytes) -> None:
            with contextlib.suppress(WireError, ValueError):
                observing(response)

        return see

    def _handshake(self, header: RequestHeader, reader: Reader) -> Observing:
        try:
            mechanism = k17_sasl_handshake.decode_request(reader, header.api_version).mechanism
        except (WireError, ValueError):
            mechanism = ""
        exchange = self._exchange = SaslExchange(mechanism, principal_claim=self._principal_claim)

        def observe(response: bytes) -> None:
            answer = k17_sasl_handshake.decode_response(
                at_body(response, api_keys.SASL_HANDSHAKE, header.api_version), header.api_version
            )
            if answer.error_code != ErrorCode.NONE:
                self._fail(exchange)

        return observe

    def _authenticate(self, header: RequestHeader, reader: Reader) -> Observing:
        exchange, version = self._exchange, header.api_version
        if exchange is None:
            return _nothing_to_see
        try:
            exchange.client_token(k36_sasl_authenticate.decode_request(reader, version).auth_bytes)
            readable = True
        except (WireError, ValueError):
            self._exchange = None  # what follows in it would be out of step
            readable = False

        def observe(response: bytes) -> None:
            over = exchange.complete or exchange is self._failed
            if over or not readable:
                return
            answer = k36_sasl_authenticate.decode_response(
                at_body(response, api_keys.SASL_AUTHENTICATE, version), version
            )
            if answer.error_code != ErrorCode.NONE:
                self._fail(exchange)
                return
            exchange.server_token(answer.auth_bytes)
            if exchange.complete:
                self._succeed(exchange)

        return observe

    def _learn_owners(self, header: RequestHeader) -> Observing:
        def observe(response: bytes) -> None:
            # A listener that is said to ask for a login has something else behind it if this is without one.
            if self.succeeded or not self.required:
                self._delegation_tokens.learn(header, response)

        return observe

    def _succeed(self, exchange: SaslExchange) -> None:
        named = exchange.principal or UNKNOWN_PRINCIPAL
        token_id = exchange.delegation_token_id
        owner = None if token_id is None else self._delegation_tokens.owner(token_id)
        principal, outcome = owner or named, LoginOutcome.SUCCEEDED
        if self.succeeded:
            outcome, current = LoginOutcome.RENEWED, self._connection.principal
            # A token's owner may have been learned since, or forgotten.
            if current not in (principal, named) and (owner is not None or named != self._named):
                outcome, principal, named = LoginOutcome.CHANGED, UNKNOWN_PRINCIPAL, UNKNOWN_PRINCIPAL
            elif owner is None:
                principal = current
        self.succeeded = True
        self._named = named
        self._connection.principal = principal
        self._connection.sasl_mechanism = exchange.mechanism
        self._on_outcome(exchange.mechanism, outcome)

    def _fail(self, exchange: SaslExchange) -> None:
        self._failed = exchange
        self._on_outcome(exchange.mechanism, LoginOutcome.FAILED)


def _nothing_to_see(_: bytes) -> None:
    return
