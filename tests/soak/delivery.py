"""Kills collectors and the sidecar at random under load and counts delivered pushes.

One sidecar exports each push three times, by the three modes of delivery, to a collector each. The
collectors are killed and started again at random. The sidecar, its core process and a relay are
killed with SIGKILL in turn, so many times in all.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from tests.soak.load import METRIC, NUMBER, NumberedClients
from tests.testbed.broker import KafkaBroker
from tests.testbed.collector import Collector
from tests.testbed.cpu import memory_bytes, with_descendants
from tests.testbed.ports import free_port
from tests.testbed.process import WaitTimeoutError, wait_until
from tests.testbed.sidecar import Sidecar, config_for

MODES = ("memory", "spool_when_behind", "spool_always")

#: `spool.after_ms` of the soak, and by how much later a push may be on disk: a turn of the spool's
#: thread and a slow disk.
AFTER_MS = 500
_SLACK_S = 1.5

#: Seconds that an answer of a core may take to its client after the core was killed, because the
#: relay lives on.
_ON_ITS_WAY_S = 2.0

#: What is killed in turn: a process, or all of them with the supervisor.
_VICTIMS: Final = ("sidecar", "kct-core", "kct-relay-1")

_INTERVAL_MS = 200
_RETRY_MS = 500
_QUIET_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Parameters of a soak.

    Attributes:
        seconds: How long there are faults.
        clients: Client instances that push, each every 200 ms.
        kills: How often the sidecar or one of its processes is killed.
        up_s: How long a collector runs before it is killed, at least and at most, in seconds.
        down_s: How long it is away then.
        seed: Of the random times.
        pushes: Accepted pushes at least, for which the faults go on if need be.
    """

    seconds: float
    clients: int
    kills: int
    up_s: tuple[float, float]
    down_s: tuple[float, float]
    seed: int
    pushes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a soak.

    Attributes:
        accepted: Pushes that were answered NONE.
        refused: Answers that were errors, by code.
        arrived: Of the accepted ones, those that a mode's collector has.
        repeated: Arrivals of a push that was there already.
        lost: When each push was accepted that never arrived, in seconds since the epoch, by mode.
        kills: When the sidecar was killed.
        collector_kills: How often a collector was, by mode.
        peak_rss_bytes: The most resident memory that the sidecar was seen to take.
    """

    accepted: int
    refused: Mapping[int, int]
    arrived: Mapping[str, int]
    repeated: Mapping[str, int]
    lost: Mapping[str, Sequence[float]]
    kills: Sequence[float]
    collector_kills: Mapping[str, int]
    peak_rss_bytes: int

    def unexplained(self, mode: str) -> list[float]:
        """The losses that the documentation of a mode does not allow."""
        return [at for at in self.lost[mode] if not _may_be_lost(mode, at, self.kills)]


def _may_be_lost(mode: str, at: float, kills: Sequence[float]) -> bool:
    """Tell whether a push of this time may be lost by one of the kills (docs/delivery.md).

    ``spool_always`` loses none. ``spool_when_behind`` loses what had arrived within
    ``spool.after_ms`` before a kill. ``memory`` loses what a kill finds in memory, that is anything
    before a kill.
    """
    if mode == "spool_always":
        return False
    within_s = AFTER_MS / 1000 + _SLACK_S if mode == "spool_when_behind" else float("inf")
    return any(-_ON_ITS_WAY_S <= killed - at <= within_s for killed in kills)


class _Faulty:
    """A collector that dies and comes back at random."""

    def __init__(self, collector: Collector, plan: Plan, rng: random.Random) -> None:
        self.collector = collector
        self.kills = 0
        self._plan = plan
        self._rng = rng
        self._up = True
        self._next = time.monotonic() + rng.uniform(*plan.up_s)

    def step(self) -> None:
        """Kill it, or start it, if it is time."""
        if time.monotonic() < self._next:
            return
        if self._up:
            self.collector.kill()
            self.kills += 1
        else:
            self.collector.start()
        self._up = not self._up
        self._next = time.monotonic() + self._rng.uniform(
            *(self._plan.up_s if self._up else self._plan.down_s)
        )

    def heal(self) -> None:
        """Keep it running from now on."""
        if not self._up:
            self.collector.start()
            self._up = True


def run(broker: KafkaBroker, plan: Plan, *, tell: Callable[[str], None] = lambda _: None) -> Outcome:
    """Run the soak.

    Args:
        broker: What the sidecar stands in front of.
        plan: How long, how much, how often.
        tell: Takes a line on how it goes.

    Raises:
        StartError: The sidecar did not come back after a kill.
    """
    rng = random.Random(plan.seed)
    with ExitStack() as stack:
        faulty = {
            mode: _Faulty(stack.enter_context(Collector()), plan, random.Random(rng.random()))
            for mode in MODES
        }
        sidecar = stack.enter_context(Sidecar(_config(broker, faulty)))
        sidecar.put_subscription("soak", ["*"], _INTERVAL_MS)
        clients = stack.enter_context(NumberedClients(sidecar.port(), plan.clients))
        kills, peak = _break(plan, rng, sidecar, faulty, clients, tell)
        clients.end()
        for item in faulty.values():
            item.heal()
        there = {
            mode: arrivals(
                item.collector,
                {number for number, at in clients.accepted.items() if not _may_be_lost(mode, at, kills)},
                tell,
                mode,
            )
            for mode, item in faulty.items()
        }
    return Outcome(
        accepted=len(clients.accepted),
        refused=clients.refused,
        arrived={mode: len(clients.accepted.keys() & there[mode].keys()) for mode in MODES},
        repeated={mode: sum(there[mode].values()) - len(there[mode]) for mode in MODES},
        lost={
            mode: [at for number, at in clients.accepted.items() if number not in there[mode]]
            for mode in MODES
        },
        kills=kills,
        collector_kills={mode: item.kills for mode, item in faulty.items()},
        peak_rss_bytes=peak,
    )


def _config(broker: KafkaBroker, faulty: Mapping[str, _Faulty]) -> dict[str, object]:
    config = config_for(broker, client_port=free_port())
    config["plugins"] = [
        {
            "type": "otlp",
            "name": mode,
            "endpoint": item.collector.grpc_endpoint,
            "delivery": mode,
            "retry": {"initial_ms": 100, "max_ms": _RETRY_MS, "max_elapsed_s": 0},
            **({} if mode == "memory" else {"spool": {"after_ms": AFTER_MS}}),
        }
        for mode, item in faulty.items()
    ]
    # All clients come from one address.
    config["limits"] = {"source_address": {"telemetry_requests_per_second": None, "core_ms_per_second": None}}
    return config


def _break(
    plan: Plan,
    rng: random.Random,
    sidecar: Sidecar,
    faulty: Mapping[str, _Faulty],
    clients: NumberedClients,
    tell: Callable[[str], None],
) -> tuple[list[float], int]:
    began = time.monotonic()
    edges = [plan.seconds * index / plan.kills for index in range(plan.kills + 1)] if plan.kills else [0.0]
    due = [rng.uniform(low + (high - low) / 4, high) for low, high in pairwise(edges)]
    kills: list[float] = []
    peak = 0
    told = 0.0
    # On a busy machine a start takes long and clients push rarely. The plan's numbers hold there
    # too.
    while (passed := time.monotonic() - began) < plan.seconds or due or len(clients.accepted) < plan.pushes:
        for item in faulty.values():
            item.step()
        peak = max(peak, resident_bytes(sidecar.pid))
        if due and passed >= due[0]:
            due.pop(0)
            kill(sidecar, _VICTIMS[len(kills) % len(_VICTIMS)])
            kills.append(time.time())
            if not sidecar.running:
                sidecar.start()
        if passed - told >= 10:
            told = passed
            tell(f"{passed:4.0f} s: {len(clients.accepted)} pushes accepted, {len(kills)} processes killed")
        time.sleep(0.05)
    return kills, peak


def arrivals(
    collector: Collector, expected: AbstractSet[str], tell: Callable[[str], None], mode: str
) -> dict[str, int]:
    """Return how often each push has arrived, once the expected ones have."""
    last_change = time.monotonic()
    seen: dict[str, int] = {}

    def complete() -> bool:
        nonlocal last_change, seen
        if (there := _counted(collector)) != seen:
            seen, last_change = there, time.monotonic()
        return expected <= there.keys() and time.monotonic() - last_change >= _QUIET_S

    try:
        wait_until(complete, timeout_s=120, what="the last push", every_s=0.5)
    except WaitTimeoutError:
        tell(f"{mode}: pushes still arrive, or are missing")
    return seen


def _counted(collector: Collector) -> dict[str, int]:
    counts: dict[str, int] = {}
    for metric in collector.exports():
        if metric.name == METRIC:
            for point in metric.points:
                number = str(point.attributes[NUMBER])
                counts[number] = counts.get(number, 0) + 1
    return counts


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and all its descendants."""
    total = 0
    for descendant in with_descendants(pid):
        with contextlib.suppress(ProcessLookupError):  # it was killed a moment ago
            total += memory_bytes(descendant)
    return total


def kill(sidecar: Sidecar, victim: str) -> None:
    """Kill all of a sidecar, or one of its processes, which its supervisor starts again."""
    if victim == "sidecar":
        sidecar.kill()
        return
    for pid in with_descendants(sidecar.pid):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == victim:
                os.kill(pid, signal.SIGKILL)
