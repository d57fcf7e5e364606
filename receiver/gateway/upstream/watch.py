"""Watches one broker: its answers, API versions, node id and cluster id.

Owns the loop that probes until the broker answers. It runs at the start, after each failure to
connect, and after the broker has ended a connection, which may be the first sign that the broker is
going down. A broker that hangs shows no sign at all, so it is asked every few seconds whether it
still answers, and now and then for all that a probe learns.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

import structlog

from receiver.brokers.bypass import bypass_problem
from receiver.brokers.hidden_telemetry import hidden_telemetry
from receiver.brokers.listener_broker import KnownBroker, ListenerBroker
from receiver.brokers.upstream import Upstream
from receiver.gateway.upstream.address import UpstreamAddress
from receiver.gateway.upstream.broker_login import BrokerLoginError
from receiver.gateway.upstream.probe import ProbeError, check_alive, probe
from receiver.log import RateLimitedLog
from receiver.settings.listeners import ListenerSettings
from receiver.wire.k03_metadata import Cluster
from receiver.workers import start_task

#: Seconds to wait before each next probe; the last value repeats.
_RETRY_AFTER_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)

#: Seconds to wait before probing a broker that ended a connection. It bounds the probes that a
#: client can cause if a healthy broker keeps ending its connections.
_CHECK_AFTER_S: Final = 1.0

#: Seconds between probes: of a broker that is not the configured one, of one that names the brokers
#: of the cluster where addresses are rewritten, and of any other one.
_MISMATCH_EVERY_S: Final = 5.0
_CLUSTER_EVERY_S: Final = 30.0
_PROBE_EVERY_S: Final = 60.0

#: Seconds between questions whether the broker still answers, and for an answer. A long garbage
#: collection takes less.
_ALIVE_EVERY_S: Final = 10.0
_ALIVE_WITHIN_S: Final = 5.0


class UpstreamWatch:
    """Keeps what is known of a listener's broker up to date.

    ``on_change`` is called when an attribute or the cluster id may have changed. If there is an
    ``on_cluster``, the broker is asked for its cluster now and then, and each answer goes there.

    Attributes:
        away: Whether the latest probe could not connect.
    """

    def __init__(
        self,
        settings: ListenerSettings,
        address: UpstreamAddress,
        broker: ListenerBroker,
        upstream: Upstream,
        *,
        on_change: Callable[[], None],
        on_cluster: Callable[[Cluster], None] | None = None,
        name: str | None = None,
    ) -> None:
        self._settings = settings
        self._address = address
        self._broker = broker
        self._fields = {"listener": name or settings.name, "upstream": str(settings.upstream)}
        self._subject = f"broker of {self._fields['listener']}"
        self._log = structlog.get_logger("receiver.gateway", **self._fields)
        self._warnings = RateLimitedLog("receiver.gateway", fields=self._fields)
        self._probing: asyncio.Task[None] | None = None
        self._upstream = upstream
        self._on_change = on_change
        self._on_cluster = on_cluster
        self._again: asyncio.TimerHandle | None = None
        self._probe_due_at = 0.0
        self._is_stopped = False
        self._logged: tuple[KnownBroker, str | None] | None = None
        broker.on_change = self._broker_changed
        self.problem: str | None = "not probed yet"
        self.away = False

    def start(self) -> None:
        """Begin to probe, unless a probe is running."""
        self._probe(after_s=0.0)

    def failed(self, problem: str) -> None:
        """Record a failed connection, and probe until the broker answers again."""
        self.problem = problem
        self._on_change()
        self._probe(after_s=0.0)

    def check(self) -> None:
        """Probe soon whether the broker still answers."""
        self._probe(after_s=_CHECK_AFTER_S)

    def stop(self) -> None:
        """Stop probing."""
        self._is_stopped = True
        if self._probing is not None:
            self._probing.cancel()
        if self._again is not None:
            self._again.cancel()

    def _probe(self, *, after_s: float) -> None:
        if self._probing is None or self._probing.done():
            self._start(self._probe_until_answered(after_s))

    def _start(self, probing: Coroutine[Any, Any, None]) -> None:
        self._probing = start_task("probe", probing, on_defect=self._probe_again)

    def _probe_again(self) -> None:
        """Probe after a defect, or nobody would learn that the broker is back."""
        if not self._is_stopped:
            self._probe(after_s=_RETRY_AFTER_S[-1])

    def _ask(self) -> None:
        """Ask whether the broker still answers, or all if that is due."""
        if asyncio.get_running_loop().time() >= self._probe_due_at:
            self.start()
        elif self._probing is None or self._probing.done():
            self._start(self._ask_whether_alive())

    async def _ask_whether_alive(self) -> None:
        timeout_s = min(_ALIVE_WITHIN_S, self._settings.connect_timeout_ms / 1000)
        try:
            await check_alive(self._address, self._upstream, timeout_s=timeout_s)
        except ProbeError as error:
            self._record_failure(error)
            await self._probe_until_answered(_RETRY_AFTER_S[0])
        else:
            self._ask_again()

    def _record_failure(self, error: ProbeError) -> None:
        self.problem = str(error)
        self.away = not error.connected
        self._broker.mark_away()
        self._on_change()
        self._warnings.warning("the broker does not answer", once=self._subject, problem=self.problem)

    async def _probe_until_answered(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        for attempt in itertools.count():
            cluster = None
            try:
                cluster = await probe(
                    self._address,
                    self._upstream,
                    self._broker,
                    needs_login=self._settings.speaks_sasl,
                    login=None if self._settings.broker is None else self._settings.broker.login,
                    timeout_s=self._settings.connect_timeout_ms / 1000,
                )
            except BrokerLoginError as error:
                self._warnings.warning(
                    "the sidecar can't log in to ask the broker for its node id",
                    once=f"login {self._subject}",
                    problem=str(error),
                )
            except ProbeError as error:
                self._record_failure(error)
                await asyncio.sleep(_RETRY_AFTER_S[min(attempt, len(_RETRY_AFTER_S) - 1)])
                continue
            self.away = False
            if self.problem is not None:
                self.problem = self._logged = None
            self._log_broker()
            if self._on_cluster is not None and cluster is not None:
                self._on_cluster(cluster)
            self._on_change()
            self._probe_due_at = asyncio.get_running_loop().time() + self._probe_every_s()
            self._ask_again()
            return

    def _probe_every_s(self) -> float:
        if self._broker.problem is not None:
            return _MISMATCH_EVERY_S
        return _PROBE_EVERY_S if self._on_cluster is None else _CLUSTER_EVERY_S

    def _ask_again(self) -> None:
        if self._again is not None:
            self._again.cancel()
        loop = asyncio.get_running_loop()
        self._again = loop.call_at(min(loop.time() + _ALIVE_EVERY_S, self._probe_due_at), self._ask)

    def _broker_changed(self) -> None:
        if self.problem is None and (self._probing is None or self._probing.done()):
            self._log_broker()
            if not self._broker.known.proven:  # a client's traffic has named the cluster
                self._probe(after_s=0.0)
        self._on_change()

    def _log_broker(self) -> None:
        known, problem = self._broker.known, self._broker.problem
        # The other brokers of the cluster may come and go.
        seen = (replace(known, nodes=()), problem)
        if seen == self._logged:
            return
        self._logged = seen
        if (bypass := bypass_problem(self._settings, known)) is not None:
            self._log.warning("clients pass by the sidecar", once=f"bypass {self._subject}", problem=bypass)
        if (hidden := hidden_telemetry(known)) is not None:
            self._log.warning(
                "the broker's own telemetry has no effect",
                once=f"hidden telemetry {self._subject}",
                problem=hidden,
            )
        if problem is not None:
            self._log.error("the broker is not the configured one", once=self._subject, problem=problem)
        else:
            self._log.info(
                "the broker answers",
                once=self._subject,
                broker_id=known.broker.id,
                cluster_id=known.broker.cluster_id,
                proven=known.proven,
            )
