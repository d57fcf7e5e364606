"""Headers of each answer that bound what a browser does with it."""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Headers of every answer.
SECURITY_HEADERS: Final = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
]

#: Headers of each answer that has no others of these names. An answer that a browser takes for a
#: page must not load or run anything; only the console is a page.
DEFAULT_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)

#: RFC 6797.
HSTS: Final = ("strict-transport-security", "max-age=31536000")


class DefaultHeaders:
    """Adds :data:`DEFAULT_HEADERS` to the answers of an application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and complete the answer."""
        await self._app(scope, receive, with_headers(send, *DEFAULT_HEADERS))


def with_headers(send: Send, *headers: tuple[bytes, bytes]) -> Send:
    """Add headers to an answer that has no others of their names."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            names = {name for name, _ in given}
            message = {
                **message,
                "headers": [*given, *(header for header in headers if header[0] not in names)],
            }
        await send(message)

    return send_with_headers
