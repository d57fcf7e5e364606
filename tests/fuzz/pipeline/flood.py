"""One round: pushes of all clients through the telemetry core and spool_files.

Settings are the defaults, with three exceptions that the flood needs: the push interval is short,
and the limits on new instances and on rejected bytes by peer are lifted, because a handful of
addresses send it all. Time is the run's own, so that hours of pushes take minutes.
"""

from __future__ import annotations

import gzip
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final

import cramjam
import lz4.frame
import zstandard

from plugins.spool_files import SpoolFilesConfig, SpoolFilesReceiver
from receiver.plugin import Push
from receiver.settings.limits import LimitsSettings, PeerLimitsSettings, PrincipalLimitsSettings
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.current_subscriptions import CurrentSubscriptions
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.subscription import Subscription, SubscriptionSet
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire.error_codes import ErrorCode
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.uuid import Uuid, uuid_from_text, uuid_to_text
from tests.fuzz.pipeline import collisions
from tests.fuzz.pipeline.grammar import FEATURES, Grammar, Skeleton, bomb
from tests.fuzz.pipeline.identities import IDENTITIES, INNOCENTS, Identity, brokers, instance_id
from tests.fuzz.pipeline.innocents import InnocentPushes, Ledger

INTERVAL_S: Final = 2
#: Client instances: ten in a hundred are innocent.
INSTANCES: Final = 1_000
_INNOCENT_EVERY: Final = 10
#: Pushes that are made before the core gets them, so that each part's CPU time is measured by
#: itself.
_AT_ONCE: Final = 1_000
_SKELETONS: Final = 40
#: A skeleton is dropped after this many refusals, because the round tests the roll-up.
_REFUSED_ENOUGH: Final = 10
_NS: Final = 1_000_000_000
_GAP_NS: Final = INTERVAL_S * _NS // INSTANCES
_DELAY_NS: Final = 100_000_000
_REPEATED: Final = 0.01
#: The share of bombs among one client's pushes, which are 15 of 1,000: so 10 million pushes have
#: enough of them to overflow the sum of one day.
BOMBS: Final = 0.01
_BOMBER: Final = IDENTITIES[INNOCENTS + 1]
_TERMINATING: Final = 0.0005

_NO_LIMITS: Final = {"new_instances_per_minute": None, "rejected_bytes_per_minute": None}
_LIMITS: Final = LimitsSettings(
    source_address=PeerLimitsSettings(**_NO_LIMITS), principal=PrincipalLimitsSettings(**_NO_LIMITS)
)


def _deflated(data: bytes) -> bytes:
    return gzip.compress(data, 1)


def _snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


_zstd: Final = zstandard.ZstdCompressor(level=1)
#: Codecs by how often they are used: gzip costs the most to make.
_CODECS: Final[Sequence[tuple[int, Callable[[bytes], bytes]]]] = (
    *[(0, bytes)] * 8,
    *[(4, _zstd.compress)] * 5,
    *[(3, lz4.frame.compress)] * 3,
    *[(2, _snappy)] * 3,
    (1, _deflated),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Parameters of a round. The same plan gives the same round.

    Attributes:
        seed: Where everything random comes from.
        number: Which round of the run it is, from 0.
        pushes: How many pushes reach the plugin, repeated ones included.
        starts_ns: When the run begins, in nanoseconds since the epoch.
        features: What hostile pushes are made of.
        bombs: The share of bombs (:func:`tests.fuzz.pipeline.grammar.bomb`) among one client's
            pushes.
    """

    seed: str
    number: int
    pushes: int
    starts_ns: int
    features: tuple[str, ...] = FEATURES
    bombs: float = BOMBS

    @property
    def span_ns(self) -> int:
        """Length of a round in simulated time, with room for refused pushes."""
        return (3 * self.pushes // 2 + 2 * INSTANCES) * _GAP_NS


@dataclass(slots=True, kw_only=True)
class Flood:
    """Result of a round before the roll-up.

    Attributes:
        ledger: Values pushed by innocent clients.
        written: Pushes that were written.
        distinct: The same without repeated ones.
        offered: Pushes that the core was handed.
        answers: Answers of the core, by the name of the error.
        refused_innocents: Answers to innocent clients that are not NONE, each as a text.
        make_s: CPU seconds of making pushes.
        core_s: CPU seconds of the core.
        write_s: CPU seconds of the plugin.
        slowest_s: CPU seconds of the push that took the core longest.
        slowest: Its features and bytes.
        otlp_bytes: Bytes of the payloads that were written.
        file_bytes: Bytes of the files.
        owners: Who a client instance is, by its id as Kafka writes it.
    """

    ledger: Ledger = field(default_factory=Ledger)
    written: int = 0
    distinct: int = 0
    offered: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    refused_innocents: list[str] = field(default_factory=list)
    make_s: float = 0.0
    core_s: float = 0.0
    write_s: float = 0.0
    slowest_s: float = 0.0
    slowest: tuple[tuple[str, ...], bytes] = ((), b"")
    otlp_bytes: int = 0
    file_bytes: int = 0
    owners: dict[str, Identity] = field(default_factory=dict)


@dataclass(slots=True)
class _Instance:
    """A client instance, and the connection that it has to each broker."""

    identity: Identity
    id: Uuid
    connections: tuple[ClientIdentity, ...]
    skeletons: list[Skeleton]
    subscription_id: int = 0


@dataclass(slots=True)
class _Offer:
    """A push that is under way."""

    instance: _Instance
    request: PushTelemetryRequest
    broker: int
    at_ns: int
    features: tuple[str, ...]
    skeleton: Skeleton | None = None


def identity_of(number: int) -> Identity:
    """Return the identity of the instance with this number."""
    innocents = [identity for identity in IDENTITIES if identity.innocent]
    hostiles = [identity for identity in IDENTITIES if not identity.innocent]
    if number % _INNOCENT_EVERY == 0:
        return innocents[number // _INNOCENT_EVERY % len(innocents)]
    return hostiles[(number - number // _INNOCENT_EVERY - 1) % len(hostiles)]


class _Round:
    """Creates the pushes of a round and sends them to the core."""

    def __init__(self, plan: Plan, plugin: SpoolFilesReceiver) -> None:
        self._random = Random(f"{plan.seed} {plan.number}")
        self._plan = plan
        self._plugin = plugin
        self._innocents = InnocentPushes(self._random)
        self._flood = Flood(ledger=self._innocents.ledger)
        self._cores = [_core() for _ in brokers()]
        self._instances = self._all_instances()
        self._known: set[str] = set()
        self._begins_ns = plan.starts_ns + plan.number * plan.span_ns
        self._turn = 0
        self._terminated = 0
        self._bomb = bomb()
        self._refused: Counter[int] = Counter()
        self._last: dict[int, PushTelemetryRequest] = {}

    def run(self) -> Flood:
        """Push until enough pushes are written."""
        plan, flood = self._plan, self._flood
        now_ns = self._begins_ns
        for instance in self._instances:
            self._subscribe(instance, now_ns)
        while flood.written < plan.pushes:
            began = time.process_time()
            offers = [self._offer() for _ in range(min(_AT_ONCE, plan.pushes - flood.written))]
            made = time.process_time()
            pushes = self._pushed(offers)
            pushed = time.process_time()
            if pushes:
                self._plugin.export_batch(pushes)
            flood.make_s += made - began
            flood.core_s += pushed - made
            flood.write_s += time.process_time() - pushed
            flood.offered += len(offers)
            flood.written += len(pushes)
            self._known.update(push.payload.push_id for push in pushes)
            flood.otlp_bytes += sum(len(push.payload.data) for push in pushes)
        flood.distinct = len(self._known)
        return flood

    def _all_instances(self) -> list[_Instance]:
        plan, random = self._plan, self._random
        grammar = Grammar(random, plan.features)
        count = min(_SKELETONS, max(4, plan.pushes // 500))
        skeletons = {
            identity: [] if identity.innocent else [grammar.skeleton(identity) for _ in range(count)]
            for identity in IDENTITIES
        }
        instances = []
        for number in range(INSTANCES):
            identity = identity_of(number)
            connections = tuple(
                replace(identity.connection(number * 2 + side), broker=broker)
                for side, broker in enumerate(brokers())
            )
            its_id = instance_id(plan.seed, number)
            if number < len(collisions.INSTANCES) and "collisions" in plan.features:
                its_id = uuid_from_text(collisions.INSTANCES[number])
            instances.append(_Instance(identity, its_id, connections, skeletons[identity]))
        return instances

    def _subscribe(self, instance: _Instance, now_ns: int) -> None:
        self._flood.owners[uuid_to_text(instance.id)] = instance.identity
        request = GetTelemetrySubscriptionsRequest(client_instance_id=instance.id)
        for core, connection in zip(self._cores, instance.connections, strict=True):
            # An interval before the first push, so that this is no push out of turn.
            outcome = core.get_telemetry_subscriptions(connection, request, now=now_ns / _NS - 2 * INTERVAL_S)
            if outcome.response.error_code != ErrorCode.NONE:
                raise RuntimeError(f"a client got no subscription: {outcome}")
            instance.subscription_id = outcome.response.subscription_id

    def _offer(self) -> _Offer:
        turn = self._turn
        self._turn = turn + 1
        number = turn % INSTANCES
        instance = self._instances[number]
        at_ns = self._begins_ns + turn * _GAP_NS
        chance = self._random.random()
        last = self._last.pop(number, None)
        if last is not None:
            # Its client had no answer from the first broker, and repeats the push to the other one.
            return _Offer(instance, last, 1, at_ns, ("repeated",))
        identity = instance.identity
        skeleton = None
        if identity.innocent:
            features: tuple[str, ...] = ("innocent",)
            data = self._innocents.push(identity.client_id, at_ns - _DELAY_NS)
        else:
            skeleton = instance.skeletons[int(chance * 1e6) % len(instance.skeletons)]
            # All are of one client and in one series, where their counts add up.
            if identity is _BOMBER and self._random.random() < self._plan.bombs:
                skeleton = self._bomb
            features = skeleton.features
            data = skeleton.push(at_ns - _DELAY_NS, float(turn % 1000) + 0.5)
        codec, compress = _CODECS[int(chance * 1e9) % len(_CODECS)]
        terminating = not identity.innocent and chance < _TERMINATING
        if terminating:
            features = (*features, "terminating")
        request = PushTelemetryRequest(
            client_instance_id=instance.id,
            subscription_id=instance.subscription_id,
            terminating=terminating,
            compression_type=codec,
            metrics=compress(data),
        )
        if terminating:
            self._replace(number, at_ns)
        elif 1 - chance < _REPEATED:
            self._last[number] = request
        return _Offer(instance, request, 0, at_ns, features, skeleton)

    def _replace(self, number: int, now_ns: int) -> None:
        """Let a new instance of the same client take the place of one that terminates."""
        old = self._instances[number]
        self._terminated += 1
        new = INSTANCES * (1 + self._plan.number) * 1_000 + self._terminated
        instance = _Instance(old.identity, instance_id(self._plan.seed, new), old.connections, old.skeletons)
        self._subscribe(instance, now_ns)
        self._instances[number] = instance

    def _pushed(self, offers: Sequence[_Offer]) -> list[Push]:
        flood = self._flood
        pushes = []
        for offer in offers:
            instance = offer.instance
            began = time.thread_time()
            outcome = self._cores[offer.broker].push_telemetry(
                instance.connections[offer.broker],
                offer.request,
                now=offer.at_ns / _NS,
                received_at_ns=offer.at_ns,
            )
            took = time.thread_time() - began
            if took > flood.slowest_s:
                flood.slowest_s = took
                flood.slowest = (offer.features, bytes(offer.request.metrics or b""))
            error = outcome.response.error_code
            if error != ErrorCode.NONE:
                flood.answers[ErrorCode(error).name] += 1
                self._count_refused(offer)
                if instance.identity.innocent:
                    flood.refused_innocents.append(f"{ErrorCode(error).name}: {outcome.problem}")
            else:
                flood.answers["NONE"] += 1
            if outcome.push is not None:
                pushes.append(outcome.push)
        return pushes

    def _count_refused(self, offer: _Offer) -> None:
        skeleton, skeletons = offer.skeleton, offer.instance.skeletons
        if skeleton is None:
            return
        self._refused[id(skeleton)] += 1
        if self._refused[id(skeleton)] >= _REFUSED_ENOUGH and skeleton in skeletons and len(skeletons) > 1:
            skeletons.remove(skeleton)


def _core() -> ClientTelemetry:
    subscription = Subscription("all", ("*",), INTERVAL_S * 1000, {})
    return ClientTelemetry(
        settings=TelemetrySettings(),
        subscriptions=CurrentSubscriptions(SubscriptionSet((subscription,))),
        limits=Limits(_LIMITS),
        random_bytes=bytes,
    )


def write_round(plan: Plan, folder: Path) -> Flood:
    """Make a round and write it.

    Args:
        plan: What it is made of.
        folder: Where the plugin writes.

    Returns:
        What came of it.
    """
    # Files are published at the end, so that the round has as many as its bytes need.
    plugin = SpoolFilesReceiver(SpoolFilesConfig(path=folder, roll_seconds=3600, retain_hours=None))
    plugin.start()
    try:
        flood = _Round(plan, plugin).run()
        began = time.process_time()
    finally:
        plugin.stop()
    flood.write_s += time.process_time() - began
    flood.file_bytes = sum(file.stat().st_size for file in folder.glob("date=*/hour=*/*.parquet"))
    return flood
