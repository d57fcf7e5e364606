"""Logs the sidecar in at the broker, to ask what it tells only after a login.

Clients' logins pass through and are theirs. This one is the operator's (``broker.login``), and its
connection carries the probe's questions only.
"""

from __future__ import annotations

import asyncio
from typing import Final

from scramp import ScramClient, ScramException

from receiver.brokers.upstream import Upstream
from receiver.gateway.upstream.node_id import Ask
from receiver.settings.broker import BrokerLoginSettings
from receiver.wire import api_keys, k17_sasl_handshake, k36_sasl_authenticate
from receiver.wire.error_codes import ErrorCode, error_name
from receiver.wire.k17_sasl_handshake import SaslHandshakeRequest
from receiver.wire.k36_sasl_authenticate import SaslAuthenticateRequest
from receiver.wire.primitives import Reader
from spark_streaming.files import FileError, read_secret

_HANDSHAKE_VERSION: Final = 1
_MAX_TOKEN_BYTES: Final = 4096


class BrokerLoginError(Exception):
    """The sidecar can't log in; the text has no secret."""


async def log_in(ask: Ask, upstream: Upstream, login: BrokerLoginSettings) -> None:
    """Log in on a connection as the settings say.

    Args:
        ask: Sends a request on the connection, and returns its response.

    Raises:
        BrokerLoginError: The password can't be read, the broker refuses, or it does not know the
            password itself.
        WireError: A response is malformed.
    """
    await log_in_as(ask, upstream, login.mechanism, login.username, _password(login))


async def log_in_as(ask: Ask, upstream: Upstream, mechanism: str, username: str, password: str) -> None:
    """Log in on a connection (KIP-43, KIP-152, RFC 4616, RFC 5802).

    Args:
        ask: Sends a request on the connection, and returns its response.

    Raises:
        BrokerLoginError: The broker refuses, or does not know the password itself.
        WireError: A response is malformed.
    """
    request = SaslHandshakeRequest(mechanism=mechanism)
    body = k17_sasl_handshake.encode_request(request, _HANDSHAKE_VERSION)
    answer = await ask(api_keys.SASL_HANDSHAKE, _HANDSHAKE_VERSION, body)
    shaken = k17_sasl_handshake.decode_response(Reader(answer), _HANDSHAKE_VERSION)
    if shaken.error_code != ErrorCode.NONE:
        offered = ", ".join(shaken.mechanisms[:16]) or "none"
        raise BrokerLoginError(
            f"the broker refuses {mechanism} with {error_name(shaken.error_code)}; it offers {offered}"
        )
    if mechanism == "PLAIN":
        await _authenticate(ask, upstream, f"\0{username}\0{password}".encode())
    else:
        await _scram(ask, upstream, mechanism, username, password)


async def _scram(ask: Ask, upstream: Upstream, mechanism: str, username: str, password: str) -> None:
    try:
        client = ScramClient([mechanism], username, password)
        client.set_server_first(
            (await _authenticate(ask, upstream, client.get_client_first().encode())).decode()
        )
        # Hashing takes milliseconds, which the relay's connections must not wait for. It releases
        # the interpreter's lock, and the library bounds the iterations that a broker may ask for.
        final = await asyncio.to_thread(client.get_client_final)
        client.set_server_final((await _authenticate(ask, upstream, final.encode())).decode())
    except (ScramException, ValueError):
        # The library's texts quote the messages.
        raise BrokerLoginError(f"the broker's {mechanism} messages are not valid") from None


async def _authenticate(ask: Ask, upstream: Upstream, token: bytes) -> bytes:
    """Send a token; return the broker's."""
    lowest, highest = upstream.ranges.get(api_keys.SASL_AUTHENTICATE, (0, 0))
    version = min(highest, k36_sasl_authenticate.SUPPORTED_VERSIONS[-1])
    if version < lowest:
        raise BrokerLoginError(f"the broker speaks SaslAuthenticate from version {lowest} on only")
    body = k36_sasl_authenticate.encode_request(SaslAuthenticateRequest(auth_bytes=token), version)
    answer = await ask(api_keys.SASL_AUTHENTICATE, version, body)
    response = k36_sasl_authenticate.decode_response(Reader(answer), version)
    if response.error_code != ErrorCode.NONE:
        raise BrokerLoginError(f"the broker refuses the login with {error_name(response.error_code)}")
    if len(response.auth_bytes) > _MAX_TOKEN_BYTES:
        raise BrokerLoginError(f"the broker's token has more than {_MAX_TOKEN_BYTES} bytes")
    return response.auth_bytes


def _password(login: BrokerLoginSettings) -> str:
    file = login.password.file
    try:
        text = read_secret(file)
    except FileError as error:
        raise BrokerLoginError(f"broker.login.password.file {file} {error}") from None
    if "\0" in text:  # it separates the parts of PLAIN's message (RFC 4616)
        raise BrokerLoginError(f"broker.login.password.file {file} has a NUL character, so it is no password")
    return text
