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

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                given = {name for name, _ in headers}
                added = [header for header in DEFAULT_HEADERS if header[0] not in given]
                message = {**message, "headers": [*headers, *added]}
            await send(message)

        await self._app(scope, receive, send_with_headers)
