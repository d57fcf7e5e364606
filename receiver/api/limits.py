"""Limits on a request: host and size of the headers."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from receiver.api.problems import problem_response
from receiver.numbers import whole_number

#: The request line and the headers together.
MAX_HEADER_BYTES = 16_384

HEADERS_TOO_LONG = f"the request line and the headers may have at most {MAX_HEADER_BYTES} bytes together"

_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})


class LoopbackHostCheck:
    """Refuses requests whose Host header does not name this machine (421).

    A web page could otherwise use the API by DNS rebinding. Starlette's TrustedHostMiddleware
    answers in plain text and with another status.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 421."""
        host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
        name, _, port = host.rpartition(":")
        if whole_number(port, 65_535) is None:
            name = host
        if name.lower() in _LOOPBACK_HOSTS:
            await self._app(scope, receive, send)
        else:
            detail = f"the Host header must be one of {', '.join(sorted(_LOOPBACK_HOSTS))}"
            await problem_response(421, detail)(scope, receive, send)


class HeadAsGet:
    """Answers HEAD as GET without the body (RFC 9110, section 9.3.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, a HEAD as GET."""
        if scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, "method": "GET", "is_head": True}, receive, send_without_body)


class HeaderCheck:
    """Refuses too long headers (431) and two lengths of the body (400).

    h11 limits the headers only while they are incomplete.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 431 or 400."""
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) for name, value in scope["headers"])
        closing = {"connection": "close"}
        if size > MAX_HEADER_BYTES:
            await problem_response(431, HEADERS_TOO_LONG, headers=closing)(scope, receive, send)
        elif {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            # RFC 9112, section 6.3: a proxy may have seen the request end elsewhere (request
            # smuggling).
            detail = "Content-Length and Transfer-Encoding are both given: omit one of them"
            await problem_response(400, detail, headers=closing)(scope, receive, send)
        else:
            await self._app(scope, receive, send)
