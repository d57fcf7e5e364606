"""Limits against a model that drains every bucket at every step, in exact fractions."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from receiver.peers.peers import Scope
from receiver.principal.sasl import UNKNOWN_PRINCIPAL
from receiver.settings.limits import LimitsSettings, PeerLimitsSettings, PrincipalLimitsSettings
from receiver.telemetry.control.limits import Exceeded, LimitName, Limits
from receiver.telemetry.identity import ANONYMOUS, ClientIdentity
from tests.unit.telemetry.parts import connection

MAX_PEERS = 16
SHARED_PRINCIPALS = (ANONYMOUS, UNKNOWN_PRINCIPAL)
NAMES = (
    LimitName.NEW_CONNECTIONS,
    LimitName.NEW_INSTANCES,
    LimitName.TELEMETRY_REQUESTS,
    LimitName.CORE_TIME,
    LimitName.REJECTED_BYTES,
)
NEW_CONNECTIONS, NEW_INSTANCES, TELEMETRY_REQUESTS, CORE_TIME, REJECTED_BYTES = range(len(NAMES))
KEYS = (
    "new_connections_per_second",
    "new_instances_per_minute",
    "telemetry_requests_per_second",
    "core_ms_per_second",
    "rejected_bytes_per_minute",
)
PERIODS = (1, 60, 1, 1, 60)
BURSTS = (10, 60, 10, 4, 60)
DEBTS = (0, 0, 0, 60, 60)

# One unit fills a bucket for a time that a float represents exactly.
rarely = st.sampled_from([None, 15, 30, 60, 240])
often = st.sampled_from([None, 1, 2, 4])
peer_limits = st.builds(
    PrincipalLimitsSettings,
    connections=st.sampled_from([None, 1, 2, 4]),
    new_connections_per_second=often,
    new_instances_per_minute=rarely,
    telemetry_requests_per_second=often,
    core_ms_per_second=st.sampled_from([None, 64, 128, 256]),
    rejected_bytes_per_minute=rarely,
)
settings = st.builds(
    LimitsSettings, source_address=peer_limits, principal=peer_limits, max_peers=st.just(MAX_PEERS)
)
sources = st.integers(0, MAX_PEERS + 3).map(lambda number: f"10.0.0.{number}")
principals = st.sampled_from([*SHARED_PRINCIPALS, *(f"User:{number}" for number in range(MAX_PEERS + 3))])


class Model:
    """One kind of peer: the content of each bucket, in seconds that it takes to drain."""

    def __init__(self) -> None:
        self.limits = PeerLimitsSettings()
        self.buckets: dict[str, list[Fraction]] = {}

    def drain(self, seconds: Fraction) -> None:
        for held in self.buckets.values():
            held[:] = [max(Fraction(0), level - seconds) for level in held]

    def unit(self, bucket: int) -> Fraction | None:
        allowed = getattr(self.limits, KEYS[bucket])
        return None if allowed is None else Fraction(PERIODS[bucket], allowed)

    def seen(self, peer: str) -> None:
        self.buckets[peer] = self.buckets.pop(peer)

    def wait(self, bucket: int, peer: str) -> Fraction:
        unit = self.unit(bucket)
        if unit is None or peer not in self.buckets:
            return Fraction(0)
        self.seen(peer)
        return max(Fraction(0), self.buckets[peer][bucket] + unit - BURSTS[bucket])

    def fill(self, bucket: int, peer: str, units: Fraction) -> None:
        unit = self.unit(bucket)
        if unit is None:
            return
        held = self.buckets.setdefault(peer, [Fraction(0)] * len(NAMES))
        held[bucket] = min(held[bucket] + units * unit, Fraction(BURSTS[bucket] + DEBTS[bucket]))
        self.seen(peer)
        if len(self.buckets) > MAX_PEERS:
            del self.buckets[next(iter(self.buckets))]


class LimitsRules(RuleBasedStateMachine):
    """Peers within and over their limits."""

    def __init__(self) -> None:
        super().__init__()
        self.now = Fraction(1000)
        self.models: dict[Scope, Model] = {
            "source_address": Model(),
            "address_block": Model(),
            "principal": Model(),
        }
        self.open: list[ClientIdentity] = []
        self.opened = 0
        self.counted: dict[str, str] = {}

    @initialize(given=settings)
    def start(self, given: LimitsSettings) -> None:
        self.limits = Limits(given)
        self.take_over(given)

    @rule(given=settings)
    def replace(self, given: LimitsSettings) -> None:
        self.limits.replace_settings(given)
        self.take_over(given)

    def take_over(self, given: LimitsSettings) -> None:
        self.models["source_address"].limits = given.source_address
        self.models["principal"].limits = given.principal

    @rule(quarters=st.integers(1, 400))
    def time_passes(self, quarters: int) -> None:
        self.now += Fraction(quarters, 4)
        for model in self.models.values():
            model.drain(Fraction(quarters, 4))

    @rule(source=sources, times=st.integers(1, 50))
    def connect(self, source: str, times: int) -> None:
        for _ in range(times):
            self.opened += 1
            one = connection(id=str(self.opened), source_address=source)
            already = sum(other.source_address == source for other in self.open)
            expected = self.expect_open("source_address", source, already)
            assert self.limits.connection_opened(source, float(self.now)) == expected
            if expected is None:
                self.open.append(one)

    @rule(data=st.data(), principal=principals)
    def log_in(self, data: st.DataObject, principal: str) -> None:
        if not self.open:
            return
        before = data.draw(st.sampled_from(self.open))
        one = replace(before, principal=principal)
        self.open[self.open.index(before)] = one
        expected = None
        if self.counted.get(one.id) != principal:
            self.counted.pop(one.id, None)
            if principal not in SHARED_PRINCIPALS:
                already = sum(name == principal for name in self.counted.values())
                expected = self.expect_open("principal", principal, already)
                if expected is None:
                    self.counted[one.id] = principal
        assert self.limits.authenticated(one, float(self.now)) == expected

    def expect_open(self, scope: Scope, peer: str, already: int) -> Exceeded | None:
        exceeded = self.take(NEW_CONNECTIONS, scope, peer)
        if exceeded is not None:
            return exceeded
        model = self.models[scope]
        model.fill(NEW_CONNECTIONS, peer, Fraction(1))
        allowed = model.limits.connections
        if allowed is None or already < allowed:
            return None
        return Exceeded(
            limit=LimitName.CONNECTIONS, scope=scope, peer=peer, allowed=allowed, retry_after_s=0.0
        )

    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        if self.open:
            one = data.draw(st.sampled_from(self.open))
            self.limits.connection_closed(one)
            self.open.remove(one)
            self.counted.pop(one.id, None)

    @rule(source=sources, principal=principals, times=st.integers(1, 70))
    def name_instances(self, source: str, principal: str, times: int) -> None:
        one = connection(source_address=source, principal=principal)
        for _ in range(times):
            expected = self.expect(NEW_INSTANCES, one)
            assert self.limits.take(LimitName.NEW_INSTANCES, one, float(self.now)) == expected
            if expected is None:
                self.fill(NEW_INSTANCES, one, Fraction(1))

    @rule(source=sources, principal=principals, times=st.integers(1, 70), eighths=st.integers(0, 80))
    def ask(self, source: str, principal: str, times: int, eighths: int) -> None:
        one = connection(source_address=source, principal=principal)
        for _ in range(times):
            expected = self.expect(TELEMETRY_REQUESTS, one)
            if expected is None:
                self.fill(TELEMETRY_REQUESTS, one, Fraction(1))
                expected = self.expect(CORE_TIME, one)
            assert self.limits.telemetry_request(one, float(self.now)) == expected
            if expected is None:
                self.limits.spent(one, eighths / 8, float(self.now))
                self.fill(CORE_TIME, one, Fraction(eighths * 1000, 8))

    @rule(source=sources, principal=principals, size=st.integers(0, 500))
    def push(self, source: str, principal: str, size: int) -> None:
        one = connection(source_address=source, principal=principal)
        expected = self.expect(REJECTED_BYTES, one)
        assert self.limits.over(LimitName.REJECTED_BYTES, one, float(self.now)) == expected
        if expected is None:
            self.limits.use(LimitName.REJECTED_BYTES, one, size, float(self.now))
            self.fill(REJECTED_BYTES, one, Fraction(size))

    def peers(self, one: ClientIdentity) -> list[tuple[Scope, str]]:
        peers: list[tuple[Scope, str]] = [("source_address", one.source_address)]
        if one.principal not in SHARED_PRINCIPALS:
            peers.append(("principal", one.principal))
        return peers

    def fill(self, bucket: int, one: ClientIdentity, units: Fraction) -> None:
        for scope, peer in self.peers(one):
            self.models[scope].fill(bucket, peer, units)

    def expect(self, bucket: int, one: ClientIdentity) -> Exceeded | None:
        for scope, peer in self.peers(one):
            exceeded = self.take(bucket, scope, peer)
            if exceeded is not None:
                return exceeded
        return None

    def take(self, bucket: int, scope: Scope, peer: str) -> Exceeded | None:
        model = self.models[scope]
        wait = model.wait(bucket, peer)
        if not wait:
            return None
        return Exceeded(
            limit=NAMES[bucket],
            scope=scope,
            peer=peer,
            allowed=getattr(model.limits, KEYS[bucket]),
            retry_after_s=float(wait),
        )

    @invariant()
    def peers_are_bounded(self) -> None:
        if hasattr(self, "limits"):
            assert self.limits.peers == {scope: len(model.buckets) for scope, model in self.models.items()}


TestLimits = LimitsRules.TestCase
