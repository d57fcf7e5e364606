"""Limits against a model that remembers every connection and drains every bucket at every step."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from receiver.settings.limits import LimitsSettings, PeerLimitsSettings, PrincipalLimitsSettings
from receiver.telemetry.connection import ANONYMOUS, UNKNOWN_PRINCIPAL, Connection
from receiver.telemetry.limits import Exceeded, LimitName, Limits, Scope
from tests.unit.telemetry.parts import connection

MAX_PEERS = 16
NOBODY = (ANONYMOUS, UNKNOWN_PRINCIPAL)
NAMES = (
    LimitName.NEW_INSTANCES,
    LimitName.TELEMETRY_REQUESTS,
    LimitName.REJECTED_BYTES,
    LimitName.PUSHED_BYTES,
)
KEYS = (
    "new_instances_per_minute",
    "telemetry_requests_per_second",
    "rejected_bytes_per_minute",
    "pushed_bytes_per_minute",
)
PERIODS = (60, 1, 60, 60)
BURSTS = (60, 10, 60, 60)

# By the minute and by the second: one unit fills a bucket for a time that a float tells exactly.
rarely = st.sampled_from([None, 15, 30, 60, 240])
often = st.sampled_from([None, 1, 2, 4])
peer_limits = st.builds(
    PrincipalLimitsSettings,
    connections=st.sampled_from([None, 1, 2, 4]),
    new_instances_per_minute=rarely,
    telemetry_requests_per_second=often,
    rejected_bytes_per_minute=rarely,
    pushed_bytes_per_minute=rarely,
)
settings = st.builds(
    LimitsSettings, source_address=peer_limits, principal=peer_limits, max_peers=st.just(MAX_PEERS)
)
sources = st.integers(0, MAX_PEERS + 3).map(lambda number: f"10.0.0.{number}")
principals = st.sampled_from([*NOBODY, *(f"User:{number}" for number in range(MAX_PEERS + 3))])


class Model:
    """One kind of peer: what each bucket holds, in seconds that it takes to drain."""

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

    def fill(self, bucket: int, peer: str, units: int) -> None:
        unit = self.unit(bucket)
        if unit is None:
            return
        held = self.buckets.setdefault(peer, [Fraction(0)] * len(NAMES))
        held[bucket] = min(held[bucket] + units * unit, Fraction(2 * BURSTS[bucket]))
        self.seen(peer)
        if len(self.buckets) > MAX_PEERS:
            del self.buckets[next(iter(self.buckets))]


class LimitsRules(RuleBasedStateMachine):
    """Peers that take what they may, and more."""

    def __init__(self) -> None:
        super().__init__()
        self.now = Fraction(1000)
        self.models: dict[Scope, Model] = {"source_address": Model(), "principal": Model()}
        self.open: list[Connection] = []
        self.counted: dict[Connection, str] = {}

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

    @rule(source=sources)
    def connect(self, source: str) -> None:
        allowed = self.models["source_address"].limits.connections
        already = sum(one.source_address == source for one in self.open)
        exceeded = self.limits.connection_opened(source)
        assert (exceeded is not None) == (allowed is not None and already >= allowed)
        if exceeded is None:
            self.open.append(connection(source_address=source))
        else:
            assert (
                exceeded.limit,
                exceeded.scope,
                exceeded.peer,
                exceeded.allowed,
                exceeded.retry_after_s,
            ) == (
                "connections",
                "source_address",
                source,
                allowed,
                0.0,
            )

    @rule(data=st.data(), principal=principals)
    def log_in(self, data: st.DataObject, principal: str) -> None:
        if not self.open:
            return
        one = data.draw(st.sampled_from(self.open))
        one.principal = principal
        if self.counted.get(one) != principal:
            self.counted.pop(one, None)
        allowed = self.models["principal"].limits.connections
        already = sum(name == principal for name in self.counted.values())
        exceeded = self.limits.authenticated(one)
        free = one in self.counted or principal in NOBODY or allowed is None or already < allowed
        assert (exceeded is None) == free
        if free and principal not in NOBODY:
            self.counted[one] = principal

    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        if self.open:
            one = data.draw(st.sampled_from(self.open))
            self.limits.connection_closed(one)
            self.open.remove(one)
            self.counted.pop(one, None)

    @rule(source=sources, principal=principals, times=st.integers(1, 70), bucket=st.integers(0, 1))
    def ask(self, source: str, principal: str, times: int, bucket: int) -> None:
        one = connection(source_address=source, principal=principal)
        call = (self.limits.new_instance, self.limits.telemetry_request)[bucket]
        for _ in range(times):
            if self.expect(call, one, bucket) is None:
                self.fill(bucket, one, 1)

    @rule(source=sources, principal=principals, size=st.integers(0, 500), rejected=st.booleans())
    def push(self, source: str, principal: str, size: int, *, rejected: bool) -> None:
        one = connection(source_address=source, principal=principal)
        if self.expect(self.limits.pushing, one, 2, 3) is None:
            if rejected:
                self.limits.rejected(one, size, float(self.now))
                self.fill(2, one, size)
            self.limits.pushed(one, size, float(self.now))
            self.fill(3, one, size)

    def peers(self, one: Connection) -> list[tuple[Scope, str]]:
        peers: list[tuple[Scope, str]] = [("source_address", one.source_address)]
        if one.principal not in NOBODY:
            peers.append(("principal", one.principal))
        return peers

    def fill(self, bucket: int, one: Connection, units: int) -> None:
        for scope, peer in self.peers(one):
            self.models[scope].fill(bucket, peer, units)

    def expect(
        self, call: Callable[[Connection, float], Exceeded | None], one: Connection, *buckets: int
    ) -> Exceeded | None:
        exceeded = call(one, float(self.now))
        for bucket in buckets:
            for scope, peer in self.peers(one):
                wait = self.models[scope].wait(bucket, peer)
                if wait:
                    assert exceeded == Exceeded(
                        limit=NAMES[bucket],
                        scope=scope,
                        peer=peer,
                        allowed=getattr(self.models[scope].limits, KEYS[bucket]),
                        retry_after_s=float(wait),
                    )
                    return exceeded
        assert exceeded is None
        return None

    @invariant()
    def peers_are_bounded(self) -> None:
        if hasattr(self, "limits"):
            assert self.limits.peers == {scope: len(model.buckets) for scope, model in self.models.items()}


TestLimits = LimitsRules.TestCase
