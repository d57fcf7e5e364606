"""Requests for delegation tokens, whose responses name the owners (KIP-48)."""

from __future__ import annotations

from typing import Final

from receiver.session.exchange import Connection, Kind, Request
from receiver.session.exchanges.observed import ObservedExchange
from receiver.wire import api_keys


class _Tokens(ObservedExchange):
    """A request for tokens, whose response names their owners."""

    __slots__ = ()

    def observe(self, response: bytes, connection: Connection) -> None:
        """See the base class.

        A broker that requires logins gives no tokens before one, so such a response is not trusted.
        """
        if connection.login.authenticated:
            connection.login.delegation_tokens.learn(self.header, response)


def _begin(request: Request, connection: Connection) -> bytes:
    return _Tokens(request.header).begin(request, connection)


KIND: Final = Kind(
    keys=frozenset({api_keys.CREATE_DELEGATION_TOKEN, api_keys.DESCRIBE_DELEGATION_TOKEN}), begin=_begin
)
