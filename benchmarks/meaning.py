"""What each step on metrics costs by push: normalisation, privacy, budgets of series.

Owns which steps are measured, and the goals. Every variant is the core's whole path
(:mod:`benchmarks.core`) with other settings; they run in turns, so that a machine that changes its
speed changes all of them, and a step's cost is the median of what it adds to the round's path
without steps.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks import core
from benchmarks.captured import (
    FRANZ_GO_PRODUCER,
    JAVA_CONSUMER,
    JAVA_PRODUCER,
    LIBRDKAFKA_CONSUMER,
    LIBRDKAFKA_PRODUCER,
    Captured,
)
from benchmarks.figures import Figure, Results, table
from receiver.settings.model import TelemetrySettings

PAYLOADS = (JAVA_CONSUMER, JAVA_PRODUCER, LIBRDKAFKA_CONSUMER, LIBRDKAFKA_PRODUCER, FRANZ_GO_PRODUCER)
#: How much all defaults may add to a push, in microseconds of CPU.
GOALS = {
    JAVA_CONSUMER.client: 60.0,
    LIBRDKAFKA_CONSUMER.client: 15.0,
}

NO_STEPS = "no steps"
DEFAULTS = "all defaults"

_KEY = b"a key of 24 bytes or so."
_OFF: dict[str, Any] = {"attributes": False, "units": False, "known_bad_values": "keep"}
_PSEUDONYMS = ("principal", "client_source_address", "client_id")
_EVERY_RATE = {"client_software_name": ".*", "bad_metrics": [r".*\.rate"]}

#: The settings below ``telemetry`` of each variant.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    NO_STEPS: {"normalization": _OFF},
    "attributes": {"normalization": _OFF | {"attributes": True}},
    "units": {"normalization": _OFF | {"units": True}},
    "descriptions": {"normalization": _OFF | {"descriptions": True}},
    "rates marked as bad": {
        "normalization": _OFF | {"known_bad_values": "mark"},
        "quirks": [_EVERY_RATE],
    },
    "topics hashed": {
        "normalization": _OFF,
        "privacy": {"key_file": "key", "rules": [{"attribute": "topic", "action": "hash"}]},
    },
    "pseudonyms": {"normalization": _OFF, "privacy": {"key_file": "key", "pseudonymize": _PSEUDONYMS}},
    "over budget": {"normalization": _OFF, "series": {"max_per_client": 10}},
    DEFAULTS: {},
    "all on": {
        "normalization": {"descriptions": True, "known_bad_values": "mark"},
        "quirks": [_EVERY_RATE],
        "privacy": {
            "key_file": "key",
            "pseudonymize": _PSEUDONYMS,
            "rules": [{"attribute": "topic", "action": "hash"}, {"metric": ".*ratio", "action": "drop"}],
        },
    },
}

#: By client and variant, the microseconds of each round.
Costs = Mapping[str, Mapping[str, tuple[float, ...]]]


def measure(*, rounds: int) -> Costs:
    """Time the path of every captured push with the settings of each variant.

    Raises:
        CoreError: a push was refused.
    """
    return {payload.client: _cost(payload, rounds) for payload in PAYLOADS}


def _cost(payload: Captured, rounds: int) -> Mapping[str, tuple[float, ...]]:
    parts = [
        core.path(payload.inflated(), TelemetrySettings.model_validate(changes), hash_key=_KEY)
        for changes in VARIANTS.values()
    ]
    return dict(zip(VARIANTS, zip(*core.in_turns(parts, rounds), strict=True), strict=True))


def _added(costs: Mapping[str, tuple[float, ...]], variant: str) -> float:
    return statistics.median(
        cost - without for cost, without in zip(costs[variant], costs[NO_STEPS], strict=True)
    )


def figures(costs: Costs) -> list[Figure]:
    """Return the goals with what was reached."""
    return [
        Figure(
            name=f"steps, {client}",
            value=_added(costs[client], DEFAULTS),
            unit="us",
            at_most=goal,
            note=f"all defaults added to {statistics.median(costs[client][NO_STEPS]):.0f} us",
        )
        for client, goal in GOALS.items()
    ]


def describe(costs: Costs) -> str:
    """Return a table of the cost that each step adds to a push of each client."""
    rows = [(NO_STEPS, *(f"{statistics.median(costs[client][NO_STEPS]):.1f}" for client in costs))]
    for variant in VARIANTS:
        if variant != NO_STEPS:
            cells = []
            for client in costs:
                added = _added(costs[client], variant)
                times = 1 + added / statistics.median(costs[client][NO_STEPS])
                cells.append(f"{added:+.1f} ({times:.2f})")
            rows.append((variant, *cells))
    return table(("us by push", *costs), rows)


def record(costs: Costs, results: Results) -> None:
    """Keep every round in ``results``."""
    results.raw["meaning"] = costs
