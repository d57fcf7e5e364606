"""Limits of several relays together, against those of one process, on a clock of the test."""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

import pytest

from receiver.settings.limits import LimitsSettings, PeerLimitsSettings
from receiver.telemetry.control.limits import Level, LimitName, Limits, Usage
from tests.unit.telemetry.parts import connection

REPORT_EVERY_S = 0.1
SOURCE = "10.0.0.7"

#: Draws the seconds for which a message is under way.
Delay = Callable[[Random], float]
#: Draws the relays that the attacker's next connections come to.
Spread = Callable[[Random, int, int], Iterable[int]]

DELAYS: dict[str, Delay] = {
    "at_once": lambda random: 0.0,
    "fast": lambda random: 0.001,
    "slow": lambda random: 0.05,
    "uneven": lambda random: random.random() * 0.1,
}
SPREADS: dict[str, Spread] = {
    "all": lambda random, relays, turn: range(relays),
    "one": lambda random, relays, turn: [0],
    "any": lambda random, relays, turn: [random.randrange(relays)],
    "half": lambda random, relays, turn: [relay for relay in range(relays) if random.random() < 0.5],
    "in_turns": lambda random, relays, turn: (
        range(relays // 2) if turn // 4 % 2 else range(relays // 2, relays)
    ),
    "one_blow": lambda random, relays, turn: range(relays) if turn % 300 == 0 else [],
}


@dataclass(kw_only=True)
class Receiver:
    """Relays and a core that exchange reports and levels as their processes do."""

    settings: LimitsSettings
    count: int
    delay: Delay
    random: Random = field(default_factory=lambda: Random(7))
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.core = Limits(self.settings)
        self.relays = [Limits(self.settings, relays=self.count) for _ in range(self.count)]
        self._waiting = [False] * self.count  # for the core to count a report
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        for relay in range(self.count):
            self.at(self.now + self.random.random() * REPORT_EVERY_S, self._tick, relay)

    def at(self, time: float, act: Callable[..., None], *arguments: object) -> None:
        heapq.heappush(self._due, (time, next(self._order), lambda: act(*arguments)))

    def run_until(self, time: float) -> None:
        while self._due and self._due[0][0] <= time:
            self.now, _, act = heapq.heappop(self._due)
            act()
        self.now = time

    def report(self, relay: int) -> None:
        """Report what was used, unless the last report is not counted yet."""
        if not self._waiting[relay] and (usage := self.relays[relay].take_usage()):
            self._waiting[relay] = True
            self._send(self._count, relay, usage)

    def _send(self, act: Callable[..., None], *arguments: object) -> None:
        self.at(self.now + self.delay(self.random), act, *arguments)

    def _tick(self, relay: int) -> None:
        self.report(relay)
        self.at(self.now + REPORT_EVERY_S, self._tick, relay)

    def _count(self, relay: int, usage: list[Usage]) -> None:
        self._send(self._counted, relay, self.core.add_usage(usage, self.now))
        if levels := self.core.take_levels(self.now):
            for item in self.relays:
                self._send(item.raise_levels, levels)

    def _counted(self, relay: int, levels: list[Level]) -> None:
        limits = self.relays[relay]
        limits.raise_levels(levels)
        limits.usage_counted()
        self._waiting[relay] = False
        if limits.urgent:
            self.report(relay)


def unlimited(**limits: int) -> LimitsSettings:
    """Limits of a source address, and no others."""
    without: dict[str, int | None] = dict.fromkeys(PeerLimitsSettings.model_fields)
    return LimitsSettings(source_address=PeerLimitsSettings(**{**without, **limits}))


def most_in(window_s: float, times: list[float]) -> int:
    """The most events in any window."""
    return max(bisect_right(times, start + window_s) - index for index, start in enumerate(times))


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize(
    ("relays", "per_s"), [(2, 4), (8, 100), pytest.param(64, 128, marks=pytest.mark.full)]
)
def test_relays_admit_what_one_process_does(relays: int, per_s: int, spread: str, delay: str) -> None:
    settings = unlimited(new_connections_per_second=per_s)
    receiver, single = Receiver(settings=settings, count=relays, delay=DELAYS[delay]), Limits(settings)
    admitted: list[float] = []
    expected: list[float] = []
    for turn in range(480):
        receiver.run_until(1000.0 + turn / 40)
        attacked = list(SPREADS[spread](receiver.random, relays, turn))
        for relay in attacked:
            limits = receiver.relays[relay]
            while limits.connection_opened(SOURCE, receiver.now) is None:
                admitted.append(receiver.now)
            if limits.urgent:
                receiver.report(relay)
        while attacked and single.connection_opened(SOURCE, receiver.now) is None:
            expected.append(receiver.now)
    for window_s in (10.0, 12.0):
        assert most_in(window_s, admitted) <= 1.1 * most_in(window_s, expected)
    # Of many relays, one that gets everything leaves room for the others until the core answers. A
    # single blow is over before, and a relay at a time can't use all room in this many turns.
    least = {"one": 0.3, "one_blow": 0.5, "any": 0.8}.get(spread, 0.9)
    assert len(admitted) >= least * len(expected)


@pytest.mark.parametrize("delay", ["at_once", "fast"])
@pytest.mark.parametrize("relays", [2, 16])
def test_relays_work_for_a_peer_as_long_as_one_process_does(relays: int, delay: str) -> None:
    receiver = Receiver(
        settings=unlimited(core_ms_per_second=100), count=relays, delay=DELAYS[delay], random=Random(3)
    )
    one = connection(source_address=SOURCE)
    spent = 0.0
    for turn in range(20_000):
        receiver.run_until(1000.0 + turn / 1000)
        for relay in range(relays):
            limits = receiver.relays[relay]
            if limits.over(LimitName.CORE_TIME, one, receiver.now) is None:
                limits.spent(one, 0.0005, receiver.now)
                spent += 0.0005
            if limits.urgent:
                receiver.report(relay)
    seconds, burst = 20.0, 4.0
    assert 0.9 <= spent / (0.1 * (seconds + burst)) <= 1.1


def test_a_peer_within_its_limits_is_not_refused_after_a_long_silence() -> None:
    settings = unlimited(new_connections_per_second=10)
    core, relay, other = Limits(settings), Limits(settings, relays=2), Limits(settings, relays=2)
    relay.alone = other.alone = True
    for turn in range(600):
        assert relay.connection_opened(SOURCE, 1000.0 + turn / 5) is None
        assert other.connection_opened(SOURCE, 1000.0 + turn / 5) is None
    now = 1120.0
    levels = core.add_usage(relay.take_usage(), now)
    levels += core.add_usage(other.take_usage(), now)
    assert core.over(LimitName.NEW_CONNECTIONS, connection(source_address=SOURCE), now) is None
    relay.raise_levels(levels)
    assert relay.connection_opened(SOURCE, now) is None
