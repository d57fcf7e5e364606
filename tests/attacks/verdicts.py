"""Judges an attack: the innocent client's waits, the receiver's memory, and totals.

Owns the bounds. Each verdict is a text that says what is wrong, with the number and the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from receiver.settings.limits import LimitsSettings
from receiver.settings.model import TelemetrySettings
from receiver.wire.error_codes import error_name
from tests.attacks.attacks import ATTACKER, LONGEST_MS, Attack
from tests.attacks.run import INNOCENT, Innocent, Outcome, Stored

#: Other work on the machine delays every client: so many times the control client's longest wait
#: are allowed. The HAProxy that is attacked sets no bound, because some attacks stop it.
TIMES_CONTROL: Final = 3.0

#: One push may exceed the limit by this, because the limit applies from the next push.
LARGEST_PUSH_BYTES: Final = TelemetrySettings().max_inflated_bytes

#: limits.source_address.accepted_bytes_per_minute, its default. A minute's worth may come at once.
ACCEPTED_BYTES_PER_MINUTE: Final = LimitsSettings().source_address.accepted_bytes_per_minute or 0

#: Bytes that one source address may buffer: its share of limits.max_held_bytes, and its
#: connections.
BUFFERED_BYTES: Final = LimitsSettings().max_held_bytes // 4 + (32 << 20)

#: The chart's memory limit, resources.limits.memory.
MEMORY_BYTES: Final = 768 << 20

#: An attack may last so much longer on a busy machine.
_PATIENCE_SECONDS: Final = 60.0


def judge(
    attack: Attack, mine: Outcome, files: Mapping[str, Stored], *, longest_ms: float | None = None
) -> list[str]:
    """Return the faults of ``mine``, the receiver's outcome; empty if there are none.

    Args:
        attack: What was done.
        mine: The receiver's outcome.
        files: What the receiver stored, by source address.
        longest_ms: The bound on the innocent client's longest wait; None for the suite's own.
    """
    machine_ms = TIMES_CONTROL * (mine.control_ms or 0.0)
    request_ms = max(LONGEST_MS if longest_ms is None else longest_ms, machine_ms)
    telemetry_ms = max(attack.telemetry_longest_ms if longest_ms is None else longest_ms, machine_ms)
    waits = [] if attack.paused else _waits(mine.innocent, request_ms, telemetry_ms)
    return [
        *waits,
        *_memory(mine),
        *_totals(mine),
        *_attack(attack, mine),
        *_bridge(mine, telemetry_ms),
        *_files(attack, mine, files),
    ]


def _waits(innocent: Innocent, request_ms: float, telemetry_ms: float) -> list[str]:
    waits = (
        ("request", innocent.longest_ms, request_ms),
        ("telemetry", innocent.telemetry_longest_ms, telemetry_ms),
    )
    return [
        f"{name} waited {wait:,.0f} ms (at most {bound:,.0f})"
        for name, wait, bound in waits
        if wait is not None and wait > bound
    ]


def _memory(mine: Outcome) -> list[str]:
    if mine.peak_bytes <= MEMORY_BYTES:
        return []
    return [f"memory {mine.peak_bytes >> 20:,} MiB (at most {MEMORY_BYTES >> 20})"]


def _totals(mine: Outcome) -> list[str]:
    innocent = mine.innocent
    wrong = [f"innocent: {innocent.problem}"] if innocent.problem else []
    for request, by_code in (("get", innocent.gets), ("push", innocent.pushes)):
        wrong += _refused(request, by_code)
    if not innocent.pushes.get(0):
        wrong.append("no push of the innocent client was accepted")
    return wrong


def _refused(request: str, by_code: Mapping[int, int]) -> list[str]:
    return [
        f"{count} of the innocent client's {request} requests answered {error_name(code)}"
        for code, count in by_code.items()
        if code
    ]


def _attack(attack: Attack, mine: Outcome) -> list[str]:
    if mine.buffered_bytes is not None:
        held = mine.buffered_bytes + mine.peak_bytes - mine.before_bytes
        if held > BUFFERED_BYTES:
            return [f"{held >> 20} MiB are buffered for the attack (at most {BUFFERED_BYTES >> 20})"]
    accepted = mine.attacker.pushes.get(0, 0) if mine.attacker else 0
    if attack.refused and accepted:
        return [f"{accepted} pushes of the attack were accepted (none may be)"]
    return []


def _bridge(mine: Outcome, most_ms: float) -> list[str]:
    bridge = mine.bridge
    if bridge is None:
        return []
    wrong = [f"the innocent bridge: {bridge.problem}"] if bridge.problem else []
    if not bridge.acknowledged:
        wrong.append("no push of the innocent bridge was acknowledged")
    if bridge.longest_ms > most_ms:
        wrong.append(f"the innocent bridge waited {bridge.longest_ms:,.0f} ms (at most {most_ms:,.0f})")
    return wrong


def _files(attack: Attack, mine: Outcome, files: Mapping[str, Stored]) -> list[str]:
    if not attack.spool:
        return []
    wrong = []
    none = Stored(pushes=0, overflowed=0, otlp_bytes=0)
    kept, hostile = files.get(INNOCENT, none), files.get(ATTACKER, none)
    answered = mine.innocent.pushes.get(0, 0)
    if kept.pushes != answered:
        wrong.append(f"{kept.pushes} pushes of the innocent client are stored, {answered} were accepted")
    if kept.overflowed:
        wrong.append(f"{kept.overflowed} pushes of the innocent client lost series to the budget")
    bound = int(ACCEPTED_BYTES_PER_MINUTE * (1 + mine.seconds / 60) + LARGEST_PUSH_BYTES)
    if attack.bounded and hostile.otlp_bytes > bound:
        wrong.append(f"{hostile.otlp_bytes:,} bytes of the attack are stored (at most {bound:,})")
    if attack.most_new_series is not None:
        most = int(attack.most_new_series * (1 + (mine.seconds + _PATIENCE_SECONDS) / 3600))
        if not hostile.overflowed or hostile.series > most:
            wrong.append(
                f"{hostile.series:,} series of the attack are stored (at most {most:,}), "
                f"{hostile.overflowed} of its pushes lost some (at least 1)"
            )
    return wrong
