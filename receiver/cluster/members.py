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
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from receiver.cluster.rest_client import RestClient, RestFilesError, reason
from receiver.settings.cluster import DNS_SCHEME, MAX_MEMBERS, ClusterSettings, ClusterTlsSettings
from receiver.settings.hostport import HostPort
from receiver.workers import start_task

#: The header with the id of the receiver that asks.
ASKED_BY: Final = "kafka-telemetry-asked-by"
#: The header with the id of the receiver that answers.
RECEIVER: Final = "kafka-telemetry-receiver"

#: The longest answer of a member.
_MAX_ANSWER_BYTES: Final = 16 * 1_048_576
#: Seconds in which a receiver that has answered itself is not asked again: with too little CPU it
#: might not accept its own connection in time, and would name itself as missing.
_OWN_S: Final = 60.0
_MAX_REASON: Final = 200


class ClusterError(Exception):
    """The members can't be asked; the text has the reason."""


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
        RestFilesError: A file can't be used.
    """

    def __init__(
        self, settings: ClusterSettings, receiver_id: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.settings: Final = settings
        self._receiver_id = receiver_id
        self._client = RestClient(
            "cluster",
            settings,
            tls=_tls(settings),
            max_bytes=_MAX_ANSWER_BYTES,
            max_connections=2 * MAX_MEMBERS,
            clock=clock,
        )
        self._own: dict[str, float] = {}  # by URL: until when it is known to be this receiver's
        self._resolving: asyncio.Task[tuple[str, ...] | OSError] | None = None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def ask(self, path: str, parameters: Mapping[str, str | int]) -> list[MemberAnswer]:
        """Ask all members at once; a member that does not answer is among the answers too."""
        try:
            urls = await self._urls()
            headers = {ASKED_BY: self._receiver_id, **self._client.authorization()}
        except (ClusterError, RestFilesError, OSError) as error:
            members = self.settings.members
            named = (members,) if isinstance(members, str) else members
            return [MemberAnswer(url=url, problem=reason(error)) for url in named]
        now = asyncio.get_running_loop().time()
        self._own = {url: until for url, until in self._own.items() if until > now and url in urls}
        return await asyncio.gather(*(self._ask(url, path, parameters, headers) for url in urls))

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

    async def _ask(
        self, url: str, path: str, parameters: Mapping[str, str | int], headers: Mapping[str, str]
    ) -> MemberAnswer:
        if url in self._own:
            return MemberAnswer(url=url, receiver=self._receiver_id, is_self=True)
        return await self._answer(url, path, parameters, headers)

    async def _answer(
        self, url: str, path: str, parameters: Mapping[str, str | int], headers: Mapping[str, str]
    ) -> MemberAnswer:
        answer = await self._client.ask(
            f"{url}{path}", list(parameters.items()), headers, self._server_name()
        )
        if answer.headers is None:
            return MemberAnswer(url=url, problem=answer.problem)
        receiver = answer.headers.get(RECEIVER)
        if receiver == self._receiver_id:
            self._own[url] = asyncio.get_running_loop().time() + _OWN_S
            return MemberAnswer(url=url, receiver=receiver, is_self=True)
        problem = _problem(answer.status, receiver, answer.document)
        return MemberAnswer(
            url=url,
            receiver=receiver,
            status=answer.status,
            document=None if problem else answer.document,
            problem=problem,
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


def _tls(settings: ClusterSettings) -> ClusterTlsSettings | None:
    members = settings.members
    if settings.tls is None and (isinstance(members, str) or all(url.startswith("http:") for url in members)):
        return None
    return settings.tls or ClusterTlsSettings()


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
