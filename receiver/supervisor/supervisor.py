"""Runs the core process and the relay processes, and restarts those that die.

Start: the sockets are bound, the core starts, and once it is ready the relays do, so that
everything that clients need is running. Restart: a relay that dies takes its own connections with
it; the core none. Stop: the relays finish responses in flight, and then the core exports what is
queued and stops the REST API last, so that the drain can be observed.
"""

from __future__ import annotations

import heapq
import itertools
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import structlog

from receiver import dumps
from receiver.log import configure as configure_log
from receiver.settings.errors import SettingsError
from receiver.settings.model import ReceiverSettings
from receiver.supervisor.backoff import Backoff
from receiver.supervisor.channel import ChannelError, Message, file_of
from receiver.supervisor.child import Child, fork, reap_orphans
from receiver.supervisor.relay_count import wanted_relays
from receiver.supervisor.reload import Reload
from receiver.supervisor.setup import CoreSetup, RelaySetup, RunCore, RunRelay
from receiver.supervisor.shared_counts import ProcessCounts, SharedCounts
from receiver.supervisor.sockets import REST, ListeningSockets, SocketError
from receiver.supervisor.takeover import (
    PROTOCOL_VERSION,
    ControlSocket,
    Predecessor,
    Stage,
    Successor,
    TakeOverError,
    check_unused,
)

__all__ = ["Supervisor"]

#: Seconds between two questions to each child whether it is alive.
_PING_EVERY_S: Final = 5.0

#: Linux gives process 1 the orphans of its PID namespace, as in a container.
_PROCESS_1: Final = 1

#: Questions without an answer after which a child is killed. Counted, because all processes may
#: have been suspended together.
_MAX_UNANSWERED: Final = 3

#: The same for a child that is not ready yet and can't answer: two minutes.
_MAX_UNREADY: Final = 24

#: Seconds that a child has to end beyond the time it was given.
_GRACE_S: Final = 10.0

#: Seconds after which a start that has to wait for a reload is tried again.
_RETRY_S: Final = 0.1

#: Seconds that the processes have to prepare a configuration, and again to apply it.
_RELOAD_WITHIN_S: Final = 60.0

#: Seconds that a new version has for its first message, to ask for the end of the core once it has
#: the sockets, and to accept clients once the core has ended. A child that is not ready after two
#: minutes is killed, and so the new version ends.
_TAKE_OVER_WITHIN_S: Final = 10.0
_RELEASE_WITHIN_S: Final = 60.0
_ACCEPT_WITHIN_S: Final = 120.0

#: Seconds of rest after an event that failed, because the same event may come again at once.
_REST_S: Final = 0.1

_RELOADING: Final = "it is reloading its configuration; try again"

_log = structlog.get_logger("receiver.supervisor")


class Supervisor:
    """The supervisor of one receiver.

    Args:
        settings: The configuration.
        check: Loads and checks the whole configuration for a reload, or raises SettingsError.
        run_core: Runs in the core process.
        run_relay: Runs in each relay process.
        take_over: Whether to take over the running receiver at ``gateway.control``.
    """

    def __init__(
        self,
        settings: ReceiverSettings,
        *,
        check: Callable[[], ReceiverSettings],
        run_core: RunCore,
        run_relay: RunRelay,
        take_over: bool = False,
    ) -> None:
        self._settings = settings
        self._check = check
        self._run_core = run_core
        self._run_relay = run_relay
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._sockets: ListeningSockets
        self._core: Child | None = None
        self._core_backoff = Backoff()
        self._relays: dict[int, Child] = {}  # by slot
        self._retired: set[Child] = set()  # relays that drain and are not started again
        self._relay_backoffs: dict[int, Backoff] = {}
        self._relay_ids: dict[Child, str] = {}
        self._relay_count = itertools.count(1)
        self._all_held_bytes = SharedCounts()
        self._held_bytes: dict[Child, ProcessCounts] = {}
        # What relays said of the nodes of rewriting listeners, by listener and node id.
        self._nodes: dict[tuple[str, int], dict[str, Any]] = {}
        self._started = False
        self._stop_at: float | None = None  # set once it is stopping
        self._interrupted = False  # whether a SIGINT has come
        self._core_stopping = False
        self._reload: Reload | None = None
        self._reload_again = False
        self._status: int | None = None
        self._take_over = take_over
        self._predecessor: Predecessor | None = None  # while its relays leave
        self._control: ControlSocket | None = None
        self._successor: Successor | None = None
        self._leaving = False  # whether the successor has taken over

    def run(self) -> int:
        """Run until SIGTERM or SIGINT.

        Returns:
            The exit status: 0 after a drain, 1 if the receiver cannot start, 2 if the configuration
            is wrong.
        """
        try:
            self._get_sockets()
        except (SocketError, TakeOverError) as error:
            _log.error("cannot start", problem=str(error))
            return 1
        wakeup = self._watch_signals()
        try:
            self._start_core()
            self._call_later(_PING_EVERY_S, self._ping)
            while self._status is None:
                self._wait()
            return self._status
        finally:
            for child in self._children():
                child.kill()
            for child in self._children():
                child.reap()
            self._sockets.close()
            if self._control is not None:
                self._control.close()
            for other in (self._successor, self._predecessor):
                if other is not None:
                    other.close()
            signal.set_wakeup_fd(-1)
            for end in wakeup:
                end.close()
            self._selector.close()

    # -- events ------------------------------------------------------------------------------------

    def _wait(self) -> None:
        timeout = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        for key, _ in self._selector.select(timeout):
            self._call(key.data)
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            self._call(heapq.heappop(self._timers)[2])

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            if not self._started:
                raise
            # All connections would end with this process.
            _log.exception("the supervisor failed at an event and goes on")
            time.sleep(_REST_S)

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), callback))

    def _watch_signals(self) -> tuple[socket.socket, socket.socket]:
        """Have the poll return for signals, which arrive as bytes in a socket."""
        reader, writer = socket.socketpair()
        for end in (reader, writer):
            end.setblocking(False)  # noqa: FBT003 - the socket's own signature
        signal.set_wakeup_fd(writer.fileno())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _leave_to_the_loop)

        def read() -> None:
            for number in reader.recv(4096):
                if number == signal.SIGHUP:
                    self._begin_reload()
                elif number in (signal.SIGTERM, signal.SIGINT):
                    self._stop(signal.Signals(number))

        self._selector.register(reader, selectors.EVENT_READ, read)
        return reader, writer

    def _watch(self, child: Child) -> None:
        self._selector.register(child.channel, selectors.EVENT_READ, lambda: self._read(child))
        self._selector.register(child.pidfd, selectors.EVENT_READ, lambda: self._ended(child))

    def _read(self, child: Child) -> None:
        if child.channel.fileno() not in self._selector.get_map():
            return  # an earlier event of the same turn has closed it
        try:
            while (message := child.channel.receive()) is not None:
                self._handle(child, message)
        except EOFError:
            self._selector.unregister(child.channel)
        except ChannelError as error:
            _log.error("a process sent nonsense, it is killed", process=child.name, problem=str(error))
            child.kill()

    def _handle(self, child: Child, message: Message) -> None:
        match message.type:
            case "pong":
                child.unanswered = 0
            case "ready":
                child.ready = True
                child.unanswered = 0
                self._ready(child)
            case "failed":
                child.problem = str(message.fields["problem"])
                child.status = int(message.fields["status"])
            case "need_link":
                self._link(child)
            case "node":
                self._share_node(child, message)
            case "prepared" | "refused" if child.stale_answers:
                child.stale_answers -= 1
            case "prepared" | "refused" | "applied" if self._reload is not None:
                self._reload.answered(child, message)
                self._go_on_reloading()
            case "drained":
                child.leaving = True
        message.close()

    def _share_node(self, child: Child, message: Message) -> None:
        """Tell the other relays the address of a node; later ones get it when they are ready."""
        fields = message.fields
        self._nodes[fields["listener"], fields["node"]] = fields
        for relay in self._relays.values():
            if relay is not child:
                relay.channel.send("node", **fields)

    def _ping(self) -> None:
        if os.getpid() == _PROCESS_1:
            reap_orphans({child.pid for child in self._children()})
        for child in self._children():
            if child.unanswered >= (_MAX_UNANSWERED if child.ready else _MAX_UNREADY):
                event = "does not answer" if child.ready else "does not become ready"
                _log.error(f"a process {event}, it is killed", process=child.name, pid=child.pid)
                child.kill()
                continue
            child.unanswered += 1
            if child.ready:
                child.channel.send("ping")
        self._call_later(_PING_EVERY_S, self._ping)

    # -- children ----------------------------------------------------------------------------------

    def _children(self) -> list[Child]:
        core = () if self._core is None else (self._core,)
        return [*core, *self._relays.values(), *self._retired]

    def _relay_total(self) -> int:
        return wanted_relays(self._settings)

    def _start_core(self) -> None:
        if self._core is not None or self._has_no_core or self._stop_at is not None or self._leaving:
            return
        if self._reload is not None and not self._reload.committed:
            # It must start with one configuration or the other.
            self._call_later(_RETRY_S, self._start_core)
            return
        adopted = () if self._predecessor is None else tuple(self._predecessor.relays)
        links: dict[str, socket.socket] = {}
        ends: dict[str, socket.socket] = {}
        try:
            for relay_id in (*self._relay_ids.values(), *adopted):
                links[relay_id], ends[relay_id] = socket.socketpair()
            self._fork_core(links)
            for relay, relay_id in self._relay_ids.items():
                relay.channel.send("link", fds=[ends[relay_id].fileno()])
            for relay_id in adopted:
                self._send_to_predecessor(relay_id, ends[relay_id])
        except OSError as error:
            self._cannot_fork("core", error, self._core_backoff, self._start_core)
        finally:
            for end in (*links.values(), *ends.values()):
                end.close()

    def _fork_core(self, links: Mapping[str, socket.socket]) -> None:
        setup = CoreSetup(
            settings=self._settings,
            relays=self._relay_total(),
            rest=self._sockets[REST],
            bridge=self._sockets.bridge,
            links=links,
        )
        self._core = fork(
            "core",
            lambda channel: self._run_core(channel, setup),
            keep=[
                setup.rest.fileno(),
                *([] if setup.bridge is None else [setup.bridge.fileno()]),
                *(end.fileno() for end in links.values()),
            ],
            nice=self._settings.gateway.core_nice,
        )
        self._watch(self._core)

    def _start_relay(self, slot: int) -> None:
        if self._stop_at is not None or self._leaving:
            return
        if slot in self._relays or slot > self._relay_total():
            return
        if self._reload is not None and not self._reload.committed:
            self._call_later(_RETRY_S, lambda: self._start_relay(slot))
            return
        try:
            self._fork_relay(slot)
        except OSError as error:
            backoff = self._relay_backoffs.setdefault(slot, Backoff())
            self._cannot_fork(f"relay-{slot}", error, backoff, lambda: self._start_relay(slot))

    def _fork_relay(self, slot: int) -> None:
        relay_id = f"{os.getpid()}-{next(self._relay_count)}"
        core_end, relay_end = socket.socketpair()
        with core_end, relay_end:
            setup = RelaySetup(
                settings=self._settings,
                slot=slot,
                relays=self._relay_total(),
                held_bytes=self._all_held_bytes.claim(),
                relay_id=relay_id,
                sockets=self._sockets.of_listeners,
                link=relay_end,
            )
            try:
                relay = fork(
                    f"relay-{slot}",
                    lambda channel: self._run_relay(channel, setup),
                    keep=[relay_end.fileno(), *(one.fileno() for one in setup.sockets.values())],
                )
            except OSError:
                self._all_held_bytes.release(setup.held_bytes)
                raise
            relay.slot = slot
            self._held_bytes[relay] = setup.held_bytes
            self._relays[slot] = relay
            self._relay_ids[relay] = relay_id
            self._watch(relay)
            if self._core is not None:
                self._core.channel.send("link", fds=[core_end.fileno()], relay=relay_id)

    def _cannot_fork(self, name: str, error: OSError, backoff: Backoff, again: Callable[[], None]) -> None:
        problem = f"the process {name} cannot be started: {error.strerror or error}"
        if not self._started:
            _log.error("cannot start", problem=problem)
            self._status = 1
            return
        delay_s = backoff.died(0.0)
        _log.error("a process cannot be started", problem=problem, restart_in_s=delay_s)
        self._call_later(delay_s, again)

    def _link(self, relay: Child) -> None:
        """Give a relay a new link; without a core it gets one when a core has started."""
        relay_id = self._relay_ids[relay]
        if self._successor is not None and self._has_no_core:
            self._successor.channel.send("need_link", relay=relay_id)
        elif self._core is not None:
            core_end, relay_end = socket.socketpair()
            with core_end, relay_end:
                if self._core.channel.send("link", fds=[core_end.fileno()], relay=relay_id):
                    relay.channel.send("link", fds=[relay_end.fileno()])

    def _ready(self, child: Child) -> None:
        if self._stop_at is not None or self._status is not None:
            return
        if child in self._relay_ids:
            for node in self._nodes.values():
                child.channel.send("node", **node)
        if child is self._core and not self._started and not self._relays:
            try:
                self._sockets.listen()
            except SocketError as error:
                _log.error("cannot start", problem=str(error))
                self._status = 1
                return
            for slot in range(1, self._relay_total() + 1):
                self._start_relay(slot)
        if not self._started and all(one.ready for one in self._children()):
            self._started = True
            _log.info(
                "started",
                rest=str(self._settings.rest.bind),
                relays=len(self._relays),
            )
            if self._predecessor is not None:
                self._predecessor.channel.send("accepting")
            self._listen_for_successor()
        self._reload_if_asked()

    def _ended(self, child: Child) -> None:
        self._read_rest(child)
        self._selector.unregister(child.pidfd)
        ran_s = time.monotonic() - child.started
        how = child.reap()
        if self._reload is not None:
            self._reload.left(child)
        if child is self._core:
            self._core = None
            self._core_ended(child, how, ran_s)
        else:
            self._relay_ended(child, how, ran_s)
        self._go_on_reloading()
        self._reload_if_asked()

    def _read_rest(self, child: Child) -> None:
        """Read the last messages of a child that has ended."""
        if child.channel.fileno() in self._selector.get_map():
            self._read(child)
        if child.channel.fileno() in self._selector.get_map():
            self._selector.unregister(child.channel)

    def _core_ended(self, core: Child, how: str, ran_s: float) -> None:
        if self._core_stopping:
            _log.info("stopped")
            self._status = 0
        elif self._stop_at is not None or self._leaving:
            if not core.leaving:  # it died while the relays drain
                _log.error("the core died", how=how)
            self._go_on_stopping()
        elif self._successor is not None and self._has_no_core:
            self._release_core(self._successor)
        elif core.leaving:  # the successor has failed in the meantime
            self._start_core()
        elif not self._started:
            self._cannot_start(core, how)
        else:
            delay_s = self._core_backoff.died(ran_s)
            _log.error(
                "the core died, telemetry is throttled until it is back",
                how=how,
                problem=core.problem,
                restart_in_s=delay_s,
            )
            self._call_later(delay_s, self._start_core)

    def _relay_ended(self, relay: Child, how: str, ran_s: float) -> None:
        del self._relay_ids[relay]
        self._all_held_bytes.release(self._held_bytes.pop(relay))
        self._retired.discard(relay)
        if self._relays.get(relay.slot) is relay:
            del self._relays[relay.slot]
        if self._stop_at is not None or self._leaving:
            self._go_on_stopping()
        elif relay.leaving:
            return
        elif not self._started:
            self._cannot_start(relay, how)
        else:
            delay_s = self._relay_backoffs.setdefault(relay.slot, Backoff()).died(ran_s)
            _log.error(
                "a relay died, its connections are lost",
                process=relay.name,
                how=how,
                problem=relay.problem,
                restart_in_s=delay_s,
            )
            self._call_later(delay_s, lambda: self._start_relay(relay.slot))

    def _cannot_start(self, child: Child, how: str) -> None:
        _log.error("cannot start", problem=child.problem or f"the process {child.name} ended: {how}")
        self._status = child.status or 1

    # -- stop --------------------------------------------------------------------------------------

    def _stop(self, number: signal.Signals) -> None:
        drain_s = self._settings.drain.timeout_s
        if self._stop_at is not None:
            # Service managers may repeat SIGTERM, which must not cut anything off.
            if number is signal.SIGINT and self._interrupted:
                _log.warning("stopped at once by a second SIGINT, what was in flight is lost")
                self._status = 1
            elif number is signal.SIGINT:
                _log.info("stopping already, another SIGINT stops at once")
                self._interrupted = True
            return
        self._interrupted = number is signal.SIGINT
        _log.info("stopping", signal=number.name, drain_s=drain_s)
        if self._reload is not None and not self._reload.committed:
            self._reload.abort()
            self._reload = None
        self._stop_at = time.monotonic() + drain_s
        if self._core is not None:
            self._core.channel.send("draining")
        for relay in (*self._relays.values(), *self._retired):
            relay.channel.send("drain", after_s=0.0, timeout_s=drain_s)
        for listening in self._sockets.of_listeners.values():
            listening.close()  # the kernel refuses clients once the relays have closed theirs too
        self._kill_later(drain_s + _GRACE_S, (*self._relays.values(), *self._retired))
        self._go_on_stopping()

    def _kill_later(self, seconds: float, children: Collection[Child]) -> None:
        """Kill those of the processes that have not ended by then."""

        def kill() -> None:
            for child in children:
                if child.runs:
                    _log.warning("a process did not end in time, it is killed", process=child.name)
                    child.kill()

        self._call_later(seconds, kill)

    def _go_on_stopping(self) -> None:
        if self._relays or self._retired or self._core_stopping:
            return
        if self._core is None:
            _log.info("stopped")
            self._status = 0
            return
        self._core_stopping = True
        left_s = max(0.0, (self._stop_at or 0.0) - time.monotonic())
        self._core.channel.send("stop", timeout_s=left_s)
        self._kill_later(left_s + 2 * _GRACE_S, [self._core])

    # -- take-over ---------------------------------------------------------------------------------

    def _get_sockets(self) -> None:
        """Bind the listening sockets, or get them from the receiver that is taken over."""
        path = self._settings.gateway.control
        if not self._take_over:
            if path is not None:
                check_unused(path)
            self._sockets = ListeningSockets(self._settings)
            return
        if path is None:
            raise TakeOverError("gateway.control is not set: it names the socket of the running receiver")
        predecessor = Predecessor(path)
        try:
            self._sockets = ListeningSockets(self._settings, predecessor.sockets)
            # A socket that nobody accepts from would let clients wait for ever.
            self._sockets.close_others()
            # The ports of nodes are open, and clients at them should not wait for a response.
            self._nodes = {(one["listener"], one["node"]): one for one in predecessor.nodes}
            predecessor.release_core()
        except BaseException:
            predecessor.close()
            raise
        self._predecessor = predecessor
        self._selector.register(predecessor.channel, selectors.EVENT_READ, self._read_predecessor)

    def _read_predecessor(self) -> None:
        predecessor = self._predecessor
        if predecessor is None:
            return
        try:
            while (message := predecessor.channel.receive()) is not None:
                if message.type == "need_link":
                    self._link_to_predecessor(predecessor, str(message.fields.get("relay")))
                elif message.type == "refused":
                    problem = predecessor.problem(message)
                    _log.error("the take-over has failed, this version ends", problem=problem)
                    self._status = 1
                message.close()
                if self._status is not None:
                    return
        except (EOFError, ChannelError):
            _log.info("the receiver that was taken over has ended")
            self._selector.unregister(predecessor.channel)
            predecessor.channel.close()
            self._predecessor = None

    def _link_to_predecessor(self, predecessor: Predecessor, relay_id: str) -> None:
        """Give a relay of the predecessor a new link; without a core it gets one with the core."""
        predecessor.relays.setdefault(relay_id, 0)  # it may have started after the others
        if self._core is None:
            return
        core_end, relay_end = socket.socketpair()
        with core_end, relay_end:
            self._core.channel.send("link", fds=[core_end.fileno()], relay=relay_id)
            self._send_to_predecessor(relay_id, relay_end)

    def _send_to_predecessor(self, relay_id: str, end: socket.socket) -> None:
        if self._predecessor is not None:
            self._predecessor.channel.send("links", fds=[end.fileno()], relay=relay_id)

    def _listen_for_successor(self) -> None:
        path = self._settings.gateway.control
        if path is None:
            return
        try:
            self._use_control(ControlSocket(path))
        except TakeOverError as error:
            _log.error("no version can take over from this one", problem=str(error))

    def _use_control(self, control: ControlSocket | None) -> None:
        if self._control is not None:
            self._selector.unregister(self._control)
            self._control.close()
        self._control = control
        if control is not None:
            self._selector.register(control, selectors.EVENT_READ, self._accept_successor)

    def _accept_successor(self) -> None:
        channel = None if self._control is None else self._control.accept()
        if channel is None:
            return
        self._read_successor()  # the one before may have asked by now
        problem = None
        if self._stop_at is not None or self._leaving:
            problem = "it is stopping"
        elif self._successor is not None and self._successor.has_asked:
            problem = "another version is taking over"
        elif self._reload is not None:
            problem = _RELOADING
        if problem is not None:
            channel.send("refused", problem=problem)
            channel.close()
            return
        if self._successor is not None:  # it has said nothing yet
            self._successor_left(self._successor, "another process has connected")
        self._successor = Successor(channel)
        self._selector.register(channel, selectors.EVENT_READ, self._read_successor)
        self._advance(self._successor, Stage.CONNECTED)

    def _read_successor(self) -> None:
        successor = self._successor
        if successor is None:
            return
        try:
            while self._successor is successor and (message := successor.channel.receive()) is not None:
                self._handle_successor(successor, message)
        except (EOFError, ChannelError, LookupError, TypeError, ValueError) as error:
            self._successor_left(successor, str(error))

    @property
    def _has_no_core(self) -> bool:
        """Whether the core ends or has ended for a new version."""
        return self._successor is not None and self._successor.has_core

    def _advance(self, successor: Successor, stage: Stage) -> None:
        """Note how far the take-over has come, and wait for the next step up to its deadline."""
        successor.stage = stage
        within_s = {
            Stage.CONNECTED: _TAKE_OVER_WITHIN_S,
            Stage.ASKED: _RELEASE_WITHIN_S,
            Stage.RELEASED: _ACCEPT_WITHIN_S,
        }.get(stage)
        if within_s is not None:
            self._call_later(within_s, lambda: self._successor_late(successor, stage, within_s))

    def _successor_late(self, successor: Successor, stage: Stage, within_s: float) -> None:
        def is_late() -> bool:
            return self._successor is successor and successor.stage is stage and self._stop_at is None

        if is_late():
            self._read_successor()  # it may have come while this process had no time
        if is_late():
            self._refuse(successor, f"the new version did not {stage.value} within {within_s:g} s")

    def _refuse(self, successor: Successor, problem: str) -> None:
        """Go on without the new version, and make sure that it ends."""
        successor.channel.send("refused", problem=problem)
        if successor.stage is Stage.CONNECTED:
            _log.warning("a process on gateway.control is turned away", problem=problem)
        self._successor_left(successor, problem)

    def _successor_left(self, successor: Successor, problem: str) -> None:
        self._selector.unregister(successor.channel)
        self._successor = None
        if successor.stage is Stage.RELEASED:
            # Its processes may run though it does not, and hold sockets and files.
            successor.channel.close()
            self._call_later(_GRACE_S, lambda: self._kill_successor(successor))
        else:
            successor.close()
        if not successor.has_asked:  # a receiver that only looked whether this one runs
            self._reload_if_asked()
        elif not self._leaving and self._stop_at is None:
            _log.error("the new version has not taken over, this one goes on", problem=problem)
            self._start_core()
            self._reload_if_asked()

    def _kill_successor(self, successor: Successor) -> None:
        if successor.kill():
            _log.warning("the new version that has not taken over did not end in time, it is killed")
        successor.close()

    def _release_core(self, successor: Successor) -> None:
        successor.channel.send("released", relays=self._own_relays())
        self._advance(successor, Stage.RELEASED)

    def _handle_successor(self, successor: Successor, message: Message) -> None:
        match message.type:
            case "take_over" if message.fields.get("version") != PROTOCOL_VERSION:
                problem = f"it speaks version {PROTOCOL_VERSION} of the take-over; stop it and start anew"
                self._refuse(successor, problem)
            case "take_over" if self._reload is not None:
                self._refuse(successor, _RELOADING)
            case "take_over" if successor.stage is Stage.CONNECTED:
                self._advance(successor, Stage.ASKED)
                sockets = list(self._sockets.items())
                successor.channel.send(
                    "sockets",
                    fds=[listening.fileno() for _, _, listening in sockets],
                    names=[(name, str(bind)) for name, bind, _ in sockets],
                    drain_s=self._settings.drain.timeout_s,
                    nodes=list(self._nodes.values()),
                )
            case "release_core" if successor.stage is Stage.ASKED:
                _log.info("a new version takes over, the core stops")
                self._advance(successor, Stage.ENDING)
                if self._core is None:
                    self._release_core(successor)
                else:
                    drain_s = self._settings.drain.timeout_s
                    self._core.leaving = True
                    self._core.channel.send("stop", timeout_s=drain_s)
                    self._kill_later(drain_s + 2 * _GRACE_S, [self._core])
            case "links" if successor.has_core:
                for relay, relay_id in self._relay_ids.items():
                    if relay_id == message.fields["relay"]:
                        relay.channel.send("link", fds=message.fds)
            case "accepting" if successor.stage is Stage.RELEASED:
                self._advance(successor, Stage.DONE)
                if self._stop_at is None:
                    self._leave()
            case _:
                message.close()
                raise ValueError(f"it sent {message.type!r} out of turn")
        message.close()

    def _own_relays(self) -> list[tuple[str, int]]:
        return [(relay_id, relay.slot) for relay, relay_id in self._relay_ids.items()]

    def _leave(self) -> None:
        """Keep the open connections until they end or the drain time is over."""
        drain_s = self._settings.drain.timeout_s
        _log.info("a new version has taken over, open connections are kept", drain_s=drain_s)
        self._leaving = True
        for _, _, listening in self._sockets.items():
            listening.close()
        for relay in (*self._relays.values(), *self._retired):
            relay.channel.send("drain", after_s=drain_s, timeout_s=drain_s)
        self._kill_later(2 * drain_s + _GRACE_S, (*self._relays.values(), *self._retired))
        self._go_on_stopping()

    # -- reload ------------------------------------------------------------------------------------

    def _begin_reload(self) -> None:
        if self._stop_at is not None or self._leaving:
            return
        starting = not self._started or not all(child.ready for child in self._permanent())
        taken_over = self._successor is not None and self._successor.has_asked
        if starting or self._reload is not None or taken_over:
            # Processes that start have read the old configuration, and could not be asked.
            self._reload_again = True
            return
        try:
            reload = self._new_reload()
        except (SettingsError, SocketError, TakeOverError) as error:
            _log.error("configuration not reloaded", problem=str(error))
            return
        self._reload = reload
        settings, listening = reload.settings, reload.sockets.of_listeners
        fd = file_of(settings.model_dump_json(by_alias=True).encode())
        if self._core is not None:
            bridge = reload.sockets.bridge
            of_core = [reload.sockets[REST].fileno(), *([] if bridge is None else [bridge.fileno()])]
            reload.ask(self._core, [fd, *of_core], relays=reload.relays)
        fds = [fd, *(one.fileno() for one in listening.values())]
        for relay in self._relays.values():
            reload.ask(relay, fds, names=list(listening), relays=reload.relays)
        os.close(fd)
        self._call_later(_RELOAD_WITHIN_S, lambda: self._late(reload, committed=False))
        self._go_on_reloading()

    def _permanent(self) -> list[Child]:
        return [child for child in self._children() if child not in self._retired]

    def _new_reload(self) -> Reload:
        settings = self._check()
        sockets = ListeningSockets(settings, self._sockets.by_name)
        reload = Reload(settings, sockets)
        reload.relays = wanted_relays(settings)
        path = settings.gateway.control
        if path is not None and path != self._settings.gateway.control:
            try:
                check_unused(path)
                reload.control = ControlSocket(path)
            except TakeOverError:
                sockets.discard()
                raise
        return reload

    def _reload_if_asked(self) -> None:
        """Begin a reload that had to wait."""
        if self._reload_again and self._reload is None:
            self._reload_again = False
            self._begin_reload()

    def _late(self, reload: Reload, *, committed: bool) -> None:
        """End a reload that a process does not answer."""
        if self._reload is not reload or reload.committed != committed:
            return
        problem = f"no answer within {_RELOAD_WITHIN_S:.0f} s from {', '.join(reload.waiting_for)}"
        if committed:
            self._reload = None
            _log.error("configuration reloaded, but not by all processes", problem=problem)
            self._reload_if_asked()
        else:
            reload.problem = problem
            self._go_on_reloading()

    def _go_on_reloading(self) -> None:
        reload = self._reload
        if reload is None:
            return
        if reload.problem is None and reload.prepared and not reload.committed:
            try:
                reload.sockets.listen()
            except SocketError as error:
                reload.problem = str(error)
            else:
                self._commit(reload)
        if reload.problem is not None and not reload.committed:
            reload.abort()
            self._reload = None
            _log.error("configuration not reloaded", problem=reload.problem)
        elif reload.applied:
            self._reload = None
            _log.info("configuration reloaded", relays=len(self._relays))
        self._reload_if_asked()

    def _commit(self, reload: Reload) -> None:
        reload.commit()
        self._call_later(_RELOAD_WITHIN_S, lambda: self._late(reload, committed=True))
        if reload.settings.gateway.control != self._settings.gateway.control:
            self._use_control(reload.control)
        self._settings = reload.settings
        configure_log(self._settings.log)
        dumps.apply(dumpable=self._settings.debug.dumpable)
        reload.sockets.close_others()
        self._sockets = reload.sockets
        before, self._nodes = self._nodes, {}
        for listener in self._settings.listeners:
            for node_id in listener.node_ids:
                if (known := before.get((listener.name, node_id))) is not None:
                    self._nodes[listener.name, node_id] = known
        total = self._relay_total()
        drain_s = self._settings.drain.timeout_s
        for slot in [slot for slot in self._relays if slot > total]:
            relay = self._relays.pop(slot)
            relay.leaving = True
            self._retired.add(relay)
            relay.channel.send("drain", after_s=drain_s, timeout_s=drain_s)
            self._kill_later(2 * drain_s + _GRACE_S, [relay])
        for slot in range(1, total + 1):
            self._start_relay(slot)


def _leave_to_the_loop(number: int, frame: object) -> None:
    """Do nothing: the signal's number is read from the wakeup descriptor."""
