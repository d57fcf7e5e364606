"""Learns a connection's principal from its SASL logins.

A principal counts once the **broker** has accepted the login (KIP-43, KIP-152). It is the name that
the client gave in that exchange. For a login with a delegation token (KIP-48) it is the token's
owner, if the owner is known, because the broker does the same. Re-authentication (KIP-368) may not
change the principal. Brokers refuse that, so if the name changes anyway, the principal becomes
unknown.

Requests and responses arrive in the connection's order. A response belongs to the exchange that was
the latest when its request passed, also if the client does not wait for responses.

No password or token may be kept, logged or put into an error; see :mod:`receiver.principal.sasl`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeAlias

from receiver.brokers.delegation_tokens import DelegationTokens
from receiver.principal.sasl import SaslExchange
from receiver.telemetry.identity import UNKNOWN_PRINCIPAL
from receiver.wire import api_keys, k17_sasl_handshake, k36_sasl_authenticate
from receiver.wire.error_codes import ErrorCode
from receiver.wire.errors import WireError
from receiver.wire.headers import RequestHeader, at_body
from receiver.wire.primitives import Reader

__all__ = ["WATCHED", "Login", "LoginOutcome", "ObserveResponse"]

#: API keys of the requests that are read to learn principals.
WATCHED: Final = frozenset(
    {
        api_keys.SASL_HANDSHAKE,
        api_keys.SASL_AUTHENTICATE,
        api_keys.CREATE_DELEGATION_TOKEN,
        api_keys.DESCRIBE_DELEGATION_TOKEN,
    }
)

#: Reads the broker's response to a request, which comes without its length.
ObserveResponse: TypeAlias = Callable[[bytes], None]


class LoginOutcome(StrEnum):
    """Result of a SASL login; CHANGED is a re-authentication as another principal."""

    SUCCEEDED = "succeeded"
    RENEWED = "renewed"
    CHANGED = "changed"
    FAILED = "failed"


class Login:
    """Follows the SASL logins of one connection.

    Args:
        required: Whether the listener requires a login.
        principal: The principal before the first login.
        principal_claim: The claim of an OAUTHBEARER token that names the principal.
        delegation_tokens: The owners of delegation tokens.
        on_outcome: Called at the end of each login with its mechanism and outcome.

    Attributes:
        required: Whether the listener requires a login.
        succeeded: Whether the broker has accepted a login.
        principal: The principal of the latest login that succeeded.
        mechanism: The mechanism of that login; None before it.
    """

    __slots__ = (
        "_delegation_tokens",
        "_exchange",
        "_failed",
        "_login_name",
        "_on_outcome",
        "_principal_claim",
        "mechanism",
        "principal",
        "required",
        "succeeded",
    )

    def __init__(
        self,
        *,
        required: bool,
        principal: str,
        principal_claim: str,
        delegation_tokens: DelegationTokens,
        on_outcome: Callable[[str, LoginOutcome], None],
    ) -> None:
        self._principal_claim = principal_claim
        self._delegation_tokens = delegation_tokens
        self._on_outcome = on_outcome
        self._exchange: SaslExchange | None = None  # of the latest SaslHandshake request
        self._failed: SaslExchange | None = None  # the latest that the broker refused
        self._login_name: str | None = None  # the name in the accepted login, even if an owner replaces it
        self.required = required
        self.succeeded = False
        self.principal = principal
        self.mechanism: str | None = None

    def observe(self, header: RequestHeader, reader: Reader) -> ObserveResponse:
        """Read a request that has to do with logins: one of :data:`WATCHED`.

        Args:
            header: The request's header. SaslHandshake v0, after which bare tokens follow, is not
                allowed.
            reader: At the body. A malformed body is ignored here, because the broker refuses it.

        Returns:
            The function to call with the broker's response. It ignores a malformed response.
        """
        if header.api_key == api_keys.SASL_HANDSHAKE:
            observe_response = self._handshake(header, reader)
        elif header.api_key == api_keys.SASL_AUTHENTICATE:
            observe_response = self._authenticate(header, reader)
        else:
            observe_response = self._learn_owners(header)

        def observe(response: bytes) -> None:
            with contextlib.suppress(WireError, ValueError):
                observe_response(response)

        return observe

    def forget_principal(self) -> None:
        """Note that logins can no longer be followed, so the principal is unknown."""
        self.principal = UNKNOWN_PRINCIPAL

    def _handshake(self, header: RequestHeader, reader: Reader) -> ObserveResponse:
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

    def _authenticate(self, header: RequestHeader, reader: Reader) -> ObserveResponse:
        exchange, version = self._exchange, header.api_version
        if exchange is None:
            return _ignore
        try:
            exchange.client_token(k36_sasl_authenticate.decode_request(reader, version).auth_bytes)
            readable = True
        except (WireError, ValueError):
            self._exchange = None  # its further tokens would be out of step
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

    def _learn_owners(self, header: RequestHeader) -> ObserveResponse:
        def observe(response: bytes) -> None:
            # A broker that requires logins gives no tokens before one, so such a response is not
            # trusted.
            if self.succeeded or not self.required:
                self._delegation_tokens.learn(header, response)

        return observe

    def _succeed(self, exchange: SaslExchange) -> None:
        login_name = exchange.principal or UNKNOWN_PRINCIPAL
        token_id = exchange.delegation_token_id
        owner = None if token_id is None else self._delegation_tokens.owner(token_id)
        principal, outcome = owner or login_name, LoginOutcome.SUCCEEDED
        if self.succeeded:
            outcome, current = LoginOutcome.RENEWED, self.principal
            # The token's owner may have been learned or forgotten since the first login.
            if current not in (principal, login_name) and (
                owner is not None or login_name != self._login_name
            ):
                outcome, principal, login_name = LoginOutcome.CHANGED, UNKNOWN_PRINCIPAL, UNKNOWN_PRINCIPAL
            elif owner is None:
                principal = current
        self.succeeded = True
        self._login_name = login_name
        self.principal = principal
        self.mechanism = exchange.mechanism
        self._on_outcome(exchange.mechanism, outcome)

    def _fail(self, exchange: SaslExchange) -> None:
        self._failed = exchange
        self._on_outcome(exchange.mechanism, LoginOutcome.FAILED)


def _ignore(_: bytes) -> None:
    return
