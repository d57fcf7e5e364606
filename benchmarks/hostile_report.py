"""What the attacks came to: the goals and the tables.

Owns the goals. It must not measure anything; that is :mod:`benchmarks.hostile`'s.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict

from benchmarks.attacks import attacks
from benchmarks.figures import Figure, Results, table
from benchmarks.hostile import FLOOR, SIDECAR, Seen
from receiver.settings.limits import LimitsSettings
from receiver.wire.error_codes import error_name

#: Of HAProxy's, which the same attack slows too; by itself where HAProxy is left out.
THROUGHPUT_DURING = 0.5
THROUGHPUT_AFTER = 0.9
P99_MS = 10.0
LONGEST_MS = 500.0

#: What an attack may add to the sidecar's memory besides requests that are not whole: one push at a time,
#: inflated and taken apart, and its share of connections, client instances and peers.
_ROOM_BYTES = 96 << 20


def figures(seen: Mapping[str, Mapping[str, Seen]]) -> list[Figure]:
    """Return the goals with what was reached."""
    found = []
    for name, by_relay in seen.items():
        mine, floor = by_relay[SIDECAR], by_relay.get(FLOOR)
        found += [
            _throughput(name, mine, floor),
            Figure(
                name=f"p99 during, {name}",
                value=_ms(mine.during.p99_us),
                unit="ms",
                at_most=P99_MS,
                note=mine.during.problem or _p99_note(mine, floor),
            ),
        ]
    mine_by_name = {name: by_relay[SIDECAR] for name, by_relay in seen.items()}
    longest = {name: of.during.longest_us for name, of in mine_by_name.items()}
    broken = [name for name, us in longest.items() if us is None]
    slowest = max(longest, key=lambda name: longest[name] or 0.0)
    after = min(mine_by_name, key=lambda name: mine_by_name[name].throughput_after)
    median_after = statistics.median(of.throughput_after for of in mine_by_name.values())
    largest = max(mine_by_name, key=lambda name: mine_by_name[name].resident_peak)
    of = mine_by_name[largest]
    bound = LimitsSettings().max_held_bytes + _ROOM_BYTES
    return [
        *found,
        Figure(
            name="longest wait during any attack",
            value=None if broken else _ms(longest[slowest]),
            unit="ms",
            at_most=LONGEST_MS,
            note=f"broke off: {', '.join(broken)}" if broken else slowest,
        ),
        Figure(
            name="throughput after / before, least of all attacks",
            value=mine_by_name[after].throughput_after,
            at_least=THROUGHPUT_AFTER,
            note=f"{after}; median {median_after:.2f}",
        ),
        Figure(
            name="memory that an attack added, most of all",
            value=(of.resident_peak - of.resident_before) / 2**20,
            unit="MiB",
            at_most=bound / 2**20,
            note=f"{largest}, {of.resident_peak / 2**20:.0f} MiB in all; the goal is limits.max_held_bytes "
            f"and {_ROOM_BYTES >> 20} MiB",
        ),
    ]


def _throughput(name: str, mine: Seen, floor: Seen | None) -> Figure:
    note = mine.during.problem or f"after / before {mine.throughput_after:.2f}"
    if floor is None:
        return Figure(
            name=f"throughput during / before, {name}",
            value=mine.throughput_during,
            at_least=THROUGHPUT_DURING,
            note=note,
        )
    return Figure(
        name=f"throughput during / before, by HAProxy's, {name}",
        value=mine.throughput_during / floor.throughput_during if floor.throughput_during else None,
        at_least=THROUGHPUT_DURING,
        note=floor.during.problem
        or f"{mine.throughput_during:.2f} beside {floor.throughput_during:.2f}; {note}",
    )


def _p99_note(mine: Seen, floor: Seen | None) -> str:
    def text(seen: Seen) -> str:
        times = "" if seen.times_p99 is None else f"{seen.times_p99:.1f} times that before"
        return times or "broke off"

    longest = "" if mine.during.longest_us is None else f", longest {mine.during.longest_us / 1e3:.1f} ms"
    return f"{text(mine)}{longest}" + (f"; HAProxy {text(floor)}" if floor else "")


def _ms(us: float | None) -> float | None:
    return None if us is None else us / 1e3


def describe(seen: Mapping[str, Mapping[str, Seen]]) -> str:
    """Return a table of the producer and one of the attackers, and what the pushes inflate to."""
    producer, attackers = [], []
    for name, by_relay in seen.items():
        shown = name
        for relay, of in by_relay.items():
            phases = (of.before, of.during, of.after)
            producer.append(
                (
                    shown,
                    relay,
                    *(f"{phase.requests_per_second:,.0f}" for phase in phases),
                    f"{of.throughput_during:.2f}",
                    *("-" if phase.p99_us is None else f"{phase.p99_us:,.0f}" for phase in phases),
                    "-" if of.times_p99 is None else f"{of.times_p99:.1f}",
                    *(
                        "-" if phase.longest_us is None else f"{phase.longest_us / 1e3:,.1f}"
                        for phase in phases
                    ),
                    f"{of.resident_before / 2**20:.0f}",
                    f"{of.resident_peak / 2**20:.0f}",
                    f"{of.cpu_percent:.0f}",
                )
            )
            report = of.report
            attackers.append(
                (
                    shown,
                    relay,
                    f"{report.opened:,}",
                    f"{report.held:,}",
                    f"{report.ended:,}",
                    f"{report.bytes_sent / report.seconds / 1e6:,.1f}",
                    _answers("get", report.gets) + _answers("push", report.pushes),
                )
            )
            shown = ""
    producer_head = (
        "attack",
        "relay",
        *("req/s before", "during", "after", "during/before"),
        *("p99 us before", "during", "after", "times"),
        *("longest ms before", "during", "after"),
        *("MiB before", "peak", "CPU %"),
    )
    attacker_head = ("attack", "relay", "opened", "held", "ended", "MB/s sent", "note")
    counted = [
        f"  {name}: "
        + ", ".join(f"{series} {count:,}" for series, count in by_relay[SIDECAR].counters.items() if count)
        for name, by_relay in seen.items()
    ]
    payloads = [f"  {attack.name}: {attack.payload.note}" for attack in attacks() if attack.payload]
    return "\n".join(
        (
            table(producer_head, producer),
            "",
            table(attacker_head, attackers),
            "",
            "What the sidecar counted meanwhile, the producer's own connections included:",
            *counted,
            "What is pushed:",
            *payloads,
        )
    )


def _answers(request: str, by_code: Mapping[int, int]) -> str:
    return "".join(f"{request} {error_name(code)} {count:,}  " for code, count in sorted(by_code.items()))


def record(seen: Mapping[str, Mapping[str, Seen]], results: Results) -> None:
    """Keep every phase in ``results``."""
    results.raw["hostile"] = {
        name: {relay: asdict(of) for relay, of in by_relay.items()} for name, by_relay in seen.items()
    }
