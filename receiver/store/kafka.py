"""Subscriptions of the cluster: its CLIENT_METRICS resources are the truth.

A thread reads the resources every second or so, because Kafka reports no changes of them. So each
sidecar follows what the others, Kafka's tools and operators of the cluster write. While the brokers
are away, the last known subscriptions stay in force; a local copy keeps them over a restart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from receiver.settings.subscriptions import KafkaStoreSettings
from receiver.store.document import Mistake
from receiver.store.kafka_cluster import Cluster, RefusedError
from receiver.store.kafka_format import Entry, join, split, split_complete
from receiver.store.local_copy import LocalCopy
from receiver.store.store import StoreError, StoreStatus, unusable
from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.subscription import Subscription, SubscriptionSet, within_bounds
from receiver.workers import start_thread

_EVERY_S: Final = 1.0
#: A read of a thousand resources takes half a second, so it is repeated less often.
_MAX_EVERY_S: Final = 1.5
_COST: Final = 2

#: The library never asks again what a cluster's brokers have, so the store connects anew.
_UPGRADED_S: Final = 30.0

#: A broker may answer a read from before a write for so long.
_SETTLE_S: Final = 3.0
#: A record without its resource is deleted after this time: it is the half of a write before.
_ORPHAN_S: Final = 60.0

_MAX_LOGGED: Final = 20

#: Earlier content of a subscription that is kept to know an old answer by.
_MAX_EARLIER: Final = 64

_log = structlog.get_logger("receiver.store")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """What this store wrote of a subscription; None: it deleted it."""

    now: Subscription | None
    """The latest."""
    earlier: list[Subscription | None]
    """What a broker that is behind may still answer."""
    until: float
    """The monotonic time after which no broker is behind."""


class KafkaSubscriptionStore:
    """The subscriptions of a cluster, with a local copy.

    It connects when it is followed or written, and never at its construction, because the brokers
    may start after the sidecar.

    Raises:
        StoreError: The local copy can't be used.
    """

    def __init__(self, settings: KafkaStoreSettings, copy: Path) -> None:
        self._settings = settings
        self._copy = LocalCopy(copy)
        copied = self._copy.read()
        self._known = copied or ()
        self._saved = copied
        self._io = threading.Lock()  # of the cluster and of everything below
        self._cluster: Cluster | None = None
        self._entries: Mapping[str, Entry] = {}
        self._joined: dict[str, Subscription | list[Mistake]] = {}
        self._connected_at = 0.0
        self._written: dict[str, _Written] = {}
        self._orphans: dict[str, float] = {}
        self._refused: Mapping[str, str] = {}
        self._unsaved: str | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._status = StoreStatus(
            problem=f"{settings.bootstrap_servers}: not read since the start", known=copied is not None
        )

    def load_all(self) -> tuple[Subscription, ...]:
        """Return the subscriptions that the cluster had when it was read last."""
        return self._known

    def put(self, subscription: Subscription) -> None:
        """Write the subscription to the cluster."""
        with self._io:
            try:
                entry = _write(self._writable(), subscription)
            except RefusedError:
                raise
            except StoreError:
                self._disconnect()
                raise
            # As the cluster shows it: `*` for "" and each prefix once.
            shown = join(subscription.name, entry)
            self._wrote(subscription.name, shown if isinstance(shown, Subscription) else subscription)

    def delete(self, name: str) -> None:
        """Delete the subscription in the cluster."""
        with self._io:
            try:
                self._writable().delete(name)
            except StoreError:
                self._disconnect()
                raise
            self._wrote(name, None)

    def refresh(self) -> None:
        """Read the cluster now."""
        with self._io:
            try:
                self._take(self._fetch())
            except StoreError:
                self._disconnect()
                raise
            self._save()

    def follow(self, changed: Callable[[], None]) -> None:
        """Read the cluster again and again from now on."""
        self._thread = start_thread("subscriptions-kafka", partial(self._follow, changed))

    def status(self) -> StoreStatus:
        """Return whether the last read found subscriptions that could all be used."""
        return self._status

    def close(self) -> None:
        """Stop following, and close the connections."""
        self._closed.set()
        if self._thread is None:
            with self._io:
                self._disconnect()
        else:
            # A connection attempt takes some seconds. It ends with the process.
            self._thread.join(_SETTLE_S)

    # -- reading -----------------------------------------------------------------------------------

    def _follow(self, changed: Callable[[], None]) -> None:
        wait_s = 0.0
        while not self._closed.wait(wait_s):
            begin = time.monotonic()
            before, was_known = self._known, self._status.known
            with self._io:
                if not self._closed.is_set():
                    self._read()
            if self._known is not before or self._status.known is not was_known:
                changed()
            with self._io:
                self._save()  # after the change is in force, because it takes its time
            cost_s = time.monotonic() - begin
            wait_s = _EVERY_S if self._cluster is None else min(_MAX_EVERY_S, max(_EVERY_S, _COST * cost_s))
        with self._io:
            self._disconnect()

    def _read(self) -> None:
        try:
            self._take(self._fetch())
        except StoreError as error:
            self._disconnect()
            self._failed(str(error))
            return
        except Exception as error:  # a defect must not end the thread, and with it the following
            self._disconnect()
            _log.exception("subscriptions not read because of a defect")
            self._failed(f"{self._settings.bootstrap_servers}: {type(error).__name__}, a defect; see the log")

    def _fetch(self) -> dict[str, Entry]:
        cluster = self._connected()
        entries = cluster.read()
        self._settle_records(cluster, entries)
        return entries

    def _take(self, entries: dict[str, Entry]) -> None:
        """Put what was read in force."""
        self._joined = {
            # A thousand patterns take a tenth of a second to compile.
            name: self._joined[name] if self._entries.get(name) == entry else _joined(name, entry)
            for name, entry in entries.items()
            if entry.exists
        }
        self._entries = entries
        found, refused = self._usable()
        for name, written in list(self._written.items()):
            # What is neither old nor ours was written by another party since.
            if found.get(name) not in written.earlier or time.monotonic() > written.until:
                del self._written[name]
            elif written.now is None:
                found.pop(name, None)
            else:
                found[name] = written.now
        self._use(self._fitting(found, refused))
        self._report(refused)

    def _usable(self) -> tuple[dict[str, Subscription], dict[str, str]]:
        """Return the subscriptions, and why each that can't be used stays as it was."""
        last_good = {known.name: known for known in self._known}
        found: dict[str, Subscription] = {}
        refused: dict[str, str] = {}
        for name, read in sorted(self._joined.items()):
            if isinstance(read, Subscription):
                found[name] = read
                continue
            refused[name] = "; ".join(map(str, read))
            if name in last_good:
                found[name] = last_good[name]
        return found, refused

    def _fitting(
        self, found: Mapping[str, Subscription], refused: dict[str, str]
    ) -> tuple[Subscription, ...]:
        """Return those that fit into one set.

        The others stay as they were, and are refused.
        """
        try:
            return SubscriptionSet(found.values()).subscriptions
        except SubscriptionError:
            last_good = {known.name: known for known in self._known}
            # What is in force comes first, so that a new subscription can't end another one.
            in_order = sorted(found.values(), key=lambda one: one != last_good.get(one.name))
            kept, others = within_bounds(in_order)
            refused |= {other.name: str(error) for other, error in others}
            before = [last_good[other.name] for other, _ in others if other.name in last_good]
            return SubscriptionSet(within_bounds((*kept, *before))[0]).subscriptions

    def _settle_records(self, cluster: Cluster, entries: Mapping[str, Entry]) -> None:
        """Delete the records of subscriptions that Kafka's tools deleted.

        Move complete ones.
        """
        if not cluster.has_resources:
            return
        now = time.monotonic()
        for name, entry in entries.items():
            if entry.configs is not None:
                self._orphans.pop(name, None)
            elif entry.exists:
                # Written before the brokers had CLIENT_METRICS.
                read = _joined(name, entry)
                if isinstance(read, Subscription):
                    with suppress(RefusedError):  # it stays a record alone, and in force
                        _write(cluster, read)
            else:
                before = self._entries.get(name)
                since = self._orphans.setdefault(name, now)
                # What is written now may be the first half of a new one.
                deleted = before is not None and before.configs is not None and before.beside == entry.beside
                if deleted or now - since > _ORPHAN_S:
                    cluster.forget_record(name)
                    del self._orphans[name]
        for name in self._orphans.keys() - entries.keys():
            del self._orphans[name]

    # -- state -------------------------------------------------------------------------------------

    def _connected(self) -> Cluster:
        cluster, now = self._cluster, time.monotonic()
        if cluster is not None and not cluster.has_resources and now - self._connected_at > _UPGRADED_S:
            self._disconnect()
        if self._cluster is None:
            self._cluster = Cluster(self._settings)
            self._connected_at = now
        return self._cluster

    def _writable(self) -> Cluster:
        cluster = self._connected()
        cluster.prepare()
        return cluster

    def _disconnect(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

    def _wrote(self, name: str, subscription: Subscription | None) -> None:
        before = self._written.get(name)
        existing = next((known for known in self._known if known.name == name), None)
        earlier = [*(before.earlier if before else ()), existing]
        self._written[name] = _Written(
            now=subscription,
            earlier=[known for known in earlier if known != subscription][-_MAX_EARLIER:],
            until=time.monotonic() + _SETTLE_S,
        )
        others = [known for known in self._known if known.name != name]
        if subscription is not None:
            others.append(subscription)
        self._use(SubscriptionSet(others).subscriptions)
        self._save()

    def _use(self, subscriptions: tuple[Subscription, ...]) -> None:
        if subscriptions != self._known:
            self._known = subscriptions

    def _save(self) -> None:
        """Write the local copy if it has other subscriptions."""
        if self._saved is self._known or not self._status.known:
            return
        known = self._known
        try:
            self._copy.write(known)
        except StoreError as error:
            if self._unsaved is None:
                _log.error(
                    "subscriptions not saved, a restart without brokers loses them", problem=str(error)
                )
            self._unsaved = str(error)
        else:
            self._saved, self._unsaved = known, None

    def _report(self, refused: Mapping[str, str]) -> None:
        """Say what the last successful read found."""
        failures = self._status.failures
        if refused and refused != self._refused:
            failures += 1
            lines = [f"{name!r}: {problem}" for name, problem in refused.items()]
            _log.error("subscriptions not usable here", problems=lines[:_MAX_LOGGED])
        elif self._status.problem is not None and not refused:
            _log.info("subscriptions read", subscriptions=len(self._known))
        self._refused = refused
        place = str(self._settings.bootstrap_servers)
        problem = unusable(place, refused) if refused else self._unsaved
        self._status = StoreStatus(problem=problem, failures=failures)

    def _failed(self, problem: str) -> None:
        if problem != self._status.problem:
            _log.warning(
                "subscriptions not read, the last known ones stay",
                problem=problem,
                in_force=len(self._known),
            )
        self._status = replace(self._status, problem=problem, failures=self._status.failures + 1)


def _joined(name: str, entry: Entry) -> Subscription | list[Mistake]:
    """Read a subscription, or return why it can't be used.

    A defect must not hide the others.
    """
    try:
        return join(name, entry)
    except Exception as error:
        _log.exception("a subscription can't be read because of a defect", subscription=name)
        return [Mistake((), f"{type(error).__name__}, a defect of the receiver; put the subscription again")]


def _write(cluster: Cluster, subscription: Subscription) -> Entry:
    """Write a subscription, and return how the cluster keeps it."""
    entry = split_complete(subscription)
    if cluster.has_resources:
        entry = split(subscription)
        try:
            cluster.check(subscription.name, entry.configs or {})
        except RefusedError:
            # RE2 and Java have patterns that the other lacks.
            entry = split(subscription, match_beside=True)
            cluster.check(subscription.name, entry.configs or {})
    cluster.write(subscription.name, entry)
    return entry
