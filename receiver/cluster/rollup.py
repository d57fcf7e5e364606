"""Asks the roll-up for its findings, over its REST.

The roll-up looks once a minute, so an answer serves all consoles for some seconds, and one request
at a time is open for each question.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import httpx

from receiver.cluster.rest_client import RestClient, RestFilesError
from receiver.settings.rollup import RollupSettings, RollupTlsSettings
from receiver.workers import start_task

#: The longest answer.
_MAX_ANSWER_BYTES: Final = 8 * 1_048_576
_MAX_CONNECTIONS: Final = 4
#: Seconds for which an answer is kept.
_KEPT_S: Final = 10.0
#: Most questions whose answers are kept.
_MAX_KEPT: Final = 16
#: Most findings that are kept of an answer.
_MAX_FINDINGS: Final = 1_000
_MAX_DETAIL: Final = 200

#: Names and values of a filter.
Question: TypeAlias = tuple[tuple[str, str], ...]


class RollupError(Exception):
    """The findings can't be had; the text has the reason in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The findings of a filter."""

    items: list[Any]
    """The first of them, the most severe first, as the roll-up's JSON has them."""
    total: int


class Rollup:
    """The roll-up, which is asked over REST.

    Args:
        clock: Monotonic seconds.

    Raises:
        RestFilesError: A file can't be used.
    """

    def __init__(self, settings: RollupSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings: Final = settings
        self._clock = clock
        tls = (settings.tls or RollupTlsSettings()) if urlsplit(settings.url).scheme == "https" else None
        self._server_name = None if settings.tls is None else settings.tls.server_name
        self._client = RestClient(
            "rollup",
            settings,
            tls=tls,
            max_bytes=_MAX_ANSWER_BYTES,
            max_connections=_MAX_CONNECTIONS,
            clock=clock,
        )
        #: The oldest answer comes first.
        self._kept: OrderedDict[Question, tuple[float, asyncio.Task[Found | RollupError]]] = OrderedDict()

    async def close(self) -> None:
        """Close the connections; nobody waits for an answer any more."""
        for _, task in self._kept.values():
            task.cancel()
        await self._client.close()

    async def findings(self, question: Question) -> Found:
        """Return the findings of a filter.

        Raises:
            RollupError: They can't be had.
        """
        now = self._clock()
        kept = self._kept.get(question)
        if kept is None or (kept[0] <= now and kept[1].done()):
            task = start_task("rollup-findings", self._ask(question))
            self._kept.pop(question, None)
            kept = self._kept[question] = now + _KEPT_S, task
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        # Others may wait for the same answer.
        found = await asyncio.shield(kept[1])
        if isinstance(found, RollupError):
            raise found
        return found

    async def _ask(self, question: Question) -> Found | RollupError:
        try:
            headers = self._client.authorization()
        except RestFilesError as error:
            return RollupError(str(error))
        url = f"{self.settings.url}/v1/findings"
        answer = await self._client.ask(url, question, headers, self._server_name)
        document = answer.document
        match answer.status, document:
            case 0, _:
                return RollupError(answer.problem or "no answer")
            case httpx.codes.OK, {"findings": list(found)} if all(isinstance(item, dict) for item in found):
                return Found(items=found[:_MAX_FINDINGS], total=len(found))
            case httpx.codes.UNAUTHORIZED, _:
                return RollupError(
                    "it does not know the token: set rollup.token, and the roll-up's metrics.token_files"
                )
            case httpx.codes.MISDIRECTED_REQUEST, _:
                return RollupError(
                    "it does not know the host name of rollup.url: add it to metrics.allowed_hosts there"
                )
        detail = document.get("detail") if isinstance(document, dict) else None
        return RollupError(f"status {answer.status}: {str(detail or 'without a reason')[:_MAX_DETAIL]}")
