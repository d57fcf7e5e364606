"""Each alert on the roll-up's process fires for its cause and nothing else."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Final

import pytest

from tests.integration.deploy import alert_cases
from tests.integration.deploy.alert_cases import (
    ASKED,
    DAY_S,
    EVENT,
    MINUTES,
    NOW_S,
    STARTED,
    Fired,
    Shown,
    always,
    at_s,
    but_at,
    changes,
    grows_from_then_on,
    unscraped,
)

RULES: Final = alert_cases.rules("rollup")
PAGE: Final = (Path(__file__).parents[3] / "docs" / "rollup-metrics.md").read_text()

FAILURES: Final = "kafka_telemetry_rollup_consecutive_failures"
LAG: Final = "kafka_telemetry_rollup_lag_seconds"
DEAD_LETTERS: Final = "kafka_telemetry_rollup_dead_letters_total"
MAINTAINED: Final = "kafka_telemetry_rollup_maintenance_last_success_timestamp_seconds"
FINDINGS: Final = 'kafka_telemetry_rollup_findings{kind="throttled",severity="warning"}'
HINTS: Final = 'kafka_telemetry_rollup_findings{kind="old_client",severity="info"}'
TO_PACK: Final = 'kafka_telemetry_rollup_maintenance_backlog{kind="hours_to_pack"}'

#: A job that is well, and to which all kinds of things happened long ago.
WELL: Final[Shown] = {
    "up": always(1),
    STARTED: always(NOW_S - 30 * DAY_S),
    FAILURES: always(0),
    LAG: always(20),
    DEAD_LETTERS: always(7),
    MAINTAINED: lambda minute: at_s(minute) - 30,
    TO_PACK: always(1),
    FINDINGS: always(0),
}
#: A job that starts: nothing is known yet.
STARTS: Final[Shown] = {
    "up": changes(0, 1),
    STARTED: changes(None, at_s(EVENT)),
    FAILURES: changes(None, 0),
    LAG: changes(None, math.nan),
    DEAD_LETTERS: changes(None, 0),
    MAINTAINED: lambda minute: None if minute < EVENT else at_s(minute),
}

#: Cases that fire no alert.
QUIET: Final[dict[str, Shown]] = {
    "all is well": WELL,
    "some scrapes fail": unscraped(MINUTES[EVENT : EVENT + 4], WELL),
    "Prometheus was away": {name: but_at(MINUTES[EVENT : EVENT + 20], value) for name, value in WELL.items()},
    "it starts": STARTS,
    "it reads once, without maintenance in between": WELL | {MAINTAINED: always(math.nan)},
    "another program's target is down": {"up": always(0)},
    "there is something to know about a client": WELL | {HINTS: changes(0, 3)},
    "a batch fails twice": WELL | {FAILURES: changes(0, 2)},
    "a backlog is read in minutes": WELL | {LAG: lambda minute: 3600 if EVENT <= minute < EVENT + 9 else 20},
    "the job was away and packs what it missed": WELL
    | {TO_PACK: lambda minute: 1 if minute < EVENT else max(1, 48 - (minute - EVENT))},
    "maintenance waits for a long batch": WELL
    | {MAINTAINED: lambda minute: at_s(min(minute, EVENT) if minute < EVENT + 14 else minute)},
}

#: What lasts, with the alert for it.
LASTS: Final[dict[str, tuple[str, Shown]]] = {
    "it is dead": ("KafkaTelemetryRollupDown", unscraped(MINUTES[EVENT:], WELL)),
    "PostgreSQL is away": (
        "KafkaTelemetryRollupBatchesFail",
        WELL | {FAILURES: grows_from_then_on},
    ),
    "it is too slow": (
        "KafkaTelemetryRollupLags",
        WELL | {LAG: lambda minute: 20 + 30 * grows_from_then_on(minute)},
    ),
    "maintenance fails": (
        "KafkaTelemetryRollupMaintenanceLate",
        WELL | {MAINTAINED: lambda minute: at_s(min(minute, EVENT))},
    ),
    "clients are throttled": ("KafkaTelemetryFindings", WELL | {FINDINGS: changes(0, 2)}),
    "packing is too slow": (
        "KafkaTelemetryRollupPackingLags",
        WELL | {TO_PACK: lambda minute: 1 if minute < EVENT else 7 + (minute - EVENT) // 30},
    ),
}

#: What happens once, with the alert for it, which is over again at the end.
ONCE: Final[dict[str, tuple[str, Shown]]] = {
    "a push that can't be read": (
        "KafkaTelemetryRollupDeadLetters",
        WELL | {DEAD_LETTERS: changes(7, 8)},
    ),
    "a push that can't be read in the first batch": (
        "KafkaTelemetryRollupDeadLetters",
        STARTS | {DEAD_LETTERS: changes(None, 1)},
    ),
}

CASES: Final[dict[str, Shown]] = (
    QUIET
    | {what: shown for what, (_, shown) in LASTS.items()}
    | {what: shown for what, (_, shown) in ONCE.items()}
)


@pytest.fixture(scope="module")
def fired() -> Fired:
    """By case and alert: the minutes in which it fired."""
    return alert_cases.fired(CASES, RULES)


def test_every_alert_has_a_case() -> None:
    assert {alert for alert, _ in (LASTS | ONCE).values()} == RULES.keys()


def test_the_metrics_that_are_asked_are_documented() -> None:
    asked = set(re.findall(r"kafka_telemetry_\w+", " ".join(rule["expr"] for rule in RULES.values())))
    assert asked == {name.partition("{")[0] for name in WELL} - {"up", STARTED}
    assert asked <= set(re.findall(r"^\| .*?`(kafka_telemetry_\w+)`", PAGE, re.MULTILINE))


@pytest.mark.parametrize("what", QUIET)
def test_nothing_fires_for(fired: Fired, what: str) -> None:
    assert fired[what] == {}


@pytest.mark.parametrize("what", LASTS)
def test_an_alert_fires_for(fired: Fired, what: str) -> None:
    alert, _ = LASTS[what]
    assert fired[what].keys() == {alert}
    assert ASKED[-1] in fired[what][alert]


@pytest.mark.parametrize("what", ONCE)
def test_an_alert_fires_at_once_and_ends_after(fired: Fired, what: str) -> None:
    alert, _ = ONCE[what]
    assert fired[what].keys() == {alert}
    assert EVENT in fired[what][alert]
    assert ASKED[-1] not in fired[what][alert]
