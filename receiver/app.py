"""The composition root: builds, starts, reloads and stops the receiver's parts.

Start: the store, the plugins, the REST API, and last the listeners, so that everything that clients
need is running. SIGHUP reloads the configuration. SIGTERM and SIGINT stop the parts: the receiver
is not ready, refuses new connections, finishes responses in flight, exports what is queued, and
stops the REST API last, so that the drain can be observed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final

import structlog

from receiver.api import ApiDependencies, RestServer, ServerError, create_api
from receiver.clock import SystemClock
from receiver.core.telemetry_calls import Reply, TelemetryCalls
from receiver.gateway.event_loop import run as run_event_loop
from receiver.gateway.event_loop import running_loop
from receiver.gateway.events import GatewayEvents
from receiver.gateway.gateway import Gateway
from receiver.gateway.listener import Listener, ListenerError
from receiver.gateway.registry import ConnectionRegistry
from receiver.gateway.relay import RelayServices
from receiver.gateway.request_memory import RequestMemory
from receiver.host.discovery import load_plugins
from receiver.host.host import PluginHost
from receiver.host.plugin_metrics import PluginMetrics
from receiver.log import configure as configure_log
from receiver.metrics import ListenerBytes, ReceiverMetrics, Sources
from receiver.plugin import Push
from receiver.request_log import RequestLog
from receiver.session.delegation_tokens import DelegationTokens
from receiver.session.effects import TelemetryCall
from receiver.session.session import Session
from receiver.session.upstream import Upstream
from receiver.settings.errors import SettingsError
from receiver.settings.key_file import hash_key
from receiver.settings.listeners import ListenerSettings
from receiver.settings.load import load
from receiver.settings.model import ReceiverSettings
from receiver.store.sqlite import SqliteSubscriptionStore, StoreError
from receiver.store.subscriptions import Subscriptions
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.control.plugin_time import PluginTime
from receiver.telemetry.errors import InvalidValueError
from receiver.telemetry.identity import Broker, ClientIdentity
from receiver.telemetry.instance import ClientInstances
from receiver.telemetry.subscription import SubscriptionSet
from receiver.telemetry.telemetry import ClientTelemetry

__all__ = ["GC_THRESHOLDS", "Application", "run"]

#: How long a thread may hold the interpreter while client traffic waits. Python's default of 5 ms
#: would show in the latency of clients.
_SWITCH_INTERVAL_S: Final = 0.001

_MAX_EXPIRED_PER_SCRAPE: Final = 1000

#: Seconds between two checks of the destinations' lag, if back-pressure is enabled.
_LAG_CHECK_S: Final = 5.0

#: A push creates some hundred objects, hardly any of them in a cycle. Python's default threshold of
#: 700 objects would start several collections for every push.
GC_THRESHOLDS: Final = (20_000, 20, 20)

#: Keys that need a restart, because sockets, files and threads depend on them.
_FIXED_KEYS: Final = ("broker", "listeners", "subscriptions", "rest", "plugins", "kip1313", "debug")

#: Keys of ``telemetry`` that need a restart: open connections use the first, a table has the size
#: of the second.
_FIXED_TELEMETRY_KEYS: Final = ("max_bytes", "max_instances")

_log = structlog.get_logger("receiver")


class Application:
    """The whole receiver.

    Args:
        settings: The configuration.
        config_path: Its file, which SIGHUP reads again.

    Raises:
        SettingsError: The settings of a plugin or the key file are wrong.
        StoreError: The store cannot be opened.
        ServerError: A token file or TLS file of the REST API cannot be used.
    """

    def __init__(self, settings: ReceiverSettings, config_path: Path) -> None:
        self._settings = settings
        self._config_path = config_path
        self._stopping = asyncio.Event()
        self._draining = False
        self._started = False
        self._clock = SystemClock()
        self._random = random.SystemRandom()
        self._broker = Broker(id=settings.broker.id, cluster_id=settings.broker.cluster_id)
        self._registry = ConnectionRegistry()
        self._metrics = ReceiverMetrics(version=version("kafka-client-telemetry"))
        self._host = PluginHost(load_plugins(settings.plugins))
        self._limits = Limits(settings.limits)
        self._plugin_time = PluginTime(self._limits)
        self._delegation_tokens = DelegationTokens()
        self._memory = RequestMemory(settings.limits)
        self._hash_key = hash_key(settings.telemetry.privacy)
        self._telemetry = ClientTelemetry(
            settings=settings.telemetry,
            hash_key=self._hash_key,
            broker=self._broker,
            subscriptions=SubscriptionSet(()),
            limits=self._limits,
            random_bytes=os.urandom,
        )
        self._request_log = RequestLog(self._metrics, log_requests=settings.log.requests)
        self._calls = TelemetryCalls(
            telemetry=self._telemetry,
            limits=self._limits,
            metrics=self._metrics,
            log=self._request_log,
            clock=self._clock,
            deliver=self._deliver,
            instance_learned=self._registry.instance_learned,
        )
        self._services = RelayServices(
            call=self._call,
            identity_changed=self._identity_changed,
            limits=self._limits,
            memory=self._memory,
            events=GatewayEvents(self._metrics, self._request_log),
            log=self._request_log,
            clock=self._clock,
        )
        self._store = SqliteSubscriptionStore(settings.subscriptions.path)
        self._subscriptions = Subscriptions(self._store, self._telemetry.replace_subscriptions)
        self._gateway = Gateway([self._listener(listener) for listener in settings.listeners])
        self._rest = RestServer(create_api(self._api_dependencies(), settings.rest), settings.rest)
        self._metrics.observe(self._sources())
        self._metrics.registry.register(PluginMetrics(self._host.statistics))
        self._logged_factor = 1
        self._next_check: asyncio.TimerHandle | None = None

    async def serve(self) -> None:
        """Run until SIGTERM or SIGINT, then drain.

        Raises:
            StoreError, ListenerError, ServerError: The receiver cannot start.
        """
        self._loop = loop = running_loop()
        try:
            await self._subscriptions.load()
            self._host.start()
            await self._rest.start()
            await self._gateway.open()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._stop, number)
            loop.add_signal_handler(signal.SIGHUP, self._reload)
            self._started = True
            self._check_lags()
            _tune_garbage_collection()
            _log.info("started", broker_id=self._broker.id, rest=str(self._settings.rest.bind))
            await self._stopping.wait()
        finally:
            await self._shut_down()

    def not_ready_because(self) -> str | None:
        """Return why the receiver accepts no clients; None while it does."""
        if self._draining:
            return "the receiver is stopping"
        if not self._started:
            return "the receiver is starting"
        problems = self._gateway.problems()
        return "; ".join(problems) if problems else None

    def _deliver(self, push: Push, stored: Callable[[], None]) -> bool:
        def notify() -> None:
            # Called in a plugin's thread, which may outlive the event loop.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(stored)

        # Charged with each push, so that an idle receiver needs no timer.
        if cpu_s := self._host.take_cpu():
            self._plugin_time.charge(cpu_s, self._clock.monotonic())
        return self._host.offer(push, notify)

    def _call(self, identity: ClientIdentity, call: TelemetryCall, reply: Reply) -> None:
        # The registry's identity has the client instance id of the latest request.
        self._calls.call(self._registry.find(identity.id) or identity, call, reply)

    def _identity_changed(self, identity: ClientIdentity) -> None:
        self._registry.changed(identity)
        self._telemetry.instances.identity_changed(identity)
        self._plugin_time.identified(identity)

    def _disconnected(self, connection_id: str) -> None:
        self._telemetry.instances.disconnected(connection_id)
        self._plugin_time.closed(connection_id)

    def _listener(self, settings: ListenerSettings) -> Listener:
        def make_session(identity: ClientIdentity, upstream: Upstream) -> Session:
            self._plugin_time.identified(identity)
            return Session(
                identity=identity,
                broker=self._broker,
                upstream=upstream,
                random_bits=self._random.getrandbits,
                max_frame_bytes=settings.max_frame_bytes,
                max_push_bytes=self._settings.telemetry.max_bytes,
                principal_claim=settings.oauthbearer_principal_claim,
                delegation_tokens=self._delegation_tokens,
            )

        return Listener(
            settings,
            broker=self._broker,
            upstream=Upstream(translates=self._settings.kip1313.translate_all),
            registry=self._registry,
            metrics=self._metrics,
            services=self._services,
            make_session=make_session,
            on_disconnect=self._disconnected,
        )

    def _api_dependencies(self) -> ApiDependencies:
        return ApiDependencies(
            version=version("kafka-client-telemetry"),
            subscriptions=self._subscriptions,
            telemetry=self._telemetry,
            monotonic=self._clock.monotonic,
            connections=self._registry.snapshot,
            plugins=self._host.statistics,
            not_ready_because=self.not_ready_because,
            exposition=self._metrics.exposition,
            count_refusal=self._metrics.rest_refused,
        )

    def _sources(self) -> Sources:
        return Sources(
            connections=self._registry.snapshot,
            instances=self._instances,
            telemetry=lambda: self._telemetry,
            listeners=lambda: [
                ListenerBytes(
                    listener=listener.settings.name, from_clients=from_clients, to_clients=from_broker
                )
                for listener in self._gateway.listeners
                for from_clients, from_broker in (listener.traffic,)
            ],
            ready=lambda: self.not_ready_because() is None,
            draining=lambda: self._draining,
            certificates=self._certificates,
            peers=lambda: self._limits.peers,
            held_bytes=lambda: self._memory.total,
            deferred_calls=lambda: self._loop.deferred if self._started else 0,
        )

    def _certificates(self) -> list[tuple[str, str, float]]:
        ends = [
            (listener.settings.name, side, not_after)
            for listener in self._gateway.listeners
            for side, not_after in listener.certificates
        ]
        rest = self._rest.certificate_ends
        return ends if rest is None else [*ends, ("rest", "client", rest)]

    def _instances(self) -> ClientInstances:
        # Requests expire silent instances. Without requests a scrape does, and not a timer, because
        # a pending timer costs each wait of the event loop a system call.
        self._telemetry.instances.forget_expired(self._clock.monotonic(), _MAX_EXPIRED_PER_SCRAPE)
        return self._telemetry.instances

    def _check_lags(self) -> None:
        """Adjust push intervals to the destinations' lag, now and periodically.

        It is the only timer of an idle receiver, so it exists only if back-pressure is enabled.
        """
        if self._next_check is not None:
            self._next_check.cancel()
            self._next_check = None
        settings = self._settings.telemetry.backpressure
        pressure = self._telemetry.backpressure
        lags: dict[str, float] = {}
        if settings.enabled:
            lags = {plugin.name: round(plugin.lag_s, 3) for plugin in self._host.statistics()}
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
        if settings.enabled and not self._draining:
            every_s = min(_LAG_CHECK_S, settings.step_s / 2)
            self._next_check = asyncio.get_running_loop().call_later(every_s, self._check_lags)

    def _stop(self, number: signal.Signals) -> None:
        _log.info("stopping", signal=signal.Signals(number).name, drain_s=self._settings.drain.timeout_s)
        self._draining = True
        self._stopping.set()

    async def _shut_down(self) -> None:
        self._draining = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.drain.timeout_s
        self._gateway.stop_accepting()
        await self._gateway.drain(self._settings.drain.timeout_s)
        await asyncio.to_thread(self._host.stop, max(0.0, deadline - loop.time()))
        await self._rest.stop()
        await asyncio.to_thread(self._store.close)
        _log.info("stopped")

    def _reload(self) -> None:
        """Reload the configuration (SIGHUP) and log the changed keys that need a restart."""
        try:
            fresh = load(self._config_path, os.environ)
            fresh_key = hash_key(fresh.telemetry.privacy)
        except SettingsError as error:
            _log.error("configuration not reloaded", problem=str(error))
            return
        old = self._settings
        needs_a_restart = [key for key in _FIXED_KEYS if getattr(fresh, key) != getattr(old, key)]
        needs_a_restart += [
            f"telemetry.{key}"
            for key in _FIXED_TELEMETRY_KEYS
            if getattr(fresh.telemetry, key) != getattr(old.telemetry, key)
        ]
        telemetry = fresh.telemetry.model_copy(
            update={key: getattr(old.telemetry, key) for key in _FIXED_TELEMETRY_KEYS}
        )
        if telemetry != old.telemetry or fresh_key != self._hash_key:
            try:
                self._telemetry.replace_settings(telemetry, fresh_key)
            except InvalidValueError as error:
                _log.error("configuration not reloaded", problem=f"telemetry.{error}")
                return
        self._hash_key = fresh_key
        self._limits.replace_settings(fresh.limits)
        self._memory.replace_settings(fresh.limits)
        configure_log(fresh.log)
        self._request_log.log_requests = fresh.log.requests
        self._settings = old.model_copy(
            update={
                "log": fresh.log,
                "telemetry": telemetry,
                "limits": fresh.limits,
                "drain": fresh.drain,
            }
        )
        self._check_lags()
        _log.info("configuration reloaded", needs_a_restart=needs_a_restart)


def run(settings: ReceiverSettings, config_path: Path) -> int:
    """Run the receiver until SIGTERM or SIGINT.

    Args:
        settings: The configuration.
        config_path: Its file, which SIGHUP reads again.

    Returns:
        The exit status: 0 after a drain, 1 if the receiver cannot start, 2 if the configuration is
        wrong.
    """
    configure_log(settings.log)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # httpx logs every export at INFO
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    _raise_file_limit()

    async def main() -> int:
        try:
            application = Application(settings, config_path)
            await application.serve()
        except (StoreError, ListenerError, ServerError) as error:
            _log.error("cannot start", problem=str(error))
            return 1
        return 0

    try:
        return run_event_loop(main())
    except (SettingsError, InvalidValueError) as error:
        _log.error("cannot start", problem=str(error))
        return 2


def _tune_garbage_collection() -> None:
    """Exclude permanent objects from garbage collection and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _raise_file_limit() -> None:
    """Raise the limit of open files, because each connection uses two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
