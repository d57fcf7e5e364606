"""Asks another program's REST, within bounds and deadlines.

It reads the token and the files of TLS again when they change.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import httpx
import msgspec

from receiver.settings.listeners import UpstreamTlsSettings
from receiver.tls import TlsContext, TlsFilesError, client_context, tls_problem
from receiver.watch import Watch
from receiver.workers import start_task
from spark_streaming.files import FileError, read_token
from spark_streaming.http_clients import no_tls, plain_words

#: Shorter than a receiver keeps an idle connection.
_IDLE_S: Final = 60.0
_MAX_REASON: Final = 200


class RestFilesError(Exception):
    """A file of the token or of TLS can't be used; the text has key, file and reason."""


class TokenFile(Protocol):
    """The settings of a token."""

    @property
    def file(self) -> Path:
        """The file that holds it."""


class Access(Protocol):
    """The settings of access to a REST API."""

    @property
    def token(self) -> TokenFile | None:
        """The token to show; None: none."""

    @property
    def tls(self) -> UpstreamTlsSettings | None:
        """TLS towards URLs with ``https``; None: the system's CAs."""

    @property
    def connect_timeout_ms(self) -> int:
        """Milliseconds to connect, and for TLS."""

    @property
    def timeout_ms(self) -> int:
        """Milliseconds for a whole answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestAnswer:
    """An answer, or why there is none."""

    status: int = 0
    """The HTTP status; 0 without an answer."""
    headers: Mapping[str, str] | None = None
    document: Any = None
    """Its JSON; None: it has none."""
    problem: str | None = None
    """Why there is no answer; None: there is one, whatever its status."""


class RestClient:
    """Asks REST APIs with the token and TLS of one section of the settings.

    Args:
        key: The section, for errors.
        tls: What to use for ``https``; None: there is no such URL.
        max_bytes: Of an answer's body.
        max_connections: Open at once.

    Raises:
        RestFilesError: A file can't be used.
    """

    def __init__(
        self,
        key: str,
        settings: Access,
        *,
        tls: UpstreamTlsSettings | None,
        max_bytes: int,
        max_connections: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._key = key
        self._settings = settings
        self._max_bytes = max_bytes
        self._max_connections = max_connections
        self._token_file = None if settings.token is None else settings.token.file
        self._watch = Watch(() if self._token_file is None else (self._token_file,), clock)
        self._token = self._read_token()
        self._tls: TlsContext | None = None
        self._plain = no_tls()
        self._context: ssl.SSLContext | None = None
        self._client: httpx.AsyncClient | None = None
        if tls is not None:
            try:
                self._tls = client_context(key, tls, key=f"{key}.tls")
            except TlsFilesError as error:
                raise RestFilesError(str(error)) from None

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    def authorization(self) -> dict[str, str]:
        """Return the header with the token, as the file has it now; else nothing.

        Raises:
            RestFilesError: The changed file can't be used.
        """
        if self._watch.changed():
            self._watch.remind()  # until it is read
            self._token = self._read_token()
        return {} if self._token is None else {"authorization": f"Bearer {self._token}"}

    async def ask(
        self,
        url: str,
        parameters: Sequence[tuple[str, str | int]],
        headers: Mapping[str, str],
        server_name: str | None = None,
    ) -> RestAnswer:
        """Send a GET; what goes wrong is the answer's problem.

        Args:
            headers: With those of :meth:`authorization`.
            server_name: The host name that the certificate must have; None: that of the URL.
        """
        timeout_ms, connect_timeout_ms = self._settings.timeout_ms, self._settings.connect_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._answer(url, parameters, headers, server_name)
        except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout):
            problem = f"no answer within {timeout_ms} ms"
        except httpx.ConnectTimeout:
            problem = f"no connection within {connect_timeout_ms} ms"
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            problem = reason(error)
        return RestAnswer(problem=problem)

    async def _answer(
        self,
        url: str,
        parameters: Sequence[tuple[str, str | int]],
        headers: Mapping[str, str],
        server_name: str | None,
    ) -> RestAnswer:
        client = self._current_client()
        request = client.build_request("GET", url, params=list(parameters), headers=headers)
        if server_name is not None:
            request.extensions["sni_hostname"] = server_name
        body = bytearray()
        response = await client.send(request, stream=True)
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > self._max_bytes:
                    return RestAnswer(problem=f"its answer has more than {self._max_bytes} bytes")
        finally:
            await response.aclose()
        # In a thread, because a long answer takes some milliseconds, for which calls would wait.
        document = await asyncio.to_thread(_decoded, body)
        return RestAnswer(status=response.status_code, headers=response.headers, document=document)

    def _current_client(self) -> httpx.AsyncClient:
        """Return the client, with the files of TLS as they are now."""
        context = self._plain if self._tls is None else self._tls.current()
        if self._client is None or context is not self._context:
            if self._client is not None:
                start_task("rest-client", self._close_later(self._client))
            self._context = context
            self._client = httpx.AsyncClient(
                verify=context,
                # A proxy of the environment would see the token.
                trust_env=False,
                follow_redirects=False,
                timeout=httpx.Timeout(
                    self._settings.timeout_ms / 1000, connect=self._settings.connect_timeout_ms / 1000
                ),
                limits=httpx.Limits(max_connections=self._max_connections, keepalive_expiry=_IDLE_S),
            )
        return self._client

    async def _close_later(self, client: httpx.AsyncClient) -> None:
        """Close a client whose requests have ended by then."""
        await asyncio.sleep(2 * self._settings.timeout_ms / 1000)
        await client.aclose()

    def _read_token(self) -> str | None:
        """Return the token of the file; None without one.

        Raises:
            RestFilesError: The file can't be used; the text does not hold the token.
        """
        if self._token_file is None:
            return None
        try:
            return read_token(self._token_file)
        except FileError as error:
            raise RestFilesError(f"{self._key}.token.file: {self._token_file}: {error}") from None


def _decoded(body: bytearray) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None


def reason(error: Exception) -> str:
    """Return the reason of an error in one sentence, without what the other side sent."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return tls_problem(cause)[:_MAX_REASON]
        if isinstance(cause, ConnectionRefusedError):
            return "nothing listens there"
        cause = cause.__cause__ or cause.__context__
    return (plain_words(error) or type(error).__name__)[:_MAX_REASON]
