"""Follows the SASL logins of one connection, and names its principal.

A principal counts once the **broker** has accepted the login (KIP-43, KIP-152). It is the name that
the client gave in that exchange. For a login with a delegation token (KIP-48) it is the token's
owner, if the owner is known, because the broker does the same. Re-authentication (KIP-368) may not
change the principal. Brokers refuse that, so if the name changes anyway, the principal becomes
unknown.

Requests and responses arrive in the connection's order. A response belongs to the login that was
the latest when its request passed, also if the client does not wait for responses.

No password or token may be kept, logged or put into an error; see :mod:`receiver.principal.sasl`.
"""

from __future__ import annotations

from receiver.brokers.delegation_tokens import DelegationTokens
from receiver.principal.sasl import UNKNOWN_PRINCIPAL, SaslExchange
from receiver.session.effects import LoginOutcome


class Login:
    """The logins of one connection.

    Args:
        principal: The principal before the first login.
        principal_claim: The claim of an OAUTHBEARER token that names the principal.

    Attributes:
        can_expire: Whether the broker may stop answering the connection (KIP-368).
        succeeded: Whether the broker has accepted a login.
        principal: The principal of the latest login that succeeded.
        mechanism: The mechanism of that login; None before it.
        latest: The login of the latest SaslHandshake; None if its tokens can't be followed.
        refused: The latest login that the broker refused.
    """

    __slots__ = (
        "_login_name",
        "_principal_claim",
        "can_expire",
        "delegation_tokens",
        "latest",
        "mechanism",
        "principal",
        "refused",
        "required",
        "succeeded",
    )

    def __init__(
        self, *, required: bool, principal: str, principal_claim: str, delegation_tokens: DelegationTokens
    ) -> None:
        self._principal_claim = principal_claim
        self._login_name: str | None = None  # the name in the accepted login, even if an owner replaces it
        self.delegation_tokens = delegation_tokens
        self.latest: SaslExchange | None = None
        self.refused: SaslExchange | None = None
        self.required = required
        self.can_expire = required
        self.succeeded = False
        self.principal = principal
        self.mechanism: str | None = None

    @property
    def authenticated(self) -> bool:
        """Whether the broker has accepted a login, or the listener needs none."""
        return self.succeeded or not self.required

    def begin(self, mechanism: str) -> SaslExchange:
        """Begin to follow a login; its tokens come next."""
        self.latest = SaslExchange(mechanism, principal_claim=self._principal_claim)
        return self.latest

    def lose(self) -> None:
        """Stop following logins, so the principal is unknown from now on."""
        self.latest = None
        self.principal = UNKNOWN_PRINCIPAL

    def refuse(self, exchange: SaslExchange) -> LoginOutcome:
        """Take the broker's refusal of a login."""
        self.refused = exchange
        return LoginOutcome.FAILED

    def accept(self, exchange: SaslExchange) -> LoginOutcome:
        """Take a login that the broker has accepted, and name its principal."""
        login_name = exchange.principal or UNKNOWN_PRINCIPAL
        token_id = exchange.delegation_token_id
        owner = None if token_id is None else self.delegation_tokens.owner(token_id)
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
        return outcome
