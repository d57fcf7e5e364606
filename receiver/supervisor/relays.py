"""Starts the relay processes, one in each slot, and starts those again that die."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable, Iterator, Sequence

import structlog

from receiver.supervisor import times
from receiver.supervisor.backoff import Backoff
from receiver.supervisor.channel import Message
from receiver.supervisor.child import Child, fork
from receiver.supervisor.children import Children
from receiver.supervisor.core import Core, Linkable
from receiver.supervisor.current import Current
from receiver.supervisor.poll import Poll
from receiver.supervisor.report import Report
from receiver.supervisor.setup import RelaySetup, RunRelay
from receiver.supervisor.shared_counts import ProcessCounts, SharedCounts
from receiver.supervisor.states import STARTS_RELAYS, ChildState, Lifecycle, State
from receiver.traffic.table import closed_on_error, new_table

_log = structlog.get_logger("receiver.supervisor")


class Relays:
    """The relay processes, each linked to ``core``."""

    def __init__(
        self,
        run: RunRelay,
        *,
        core: Core,
        children: Children,
        poll: Poll,
        lifecycle: Lifecycle,
        current: Current,
        report: Report,
    ) -> None:
        self._run = run
        self._core = core
        self._children = children
        self._poll = poll
        self._lifecycle = lifecycle
        self._current = current
        self._report = report
        self._by_slot: dict[int, Child] = {}
        self._backoffs: dict[int, Backoff] = {}
        self._ids: dict[Child, str] = {}  # also of those that drain and are not started again
        self._count = itertools.count(1)
        self._all_counts = SharedCounts()
        self._counts: dict[Child, ProcessCounts] = {}
        self._traffic: dict[Child, int] = {}  # the descriptors of their tables

    def __contains__(self, child: Child) -> bool:
        return child in self._ids

    def __iter__(self) -> Iterator[Child]:
        """The relays that accept clients, without those that drain."""
        return iter(tuple(self._by_slot.values()))

    def __len__(self) -> int:
        return len(self._by_slot)

    @property
    def all_ended(self) -> bool:
        """Whether none runs, not even one that drains."""
        return not self._ids

    @property
    def slots(self) -> list[tuple[str, int]]:
        """The id and the slot of each, for a new version."""
        return [(relay_id, relay.slot) for relay, relay_id in self._ids.items()]

    def links(self) -> dict[str, Linkable]:
        """How to link each relay, by relay id."""
        return {
            relay_id: Linkable(_giving(relay), self._traffic[relay]) for relay, relay_id in self._ids.items()
        }

    def traffic_of(self, relay_id: str) -> list[int]:
        """The descriptor of a relay's table of traffic; empty: the relay has ended."""
        return [self._traffic[relay] for relay, known in self._ids.items() if known == relay_id]

    def pass_link(self, relay_id: str, fds: Sequence[int]) -> None:
        """Give a relay the link that another receiver has made for it."""
        for relay, known in self._ids.items():
            if known == relay_id:
                relay.channel.send("link", fds=fds)

    def id_of(self, relay: Child) -> str:
        """The id of a relay."""
        return self._ids[relay]

    def start(self) -> None:
        """Start a relay in each empty slot."""
        for slot in range(1, self._current.relays + 1):
            self._start(slot)

    def _start(self, slot: int) -> None:
        if self._lifecycle.state is State.PREPARING:
            self._poll.call_later(times.RETRY_S, lambda: self._start(slot))
            return
        if self._lifecycle.state not in STARTS_RELAYS:
            return
        if slot in self._by_slot or slot > self._current.relays:
            return
        try:
            self._fork(slot)
        except OSError as error:
            backoff = self._backoffs.setdefault(slot, Backoff())
            self._children.cannot_fork(f"relay-{slot}", error, backoff, lambda: self._start(slot))

    def _fork(self, slot: int) -> None:
        relay_id = f"{os.getpid()}-{next(self._count)}"
        core_end, relay_end = socket.socketpair()
        traffic = new_table()
        with core_end, relay_end, closed_on_error(traffic):
            setup = RelaySetup(
                settings=self._current.settings,
                slot=slot,
                relays=self._current.relays,
                counts=self._all_counts.claim(),
                relay_id=relay_id,
                sockets=self._current.sockets.of_listeners,
                link=relay_end,
                traffic=traffic,
            )
            try:
                relay = fork(
                    f"relay-{slot}",
                    lambda channel: self._run(channel, setup),
                    keep=[relay_end.fileno(), traffic, *(bound.fileno() for bound in setup.sockets.values())],
                )
            except OSError:
                self._all_counts.release(setup.counts)
                raise
            relay.slot = slot
            self._counts[relay] = setup.counts
            self._traffic[relay] = traffic
            self._by_slot[slot] = relay
            self._ids[relay] = relay_id
            self._children.add(relay)
            self._core.take_link(relay_id, core_end, traffic)

    def share_node(self, source: Child, message: Message) -> None:
        """Tell the other relays the address of a node.

        Later ones get it when they are ready.
        """
        self._current.learn([message.fields])
        for relay in self._by_slot.values():
            if relay is not source:
                relay.channel.send("node", **message.fields)

    def tell_nodes(self, relay: Child) -> None:
        """Tell a relay the addresses of all nodes."""
        for node in self._current.nodes:
            relay.channel.send("node", **node)

    def resize(self) -> None:
        """Start the relays that a configuration wants, and drain the others."""
        drain_s = self._current.drain_s
        surplus = [relay for slot, relay in self._by_slot.items() if slot > self._current.relays]
        for relay in surplus:
            del self._by_slot[relay.slot]
            relay.reach(ChildState.LEAVING)
        self._drain(surplus, after_s=drain_s)
        self.start()

    def drain(self, *, after_s: float) -> None:
        """Have all accept no more clients, and drain connections after ``after_s``."""
        self._drain([*self._ids], after_s=after_s)

    def _drain(self, relays: list[Child], *, after_s: float) -> None:
        drain_s = self._current.drain_s
        for relay in relays:
            relay.channel.send("drain", after_s=after_s, timeout_s=drain_s)
        self._children.kill_later(after_s + drain_s + times.GRACE_S, relays)

    def ended(self, relay: Child) -> None:
        """Forget a relay that has ended."""
        del self._ids[relay]
        self._all_counts.release(self._counts.pop(relay))
        os.close(self._traffic.pop(relay))
        if self._by_slot.get(relay.slot) is relay:
            del self._by_slot[relay.slot]

    def restart(self, died: Child, how: str, ran_s: float) -> None:
        """Start another relay after one has died, unless it was to end."""
        if died.state is ChildState.LEAVING:
            return
        delay_s = self._backoffs.setdefault(died.slot, Backoff()).died(ran_s)
        self._report.restarted("relay")
        _log.error(
            "a relay died, its connections are lost",
            process=died.name,
            how=how,
            problem=died.problem,
            restart_in_s=delay_s,
        )
        self._poll.call_later(delay_s, lambda: self._start(died.slot))


def _giving(relay: Child) -> Callable[[socket.socket], object]:
    return lambda end: relay.channel.send("link", fds=[end.fileno()])
