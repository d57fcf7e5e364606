"""SaslHandshake and SaslAuthenticate: they name the principal (KIP-43, KIP-152).

SaslHandshake v0 ends all inspection of the connection. Bare tokens without a request header follow
it, and a token may look like any request (the PLAIN token of a user "Gina" looks like key 71).

A malformed request or response is ignored here, because the broker or the client refuses it. No
byte of a request is kept, because it may hold a password or a token.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Final

from receiver.principal.sasl import SaslExchange
from receiver.session.effects import LoginEnded, LoginOutcome
from receiver.session.exchange import Connection, Kind, Request
from receiver.session.exchanges.observed import ObservedExchange
from receiver.wire import api_keys, k17_sasl_handshake, k36_sasl_authenticate
from receiver.wire.error_codes import ErrorCode
from receiver.wire.errors import WireError
from receiver.wire.frame_rewriter import frame
from receiver.wire.headers import RequestHeader, at_body


class _Handshake(ObservedExchange):
    """A choice of a mechanism, which the broker may refuse."""

    __slots__ = ("_login",)

    def __init__(self, header: RequestHeader, login: SaslExchange) -> None:
        super().__init__(header)
        self._login = login

    def observe(self, response: bytes, connection: Connection) -> None:
        body = at_body(response, api_keys.SASL_HANDSHAKE, self.header.api_version)
        if k17_sasl_handshake.decode_response(body, self.header.api_version).error_code != ErrorCode.NONE:
            _end(connection, self._login, connection.login.refuse(self._login))


class _Token(ObservedExchange):
    """A token of a login, which the broker answers with a token or an error."""

    __slots__ = ("_login",)

    def __init__(self, header: RequestHeader, login: SaslExchange | None) -> None:
        super().__init__(header)
        self._login = login  # None: it can't be followed

    def observe(self, response: bytes, connection: Connection) -> None:
        login, version = self._login, self.header.api_version
        if login is None:
            return
        over = login.complete or login is connection.login.refused
        if over:
            return
        answer = k36_sasl_authenticate.decode_response(
            at_body(response, api_keys.SASL_AUTHENTICATE, version), version
        )
        if answer.error_code != ErrorCode.NONE:
            _end(connection, login, connection.login.refuse(login))
            return
        login.server_token(answer.auth_bytes)
        if login.complete:
            _end(connection, login, connection.login.accept(login))


def _end(connection: Connection, exchange: SaslExchange, outcome: LoginOutcome) -> None:
    login = connection.login
    connection.identify(
        replace(connection.identity, principal=login.principal, sasl_mechanism=login.mechanism)
    )
    connection.emit(LoginEnded(exchange.mechanism, outcome))


def _begin_handshake(request: Request, connection: Connection) -> bytes:
    login, version = connection.login, request.header.api_version
    login.can_expire = True
    if version == 0:
        connection.stop_watching()
        login.lose()
        connection.identify(replace(connection.identity, principal=login.principal))
        return frame(request.data)
    mechanism = ""
    with contextlib.suppress(WireError, ValueError):
        mechanism = k17_sasl_handshake.decode_request(request.reader, version).mechanism
    return _Handshake(request.header, login.begin(mechanism)).begin(request, connection)


def _begin_token(request: Request, connection: Connection) -> bytes:
    login = connection.login
    login.can_expire = True
    followed = login.latest
    if followed is not None:
        try:
            token = k36_sasl_authenticate.decode_request(request.reader, request.header.api_version)
            followed.client_token(token.auth_bytes)
        except (WireError, ValueError):
            login.latest = followed = None  # its further tokens would be out of step
    return _Token(request.header, followed).begin(request, connection)


HANDSHAKE: Final = Kind(keys=frozenset({api_keys.SASL_HANDSHAKE}), begin=_begin_handshake)
AUTHENTICATE: Final = Kind(keys=frozenset({api_keys.SASL_AUTHENTICATE}), begin=_begin_token)
