"""The composition root of the core process.

The core owns what the whole receiver shares: client instances, limits, subscriptions, plugins, the
REST API and the metrics. No byte of produce and fetch passes through it. The supervisor starts it,
gives it links to relays and new configurations, and stops it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Final

import structlog

from receiver import workers
from receiver.api import ApiDependencies, Cluster, EventLog, RestServer, ServerError, Sessions, create_api
from receiver.bridge.listener import WINDOW, BridgeListener, BridgeListenerError
from receiver.bridge.taken import TakenPushes
from receiver.brokers.crossed import crossed_upstreams
from receiver.brokers.hidden_telemetry import hidden_telemetry_warnings
from receiver.brokers.listener_state import ListenerState
from receiver.brokers.scattered import scattered_subscriptions
from receiver.clock import SystemClock
from receiver.cluster.members import Members, new_receiver_id
from receiver.cluster.rest_client import RestFilesError
from receiver.cluster.rollup import Rollup
from receiver.core.bridge_pushes import BridgePushes
from receiver.core.changes import Change, Changes
from receiver.core.config_calls import ConfigCalls
from receiver.core.expiry import Expiry
from receiver.core.relays import Relays
from receiver.core.reload import Reload
from receiver.core.supervision import Supervision
from receiver.core.telemetry_calls import TelemetryCalls
from receiver.core.warnings import (
    bypass_warnings,
    certificate_warnings,
    clock_warnings,
    plugin_warnings,
    prefix_warnings,
    store_warnings,
    subscription_warnings,
)
from receiver.event_loop import run as run_event_loop
from receiver.event_loop import running_loop
from receiver.host.discovery import HostedPlugin, load_plugins
from receiver.host.host import PluginHost
from receiver.host.plugin_metrics import PluginMetrics
from receiver.host.ports import check_ports
from receiver.link.messages import Statistics
from receiver.log import configure as configure_log
from receiver.metrics import ProcessNumbers, ReceiverMetrics, Sources
from receiver.plugin import Push
from receiver.process_memory import resident_bytes, tune_garbage_collection
from receiver.request_log import RequestLog
from receiver.settings.errors import SettingsError
from receiver.settings.key_file import hash_key
from receiver.settings.model import ReceiverSettings
from receiver.store.declared_owners import DeclaredOwners
from receiver.store.opened import open_store
from receiver.store.owner_file import OwnerFile
from receiver.store.owners import OwnersFolder
from receiver.store.store import StoreError, SubscriptionStore
from receiver.store.subscriptions import Subscriptions, read_store
from receiver.store.switch import compare
from receiver.supervisor.channel import ControlChannel, Message, read_file
from receiver.supervisor.setup import CoreSetup
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.control.plugin_time import PluginTime
from receiver.telemetry.current_subscriptions import CurrentSubscriptions
from receiver.telemetry.errors import InvalidValueError
from receiver.telemetry.identity import ClientIdentity, recorded_identity
from receiver.telemetry.instance import ClientInstances
from receiver.telemetry.owners import Owners
from receiver.telemetry.rules import Rules
from receiver.telemetry.subscription import Subscription, SubscriptionSet
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.traffic.traffic import Traffic
from receiver.traffic.usage_store import Key, UsageError, open_usage
from receiver.workers import call_in_loop, start_task
from spark_streaming import dumps
from spark_streaming.log_writer import dropped_lines

#: How long a thread may hold the interpreter while calls wait. Python's default of 5 ms would show
#: in the latency of telemetry requests.
_SWITCH_INTERVAL_S: Final = 0.001

_MAX_EXPIRED_PER_SCRAPE: Final = 1000

#: Most bridges whose latest pushes are remembered.
_MAX_BRIDGES: Final = 1024

#: Seconds that a scrape waits for the disk of the usage.
_SETTLE_S: Final = 1.0

#: Seconds between two checks of the destinations' lag, if back-pressure is enabled.
_LAG_CHECK_S: Final = 5.0
#: The kinds of warnings that no other part logs.
_LOGGED_HERE: Final = ("certificate", "clock", "scattered", "subscription")

#: What an operator can do about a store that lacks subscriptions.
_HOW_TO_SWITCH: Final = (
    "copy them with `kafka-telemetry subscriptions copy --to RECEIVER.yaml`, or set "
    "subscriptions.accept_loss: true"
)

_log = structlog.get_logger("receiver.core")


def run(
    channel: ControlChannel, setup: CoreSetup, plugins: Sequence[HostedPlugin], usage_file: Path | None
) -> int:
    """Run until the supervisor stops the process; return its exit status.

    Args:
        plugins: Plugins of the configuration that are constructed already, and not started.
        usage_file: The file of the usage if the configuration names none; None: in memory.
    """
    logging.getLogger("httpx").setLevel(logging.WARNING)  # httpx logs every export at INFO
    sys.setswitchinterval(_SWITCH_INTERVAL_S)

    workers.install()

    async def main() -> int:
        loop = asyncio.get_running_loop()
        workers.watch_loop(loop)
        try:
            core = _Core(channel, setup, plugins, usage_file)
            workers.on_failure(loop, core.worker_failed)
            await core.start()
        except (StoreError, ServerError, BridgeListenerError, RestFilesError, UsageError) as error:
            channel.send("failed", problem=str(error), status=1)
            return 1
        except (SettingsError, InvalidValueError) as error:
            channel.send("failed", problem=str(error), status=2)
            return 2
        return await core.run()

    return run_event_loop(main())


class _Core:
    """The core process."""

    def __init__(
        self,
        channel: ControlChannel,
        setup: CoreSetup,
        plugins: Sequence[HostedPlugin],
        usage_file: Path | None,
    ) -> None:
        self._channel = channel
        self._settings = settings = setup.settings
        self._setup = setup
        self._stopped = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self._draining = False
        self._clock = SystemClock()
        self._loop = running_loop()
        self._metrics = ReceiverMetrics(version=version("kafka-client-telemetry"))
        self._host = PluginHost(load_plugins(settings.plugins, plugins))
        self._limits = Limits(settings.limits)
        self._plugin_time = PluginTime(self._limits)
        current = CurrentSubscriptions()
        self._telemetry = ClientTelemetry(
            settings=settings.telemetry,
            hash_key=hash_key(settings.telemetry.privacy),
            subscriptions=current,
            limits=self._limits,
            random_bytes=os.urandom,
        )
        current.set_has_plugins(bool(settings.plugins))
        self._request_log = RequestLog(self._metrics.limit_exceeded, log_requests=settings.log.requests)
        self._calls = TelemetryCalls(
            telemetry=self._telemetry,
            limits=self._limits,
            metrics=self._metrics,
            log=self._request_log,
            clock=self._clock,
            deliver=self._deliver,
            instance_learned=lambda identity: self._relays.registry.instance_learned(identity),
        )
        self._store = open_store(settings.subscriptions)
        self._events = EventLog(self._clock.wall_ns)
        self._sessions = Sessions(self._clock.monotonic)
        self._telemetry.on_created = self._events.client_created
        self._telemetry.on_forgotten = self._events.client_forgotten
        self._owners = DeclaredOwners(self._owners_changed)
        self._owners_folder = self._open_owners(settings)
        self._expiry = Expiry(current, self._now, self._loop.call_later, self._events.subscription_expired)
        self._logged_warnings: set[str] = set()
        self._crossed: dict[str, str] = {}  # what is wrong with upstreams, by listener
        self._subscriptions = Subscriptions(
            self._store, current, now=self._now, changed=self._subscriptions_changed
        )
        self._usage_file = usage_file
        self._traffic = Traffic(
            open_usage(settings.usage, usage_file),
            self._clock.wall_ns,
            self._telemetry.principal_label,
            self._owner_of,
        )
        self._relays = Relays(
            expected=setup.relays,
            calls=(
                self._calls,
                ConfigCalls(
                    subscriptions=self._subscriptions,
                    limits=self._limits,
                    log=self._request_log,
                    clock=self._clock,
                ),
            ),
            limits=self._limits,
            metrics=self._metrics,
            log=self._request_log,
            monotonic=self._clock.monotonic,
            traffic=self._traffic,
            on_identity=self._identified,
            on_close=self._disconnected,
            on_broker=self._check_upstreams,
        )
        self._relays.max_connections = _max_connections(settings)
        self._bridge_pushes = BridgePushes(
            telemetry=self._telemetry,
            limits=self._limits,
            plugin_time=self._plugin_time,
            metrics=self._metrics,
            log=self._request_log,
            clock=self._clock,
            deliver=self._deliver,
        )
        self._taken_pushes = TakenPushes(WINDOW, _MAX_BRIDGES)
        self._bridge = self._bridge_listener(settings, setup.bridge)
        self._receiver_id = new_receiver_id()
        self._members = self._open_members(settings)
        self._rollup = _open_rollup(settings)
        self._rest = self._rest_server(settings, setup.rest, self._members, self._rollup)
        self._metrics.observe(self._sources())
        self._metrics.registry.register(PluginMetrics(self._host.statistics))
        self._metrics.registry.register(self._traffic.metrics)
        self._supervision = Supervision(self._clock.monotonic())
        self._metrics.registry.register(self._supervision)
        self._logged_factor = 1
        self._next_check: asyncio.TimerHandle | None = None
        self._reload: Reload | None = None

    async def start(self) -> None:
        """Start all parts; raise StoreError if the subscriptions can't be read."""
        await self._subscriptions.load()
        self._host.start()
        self._owners.use(self._owners_folder, self._owner_file(self._settings))
        self._rest.start()
        if self._bridge is not None:
            self._bridge.start()
        for relay_id, link in self._setup.links.items():
            self._relays.attach(relay_id, link, self._setup.traffic.get(relay_id))
        self._loop.add_reader(self._channel.fileno(), self._control)
        self._check_lags()
        self._warnings()
        tune_garbage_collection()
        self._channel.send("ready")

    async def run(self) -> int:
        """Run until the supervisor has stopped this process."""
        await self._stopped.wait()
        return 0

    def worker_failed(self, name: str) -> None:
        """Count a thread or task of this process that ended by an exception."""
        self._metrics.worker_failures[(name,)].inc()

    def not_ready_because(self) -> str | None:
        """Return why the receiver accepts no clients; None while it does."""
        if self._draining:
            return "the receiver is stopping"
        problems = list(self._relays.problems())
        status = self._subscriptions.status()
        # Not any longer than the first attempt, because clients' traffic needs no subscriptions.
        if not self._subscriptions.known and not status.failures and status.problem is not None:
            problems.append(f"subscriptions: {status.problem}")
        return "; ".join(problems) if problems else None

    def accepts_somewhere(self) -> bool:
        """Whether one listener at least accepts clients."""
        return not self._draining and self._relays.accept_somewhere(len(self._settings.listeners))

    # -- the supervisor's messages -----------------------------------------------------------------

    def _control(self) -> None:
        for message in self._channel.messages():
            self._handle(message)

    def _handle(self, message: Message) -> None:
        match message.type:
            case "ping":
                self._supervision.pinged(self._clock.monotonic())
                self._channel.send("pong")
            case "link":
                end, *table = message.fds
                self._relays.attach(
                    str(message.fields["relay"]), socket.socket(fileno=end), table[0] if table else None
                )
            case "configure":
                self._prepare(message)
            case "commit":
                if self._reload is not None:
                    self._reload.commit()
            case "abort":
                if self._reload is not None:
                    self._reload.abort()
            case "report":
                self._supervision.reported(message.fields)
            case "draining":
                self._draining = True
            case "stop":
                self._stop(float(message.fields["timeout_s"]))

    def _prepare(self, message: Message) -> None:
        text, rest, *bridge = message.fds
        sockets = [socket.socket(fileno=fd) for fd in (rest, *bridge)]
        settings = ReceiverSettings.model_validate_json(read_file(text), strict=True)
        relays = int(message.fields["relays"])
        self._reload = Reload(
            int(message.fields["reload"]),
            self._channel,
            lambda changes: self._build(changes, settings, relays, *sockets),
        )

    async def _build(
        self,
        changes: Changes,
        settings: ReceiverSettings,
        relays: int,
        rest: socket.socket,
        bridge: socket.socket | None = None,
    ) -> None:
        """Build each part that a configuration changes, once.

        Raises:
            BridgeListenerError, InvalidValueError, ServerError, SettingsError, StoreError: A part
                can't be had.
        """
        before = self._settings
        changes.add(self._change_of_rest(settings, rest))
        changes.add(self._change_of_bridge(settings, bridge))
        changes.add(self._change_of_settings(settings, relays))
        if (settings.owners, settings.owners_file) != (before.owners, before.owners_file):
            changes.add(self._change_of_owners(settings))
        rules = Rules(settings.telemetry, hash_key(settings.telemetry.privacy))
        changes.add(Change(commit=lambda: self._telemetry.replace_rules(rules)))
        running = self._host.running
        plugins = load_plugins(settings.plugins, running)
        check_ports(settings, plugins, before=before, running=running)
        changes.add(Change(commit=lambda: self._replace_plugins(plugins, before.drain.timeout_s)))
        changes.add(Change(commit=self._check_lags))
        if settings.usage != before.usage:
            changes.add(await self._change_of_usage(settings))
        if settings.subscriptions != before.subscriptions:
            changes.add(await self._change_of_store(settings))

    def _change_of_settings(self, settings: ReceiverSettings, relays: int) -> Change:
        """Return the change of everything that is built of nothing."""

        def commit() -> None:
            self._settings = settings
            self._relays.keep_brokers(settings.listeners)
            self._check_upstreams()
            self._limits.replace_settings(settings.limits)
            configure_log(settings.log)
            dumps.apply(dumpable=settings.debug.dumpable)
            self._request_log.log_requests = settings.log.requests
            self._relays.expected = relays
            self._relays.max_connections = _max_connections(settings)

        return Change(commit=commit)

    def _change_of_rest(self, settings: ReceiverSettings, listening: socket.socket) -> Change:
        # Token files may have changed though their paths did not, so it is always built anew.
        replaced, before = self._rest, (self._members, self._rollup)
        members, rollup = self._open_members(settings), _open_rollup(settings)
        fresh = self._rest_server(settings, listening, members, rollup)

        def commit() -> None:
            self._rest, self._members, self._rollup = fresh, members, rollup
            fresh.start(replaced)

        async def finish() -> None:
            await replaced.stop()
            for asked in before:
                if asked is not None:
                    await asked.close()

        return Change(commit=commit, finish=finish, discard=fresh.close)

    def _open_owners(self, settings: ReceiverSettings, *, strict: bool = False) -> OwnersFolder | None:
        folder = settings.owners.path
        return None if folder is None else OwnersFolder(folder, strict=strict)

    def _owner_file(self, settings: ReceiverSettings) -> OwnerFile | None:
        path = settings.owners_file
        return None if path is None else OwnerFile(path)

    def _owners_changed(self, before: Owners, after: Owners) -> None:
        self._telemetry.owners = after
        self._events.owners_replaced(before, after)

    def _owner_of(self, key: Key) -> str | None:
        """Return the owner of usage, empty without one; None: there are no owners."""
        owners = self._telemetry.owners
        return (owners.team_of(recorded_identity(*key)) or "") if owners.owners else None

    def _change_of_owners(self, settings: ReceiverSettings) -> Change:
        replaced, fresh = self._owners_folder, self._open_owners(settings, strict=True)

        def commit() -> None:
            self._owners_folder = fresh
            self._owners.use(fresh, self._owner_file(settings))

        async def finish() -> None:
            if replaced is not None:
                await asyncio.to_thread(replaced.close)

        return Change(commit=commit, finish=finish, discard=_nothing if fresh is None else fresh.close)

    def _open_members(self, settings: ReceiverSettings) -> Members | None:
        return None if settings.cluster is None else Members(settings.cluster, self._receiver_id)

    def _change_of_bridge(self, settings: ReceiverSettings, listening: socket.socket | None) -> Change:
        before, replaced = self._settings, self._bridge
        same_bound = settings.telemetry.max_inflated_bytes == before.telemetry.max_inflated_bytes
        if settings.bridge == before.bridge and same_bound:
            if listening is not None:
                listening.close()
            return Change(commit=_nothing)
        fresh = self._bridge_listener(settings, listening)

        def commit() -> None:
            self._bridge = fresh
            if fresh is not None:
                fresh.start()

        async def finish() -> None:
            if replaced is not None:
                await replaced.stop()

        return Change(commit=commit, finish=finish, discard=_nothing if fresh is None else fresh.close)

    def _replace_plugins(self, plugins: list[HostedPlugin], timeout_s: float) -> None:
        self._telemetry.subscriptions.set_has_plugins(bool(plugins))
        self._host.replace(plugins, timeout_s)

    async def _change_of_usage(self, settings: ReceiverSettings) -> Change:
        try:
            store = await asyncio.to_thread(open_usage, settings.usage, self._usage_file)
        except UsageError as error:
            raise SettingsError("", "usage.path", str(error), loc=("usage", "path")) from None

        async def finish() -> None:
            await self._traffic.use(store)

        return Change(commit=_nothing, finish=finish, discard=store.close)

    async def _change_of_store(self, settings: ReceiverSettings) -> Change:
        store = await asyncio.to_thread(open_store, settings.subscriptions, strict=True)
        try:
            await self._check_loss(settings, store)
            content = await asyncio.to_thread(read_store, store)
        except BaseException:
            await asyncio.to_thread(store.close)
            raise
        replaced = self._store

        def commit() -> None:
            self._store = store

        async def finish() -> None:
            await self._subscriptions.use(store, content)
            await asyncio.to_thread(replaced.close)

        return Change(commit=commit, finish=finish, discard=store.close)

    async def _check_loss(self, settings: ReceiverSettings, store: SubscriptionStore) -> None:
        """Refuse a store that would end subscriptions that are in force."""
        in_force = self._subscriptions.in_force.subscriptions if self._subscriptions.known else ()
        if not in_force or settings.subscriptions.accept_loss:
            return
        try:
            difference = compare(in_force, await asyncio.to_thread(_content, store))
            problem = f"the new store {difference}" if difference else None
        except StoreError as error:
            problem = f"the new store can't be read, so it may lack subscriptions: {error}"
        if problem is not None:
            raise SettingsError("", "subscriptions", f"{problem}; {_HOW_TO_SWITCH}", loc=("subscriptions",))

    def _stop(self, timeout_s: float) -> None:
        if self._stopping is None:
            self._stopping = start_task("drain", self._drain(timeout_s))

    async def _drain(self, timeout_s: float) -> None:
        if self._bridge is not None:
            self._bridge.pause()
        await asyncio.to_thread(self._host.stop, timeout_s)
        if self._bridge is not None:  # after the last push is stored, and acknowledged
            await self._bridge.stop()
        await self._rest.stop()
        for asked in (self._members, self._rollup):
            if asked is not None:
                await asked.close()
        await self._traffic.close()
        if self._owners_folder is not None:
            await asyncio.to_thread(self._owners_folder.close)
        self._relays.close()
        self._expiry.close()
        await asyncio.to_thread(self._store.close)
        self._stopped.set()

    # -- parts -------------------------------------------------------------------------------------

    def _deliver(self, push: Push, stored: Callable[[bool], None]) -> bool:
        if not self._telemetry.subscriptions.has_plugins:
            self._metrics.without_plugin.inc()
        # Charged with each push, so that an idle receiver needs no timer.
        if cpu_s := self._host.take_cpu():
            self._plugin_time.charge(cpu_s, self._clock.monotonic())
        return self._host.offer(push, partial(call_in_loop, self._loop, stored))

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall_ns() / 1e9, UTC)

    def _subscriptions_changed(self, before: SubscriptionSet, after: SubscriptionSet) -> None:
        self._events.subscriptions_replaced(before, after)
        self._expiry.wait()

    def _report_departed(self) -> None:
        """Tell plugins which clients are gone.

        Connections and scrapes call it, and no timer, which would wake an idle core.
        """
        for push in self._telemetry.take_departed(self._clock.monotonic()):
            self._host.offer(push)

    def _identified(self, identity: ClientIdentity) -> None:
        self._report_departed()
        self._telemetry.instances.identity_changed(identity)
        self._plugin_time.identified(identity)

    def _disconnected(self, connection_id: str) -> None:
        now, now_ns = self._clock.monotonic(), self._clock.wall_ns()
        self._telemetry.disconnected(connection_id, now=now, now_ns=now_ns)
        self._report_departed()
        self._plugin_time.closed(connection_id)

    def _bridge_listener(
        self, settings: ReceiverSettings, listening: socket.socket | None
    ) -> BridgeListener | None:
        if settings.bridge is None or listening is None:
            return None
        return BridgeListener(
            settings.bridge,
            listening,
            max_push_bytes=settings.telemetry.max_inflated_bytes,
            take=self._bridge_pushes.take,
            taken=self._taken_pushes,
            metrics=self._metrics.bridges,
        )

    def _rest_server(
        self,
        settings: ReceiverSettings,
        listening: socket.socket,
        members: Members | None,
        rollup: Rollup | None,
    ) -> RestServer:
        dependencies = ApiDependencies(
            version=version("kafka-client-telemetry"),
            subscriptions=self._subscriptions,
            telemetry=self._telemetry,
            monotonic=self._clock.monotonic,
            connections=self._relays.registry.snapshot,
            traffic=self._traffic,
            plugins=self._host.statistics,
            listeners=self._listeners,
            supervisor_hangs=lambda: self._supervision.hangs(self._clock.monotonic()),
            not_ready_because=self.not_ready_because,
            warnings=lambda: list(chain.from_iterable(self._warnings().values())),
            accepts_somewhere=self.accepts_somewhere,
            refresh=self._refresh,
            exposition=self._metrics.exposition,
            count_refusal=self._metrics.rest_refused,
            processes=self._processes,
            relays=lambda: (self._relays.connected, self._relays.expected),
            restarts=lambda: self._supervision.restarts,
            certificates=self._certificates,
            store=lambda: self._settings.subscriptions.store,
            scattered=self._scattered,
            events=self._events,
            sessions=self._sessions,
            owners=self._owners,
            cluster=Cluster(receiver_id=self._receiver_id, members=members),
            rollup=rollup,
            wall_ns=self._clock.wall_ns,
        )
        return RestServer(create_api(dependencies, settings.rest), settings.rest, listening)

    async def _refresh(self) -> None:
        """Read the numbers of other processes that the metrics show."""
        await asyncio.gather(self._relays.refresh_statistics(), self._traffic.settle_within(_SETTLE_S))

    def _sources(self) -> Sources:
        return Sources(
            connections=self._relays.registry.snapshot,
            instances=self._instances,
            telemetry=lambda: self._telemetry,
            store=self._subscriptions.status,
            processes=self._processes,
            relays=lambda: self._relays.connected,
            ready=lambda: self.not_ready_because() is None,
            warnings=self._warnings,
            draining=lambda: self._draining,
            certificates=self._certificates,
            listeners=self._listeners,
            peers=lambda: self._limits.peers,
            held_bytes=lambda: sum(relay.held_bytes for _, relay in self._relays.statistics()),
        )

    def _warnings(self) -> dict[str, list[str]]:
        """Return what should be corrected, by kind.

        What nobody else reports is logged once, until it is over.
        """
        listeners, now = self._listeners(), self._now()
        found = {
            "reload": list(self._supervision.warnings()),
            "crossed": list(self._crossed.values()),
            "bypass": list(bypass_warnings(listeners)),
            "hidden_telemetry": hidden_telemetry_warnings(listeners),
            "scattered": [] if (scattered := self._scattered()) is None else [scattered],
            "certificate": list(certificate_warnings(self._certificates(), now)),
            "clock": list(clock_warnings(self._telemetry.clocks.ahead_s)),
            "store": list(store_warnings(self._subscriptions.status().problem, self._subscriptions.known)),
            "plugin": list(plugin_warnings(self._host.statistics())),
            "worker": workers.problems(),
        }
        found["owners"] = self._owners.problems
        # Clients of bridges are asked by their brokers.
        if not found["store"] and self._settings.listeners:
            found["subscription"] = list(
                subscription_warnings(
                    self._subscriptions.in_force, now, has_plugins=bool(self._host.statistics())
                )
            )
            found["subscription"] += prefix_warnings(
                self._telemetry.subscriptions.asked, self._telemetry.instances, self._telemetry.profiles
            )
        for kind in _LOGGED_HERE:
            if found.get(kind) and kind not in self._logged_warnings:
                _log.warning("something should be corrected", of=kind, problem="; ".join(found[kind]))
        self._logged_warnings = {kind for kind in _LOGGED_HERE if found.get(kind)}
        return found

    def _scattered(self) -> str | None:
        settings = self._settings
        return scattered_subscriptions(
            settings.subscriptions, self._listeners(), has_members=settings.cluster is not None
        )

    def _check_upstreams(self) -> None:
        """Log upstreams that are crossed, each once until it changes."""
        before, self._crossed = self._crossed, crossed_upstreams(self._listeners())
        for listener, problem in self._crossed.items():
            if before.get(listener) != problem:
                _log.error("upstreams of listeners are crossed", listener=listener, problem=problem)
        for listener in before.keys() - self._crossed.keys():
            _log.info("the upstream of a listener is no longer crossed", listener=listener)

    def _listeners(self) -> list[ListenerState]:
        return [
            ListenerState(
                settings=listener,
                known=self._relays.known_broker(listener.name),
                nodes=self._relays.known_nodes(listener),
                connections=self._relays.open[listener.name],
            )
            for listener in self._settings.listeners
        ]

    def _processes(self) -> Iterator[ProcessNumbers]:
        yield ProcessNumbers(
            process="core",
            cpu_s=time.process_time(),
            resident_bytes=resident_bytes(),
            loop_lag_s=self._loop.take_lag(),
            log_lines_dropped=dropped_lines(),
        )
        by_process: dict[str, list[Statistics]] = {}
        for process, numbers in self._relays.statistics():
            by_process.setdefault(process, []).append(numbers)
        for process, several in by_process.items():  # two while one of them drains
            yield ProcessNumbers(
                process=process,
                cpu_s=sum(sample.cpu_s for sample in several),
                resident_bytes=sum(sample.resident_bytes for sample in several),
                loop_lag_s=max(sample.loop_lag_s for sample in several),
                log_lines_dropped=sum(sample.log_lines_dropped for sample in several),
            )

    def _certificates(self) -> list[tuple[str, str, float]]:
        # All relays have the same files, but one may have read a renewed file later.
        ends: dict[tuple[str, str], float] = {}
        for _, numbers in self._relays.statistics():
            for listener, side, not_after in numbers.certificates:
                ends[listener, side] = min(not_after, ends.get((listener, side), not_after))
        rest = self._rest.certificate_ends
        if rest is not None:
            ends["rest", "client"] = rest
        bridge = None if self._bridge is None else self._bridge.certificate_ends
        if bridge is not None:
            ends["bridge", "client"] = bridge
        return [(listener, side, not_after) for (listener, side), not_after in ends.items()]

    def _instances(self) -> ClientInstances:
        # Requests expire silent instances. Without requests a scrape does, and not a timer, because
        # a pending timer costs each wait of the event loop a system call.
        self._telemetry.instances.forget_expired(self._clock.monotonic(), _MAX_EXPIRED_PER_SCRAPE)
        self._report_departed()
        return self._telemetry.instances

    def _check_lags(self) -> None:
        """Adjust push intervals to the destinations' lag, now and periodically.

        It is the only timer of an idle core, so it exists only if back-pressure is enabled.
        """
        if self._next_check is not None:
            self._next_check.cancel()
            self._next_check = None
        settings = self._settings.telemetry.backpressure
        if settings.enabled and not self._draining:  # now, because a defect must not end it
            every_s = min(_LAG_CHECK_S, settings.step_s / 2)
            self._next_check = self._loop.call_later(every_s, self._check_lags)
        pressure = self._telemetry.backpressure
        lags: dict[str, float] = {}
        if settings.enabled:
            lags = {plugin.name: round(plugin.lag_seconds, 3) for plugin in self._host.statistics()}
            pressure.observe(lags, self._clock.monotonic())
        factor = pressure.factor
        if factor > self._logged_factor:
            _log.warning(
                "push intervals lengthened, destination behind",
                factor=factor,
                plugin=pressure.plugin,
                lags_s=lags,
            )
        elif factor < self._logged_factor:
            _log.info("push intervals shortened", factor=factor, plugin=pressure.plugin)
        self._logged_factor = factor


def _content(store: SubscriptionStore) -> tuple[Subscription, ...]:
    """Read a store that nobody follows yet."""
    store.refresh()
    return store.load_all()


def _nothing() -> None:
    return


def _open_rollup(settings: ReceiverSettings) -> Rollup | None:
    return None if settings.rollup is None else Rollup(settings.rollup)


def _max_connections(settings: ReceiverSettings) -> dict[str, int]:
    return {listener.name: listener.max_connections for listener in settings.listeners}
