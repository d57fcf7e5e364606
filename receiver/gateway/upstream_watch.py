"""The watch over one upstream: whether the broker answers, what it speaks, which cluster it belongs to.

Owns the loop that asks until there is an answer: at the start, after each failure to connect, and after the
broker ended a connection, which may be the first sign of its own end.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Final

import structlog

from receiver.gateway.probe import ProbeError, probe
from receiver.gateway.upstream_address import UpstreamAddress
from receiver.log import RateLimitedLog
from receiver.session.upstream import Upstream
from receiver.settings.listeners import ListenerSettings
from receiver.telemetry.connection import Broker

__all__ = ["UpstreamWatch"]

#: How long to wait before asking again, in seconds; the last one for ever.
_RETRY_AFTER_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)

#: How long to wait before asking a broker that ended a connection, in seconds. It bounds what a client can
#: cause whose connections a healthy broker ends.
_CHECK_AFTER_S: Final = 1.0


class UpstreamWatch:
    """What is known of a listener's broker, kept true.

    Args:
        settings: The listener's settings.
        address: Where the broker is.
        broker: Who the broker is; its cluster id may be learned here.
        upstream: What the broker speaks; learned here.

    Attributes:
        problem: Why the broker can't be reached; None while it can.
    """

    def __init__(
        self, settings: ListenerSettings, address: UpstreamAddress, broker: Broker, upstream: Upstream
    ) -> None:
        self._settings = settings
        self._address = address
        self._broker = broker
        self._fields = {"listener": settings.name, "upstream": str(settings.upstream)}
        self._log = structlog.get_logger("receiver.gateway", **self._fields)
        self._warnings = RateLimitedLog("receiver.gateway", fields=self._fields)
        self._asking: asyncio.Task[None] | None = None
        self._upstream = upstream
        self.problem: str | None = "not asked yet"

    def start(self) -> None:
        """Begin to ask, unless it is being asked already."""
        self._ask(after_s=0.0)

    def failed(self, problem: str) -> None:
        """Take note that a connection to the broker failed, and ask until it answers again."""
        self.problem = problem
        self._ask(after_s=0.0)

    def check(self) -> None:
        """Ask in a moment whether the broker still answers."""
        self._ask(after_s=_CHECK_AFTER_S)

    def stop(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()

    def _ask(self, *, after_s: float) -> None:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask_until_answered(after_s))

    async def _ask_until_answered(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        for attempt in itertools.count():
            try:
                cluster_id = await probe(
                    self._address,
                    self._upstream,
                    ask_cluster_id=not self._settings.speaks_sasl,
                    timeout_s=self._settings.connect_timeout_ms / 1000,
                )
            except ProbeError as error:
                self.problem = str(error)
                self._warnings.warning("the broker does not answer", problem=self.problem)
                await asyncio.sleep(_RETRY_AFTER_S[min(attempt, len(_RETRY_AFTER_S) - 1)])
                continue
            self._take_cluster_id(cluster_id)
            if self.problem is not None:
                self.problem = None
                self._log.info("the broker answers", cluster_id=self._broker.cluster_id)
            return

    def _take_cluster_id(self, cluster_id: str | None) -> None:
        if cluster_id is None:
            return
        if self._broker.cluster_id is None:
            self._broker.cluster_id = cluster_id
        elif self._broker.cluster_id != cluster_id:
            self._log.warning(
                "broker.cluster_id is not what the broker says",
                configured=self._broker.cluster_id,
                broker_says=cluster_id,
            )
