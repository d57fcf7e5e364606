"""Asks all receivers of the cluster at once, over their REST.

A request between receivers has the header :data:`ASKED_BY` with the id of the one that asks. The
one that answers shows its own id in :data:`RECEIVER`. So a receiver that is in its own list of
members, or in it twice, is recognised by its id, whatever its addresses are; and a receiver that is
asked by another one asks nobody.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import msgspec

from receiver.settings.cluster import DNS_SCHEME, MAX_MEMBERS, ClusterSettings, ClusterTlsSettings
from receiver.settings.hostport import HostPort
from receiver.tls import TlsContext, TlsFilesError, client_context, tls_problem
from receiver.watch import Watch
from receiver.workers import start_task
from spark_streaming.files import FileError, read_token
from spark_streaming.http_clients import no_tls, plain_words

#: The header with the id of the receiver that asks.
ASKED_BY: Final = "kafka-telemetry-asked-by"
#: The header with the id of the receiver that answers.
RECEIVER: Final = "kafka-telemetry-receiver"

#: The longest answer of a member.
_MAX_ANSWER_BYTES: Final = 16 * 1_048_576
#: Shorter than a receiver keeps an idle connection.
_IDLE_S: Final = 60.0
#: Seconds in which a receiver that has answered itself is not asked again: with too little CPU it
#: might not accept its own connection in time, and would name itself as missing.
_OWN_S: Final = 60.0
_MAX_REASON: Final = 200


class ClusterError(Exception):
    """A file of ``cluster`` can't be used; the text has key, file and reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAnswer:
    """What a member answered, or why it did not."""

    url: str
    receiver: str | None = None
    """Its id; None: not known."""
    is_self: bool = False
    """Whether it is the receiver that asked."""
    status: int = 0
    """The HTTP status; 0 without an answer."""
    document: Any = None
    problem: str | None = None
    """Why there is no answer that can be used; None: there is one."""


def new_receiver_id() -> str:
    """Return the id of a receiver: its host's name, and random digits."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:64]
    return f"{host}-{secrets.token_hex(4)}"


class Members:
    """The receivers of the cluster, which are asked over REST.

    Raises:
        ClusterError: A file can't be used.
    """

    def __init__(
        self, settings: ClusterSettings, receiver_id: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.settings: Final = settings
        self._receiver_id = receiver_id
        self._token_file = None if settings.token is None else settings.token.file
        self._watch = Watch(() if self._token_file is None else (self._token_file,), clock)
        self._token = _read_token(self._token_file)
        self._tls = _tls(settings)
        self._plain = no_tls()
        self._context: ssl.SSLContext | None = None
        self._client: httpx.AsyncClient | None = None
        self._own: dict[str, float] = {}  # by URL: until when it is known to be this receiver's
        self._resolving: asyncio.Task[tuple[str, ...] | OSError] | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def ask(self, path: str, parameters: Mapping[str, str | int]) -> list[MemberAnswer]:
        """Ask all members at once; a member that does not answer is among the answers too."""
        try:
            urls = await self._urls()
            token = self._current_token()
        except (ClusterError, OSError) as error:
            members = self.settings.members
            named = (members,) if isinstance(members, str) else members
            return [MemberAnswer(url=url, problem=_reason(error)) for url in named]
        now = asyncio.get_running_loop().time()
        self._own = {url: until for url, until in self._own.items() if until > now and url in urls}
        client = self._current_client()
        headers = {ASKED_BY: self._receiver_id}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        return await asyncio.gather(*(self._ask(client, url, path, parameters, headers) for url in urls))

    async def _urls(self) -> tuple[str, ...]:
        """Return the URLs of the members; raise OSError if the name can't be resolved."""
        members = self.settings.members
        if not isinstance(members, str):
            return members
        # One at a time for all requests, because each may take a thread for many seconds.
        if self._resolving is None or self._resolving.done():
            self._resolving = start_task(
                "cluster-name", _resolved(members, tls=self.settings.tls is not None)
            )
        done, _ = await asyncio.wait((self._resolving,), timeout=self.settings.timeout_ms / 1000)
        if not done:
            raise ClusterError(f"the name was not resolved within {self.settings.timeout_ms} ms")
        found = self._resolving.result()
        if isinstance(found, OSError):
            raise found
        return found

    def _current_token(self) -> str | None:
        """Return the token, as the file has it now.

        Raises:
            ClusterError: The changed file can't be used.
        """
        if self._watch.changed():
            self._watch.remind()  # until it is read
            self._token = _read_token(self._token_file)
        return self._token

    def _current_client(self) -> httpx.AsyncClient:
        """Return the client, with the files of TLS as they are now."""
        context = self._plain if self._tls is None else self._tls.current()
        if self._client is None or context is not self._context:
            if self._client is not None:
                start_task("cluster-client", self._close_later(self._client))
            self._context = context
            self._client = httpx.AsyncClient(
                verify=context,
                # A proxy of the environment would see the token.
                trust_env=False,
                follow_redirects=False,
                timeout=httpx.Timeout(
                    self.settings.timeout_ms / 1000, connect=self.settings.connect_timeout_ms / 1000
                ),
                limits=httpx.Limits(max_connections=2 * MAX_MEMBERS, keepalive_expiry=_IDLE_S),
            )
        return self._client

    async def _close_later(self, client: httpx.AsyncClient) -> None:
        """Close a client whose requests have ended by then."""
        await asyncio.sleep(2 * self.settings.timeout_ms / 1000)
        await client.aclose()

    async def _ask(
        self,
        client: httpx.AsyncClient,
        url: str,
        path: str,
        parameters: Mapping[str, str | int],
        headers: Mapping[str, str],
    ) -> MemberAnswer:
        if url in self._own:
            return MemberAnswer(url=url, receiver=self._receiver_id, is_self=True)
        try:
            async with asyncio.timeout(self.settings.timeout_ms / 1000):
                return await self._answer(client, url, path, parameters, headers)
        except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout):
            problem = f"no answer within {self.settings.timeout_ms} ms"
        except httpx.ConnectTimeout:
            problem = f"no connection within {self.settings.connect_timeout_ms} ms"
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            problem = _reason(error)
        return MemberAnswer(url=url, problem=problem)

    async def _answer(
        self,
        client: httpx.AsyncClient,
        url: str,
        path: str,
        parameters: Mapping[str, str | int],
        headers: Mapping[str, str],
    ) -> MemberAnswer:
        body = bytearray()
        request = client.build_request("GET", f"{url}{path}", params=dict(parameters), headers=headers)
        if (name := self._server_name()) is not None:
            request.extensions["sni_hostname"] = name
        response = await client.send(request, stream=True)
        try:
            receiver = response.headers.get(RECEIVER)
            if receiver == self._receiver_id:
                self._own[url] = asyncio.get_running_loop().time() + _OWN_S
                return MemberAnswer(url=url, receiver=receiver, is_self=True)
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _MAX_ANSWER_BYTES:
                    problem = f"its answer has more than {_MAX_ANSWER_BYTES} bytes: ask with a lower limit"
                    return MemberAnswer(url=url, receiver=receiver, problem=problem)
        finally:
            await response.aclose()
        # In a thread, because a long answer takes some milliseconds, for which calls would wait.
        document = await asyncio.to_thread(_decoded, body)
        problem_of = _problem(response.status_code, receiver, document)
        return MemberAnswer(
            url=url,
            receiver=receiver,
            status=response.status_code,
            document=None if problem_of else document,
            problem=problem_of,
        )

    def _server_name(self) -> str | None:
        """Return the host name that certificates must have; None: that of the URL."""
        settings = self.settings
        if settings.tls is None:
            return None
        if settings.tls.server_name is not None or not isinstance(settings.members, str):
            return settings.tls.server_name
        return urlsplit(settings.members).hostname


async def _resolved(name: str, *, tls: bool) -> tuple[str, ...] | OSError:
    """Return the URLs at the addresses of ``dns://NAME:PORT``, or why there are none."""
    address = HostPort.parse(name.removeprefix(f"{DNS_SCHEME}://"))
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM
        )
    except OSError as error:
        return error
    hosts = sorted({entry[4][0] for entry in found})[:MAX_MEMBERS]
    scheme = "https" if tls else "http"
    return tuple(f"{scheme}://{HostPort(host=str(host), port=address.port)}" for host in hosts)


def _tls(settings: ClusterSettings) -> TlsContext | None:
    members = settings.members
    if settings.tls is None and (isinstance(members, str) or all(url.startswith("http:") for url in members)):
        return None
    try:
        return client_context("cluster", settings.tls or ClusterTlsSettings(), key="cluster.tls")
    except TlsFilesError as error:
        raise ClusterError(str(error)) from None


def _decoded(body: bytearray) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None


def _problem(status: int, receiver: str | None, document: Any) -> str | None:
    """Return why an answer can't be used; None if it can. Not found is an answer."""
    if status == httpx.codes.UNAUTHORIZED:
        return "it does not know the token or certificate: set cluster.token, and its rest.tokens"
    if receiver is None:
        return f"no receiver that knows `cluster` answers there: status {status}"
    if not isinstance(document, dict):
        return f"its answer is not JSON: status {status}"
    if status in (httpx.codes.OK, httpx.codes.NOT_FOUND):
        return None
    return f"status {status}: {str(document.get('detail', 'without a reason'))[:_MAX_REASON]}"


def _read_token(file: Path | None) -> str | None:
    """Return the token of a file; None without one.

    Raises:
        ClusterError: The file can't be used; the text does not hold the token.
    """
    if file is None:
        return None
    try:
        return read_token(file)
    except FileError as error:
        raise ClusterError(f"cluster.token.file: {file}: {error}") from None


def _reason(error: Exception) -> str:
    """Return the reason of an error in one sentence, without what a member sent."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return tls_problem(cause)[:_MAX_REASON]
        if isinstance(cause, ConnectionRefusedError):
            return "nothing listens there"
        cause = cause.__cause__ or cause.__context__
    return (plain_words(error) or type(error).__name__)[:_MAX_REASON]
