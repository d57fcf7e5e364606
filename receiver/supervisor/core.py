"""Starts the core process, links relays to it, and starts it again when it dies."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from receiver.supervisor import times
from receiver.supervisor.backoff import Backoff
from receiver.supervisor.child import Child, fork
from receiver.supervisor.children import Children
from receiver.supervisor.current import Current
from receiver.supervisor.poll import Poll
from receiver.supervisor.report import Report
from receiver.supervisor.setup import CoreSetup, RunCore
from receiver.supervisor.sockets import REST
from receiver.supervisor.states import STARTS_CORE, ChildState, Lifecycle, State


@dataclass(frozen=True, slots=True)
class Linkable:
    """A relay that can be linked to the core."""

    give: Callable[[socket.socket], object]
    traffic: int | None
    """The descriptor of its table of traffic; None: its supervisor has passed none."""


_log = structlog.get_logger("receiver.supervisor")


class Core:
    """The core process.

    Args:
        relays: Returns the relays that a core serves: by relay id.

    Attributes:
        child: The process; None while there is none.
    """

    def __init__(
        self,
        run: RunCore,
        *,
        children: Children,
        poll: Poll,
        lifecycle: Lifecycle,
        current: Current,
        report: Report,
        relays: Callable[[], Mapping[str, Linkable]],
    ) -> None:
        self._run = run
        self._children = children
        self._poll = poll
        self._lifecycle = lifecycle
        self._current = current
        self._report = report
        self._relays = relays
        self._backoff = Backoff()
        self._first = True
        self.child: Child | None = None

    def start(self) -> None:
        """Start a core if there is none, linked to all relays, in a state that needs one."""
        if self.child is None and self._lifecycle.state is State.PREPARING:
            # It must start with one configuration or the other.
            self._poll.call_later(times.RETRY_S, self.start)
        elif self.child is None and self._lifecycle.state in STARTS_CORE:
            self._start()

    def _start(self) -> None:
        with contextlib.ExitStack() as ends:
            links: dict[str, socket.socket] = {}
            gifts: list[tuple[Linkable, socket.socket]] = []
            relays = self._relays()
            try:
                for relay_id, relay in relays.items():
                    core_end, relay_end = map(ends.enter_context, socket.socketpair())
                    links[relay_id] = core_end
                    gifts.append((relay, relay_end))
                traffic = {
                    relay_id: relay.traffic for relay_id, relay in relays.items() if relay.traffic is not None
                }
                self.child = self._fork(links, traffic)
            except OSError as error:
                self._children.cannot_fork("core", error, self._backoff, self.start)
                return
            for relay, relay_end in gifts:
                relay.give(relay_end)

    def _fork(self, links: Mapping[str, socket.socket], traffic: Mapping[str, int]) -> Child:
        sockets = self._current.sockets
        setup = CoreSetup(
            first=self._first,
            settings=self._current.settings,
            relays=self._current.relays,
            rest=sockets[REST],
            bridge=sockets.bridge,
            links=links,
            traffic=traffic,
        )
        child = fork(
            "core",
            lambda channel: self._run(channel, setup),
            keep=[
                setup.rest.fileno(),
                *([] if setup.bridge is None else [setup.bridge.fileno()]),
                *(end.fileno() for end in links.values()),
                *traffic.values(),
            ],
            nice=self._current.settings.gateway.core_nice,
        )
        self._first = False
        self._children.add(child)
        return child

    def link(self, relay_id: str, relay: Linkable) -> None:
        """Link a relay to the core; without a core it is linked when one starts."""
        core_end, relay_end = socket.socketpair()
        with core_end, relay_end:
            if self.take_link(relay_id, core_end, relay.traffic):
                relay.give(relay_end)

    def take_link(self, relay_id: str, end: socket.socket, traffic: int | None) -> bool:
        """Give the core its end of a link and a table; return whether it has them."""
        child = self.child
        fds = [end.fileno()] if traffic is None else [end.fileno(), traffic]
        return child is not None and child.channel.send("link", fds=fds, relay=relay_id)

    def draining(self) -> None:
        """Tell the core that the relays drain."""
        if self.child is not None:
            self.child.channel.send("draining")

    def stop(self, timeout_s: float) -> None:
        """Have the core export what is queued, and end."""
        if self.child is not None:
            self.child.reach(ChildState.LEAVING)
            self.child.channel.send("stop", timeout_s=timeout_s)
            self._children.kill_later(timeout_s + 2 * times.GRACE_S, [self.child])

    def restart(self, died: Child, how: str, ran_s: float) -> None:
        """Start another core after one has died, at once if it was to end."""
        if died.state is ChildState.LEAVING:  # for a new version, which has failed in the meantime
            self.start()
            return
        delay_s = self._backoff.died(ran_s)
        self._report.restarted("core")
        _log.error(
            "the core died, telemetry is throttled until it is back",
            how=how,
            problem=died.problem,
            restart_in_s=delay_s,
        )
        self._poll.call_later(delay_s, self.start)
