"""Each receiver alert fires for its cause and nothing else, in a real Prometheus."""

from __future__ import annotations

import re
from typing import Final

import pytest

from receiver.gateway.listeners.admission import RefusalReason
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
    grows,
    grows_from_then_on,
    unscraped,
)

RULES: Final = alert_cases.rules("receiver")

READY: Final = "kafka_telemetry_ready"
REFUSED: Final = 'kafka_telemetry_connections_refused_total{listener="CLIENT",reason="%s"}'
CLOSED: Final = 'kafka_telemetry_connections_closed_total{listener="CLIENT",reason="%s"}'
MALFORMED: Final = 'kafka_telemetry_protocol_errors_total{listener="CLIENT",reason="client_protocol_error"}'
PUSHES: Final = 'kafka_telemetry_pushes_total{client_software_name="%s",outcome="%s"}'
DROPPED: Final = 'kafka_telemetry_plugin_dropped_pushes_total{plugin="otlp",reason="%s",type="otlp"}'
PLUGIN: Final = 'kafka_telemetry_plugin_%s{plugin="otlp",type="otlp"}'
CIRCUIT: Final = 'kafka_telemetry_plugin_circuit{plugin="otlp",state="%s",type="otlp"}'
PUSHES_NOT_STORED: Final = "kafka_telemetry_pushes_not_stored_total"
OVERFLOWED: Final = "kafka_telemetry_overflowed_points_total"
EVICTED: Final = "kafka_telemetry_instances_evicted_total"
WARNINGS: Final = 'kafka_telemetry_warnings{kind="%s"}'
STALE: Final = "kafka_telemetry_subscriptions_stale"
RELOADED: Final = "kafka_telemetry_config_last_reload_successful"
OPENED: Final = 'kafka_telemetry_connections_opened_total{listener="CLIENT"}'
TRAFFIC: Final = 'kafka_telemetry_traffic_bytes_total{direction="to_clients",principal="User:ann"}'
LAST_USED: Final = 'kafka_telemetry_principal_last_used_timestamp_seconds{principal="User:ann"}'
NEW_NETWORKS: Final = 'kafka_telemetry_principal_new_networks_total{principal="User:ann"}'
CERTIFICATE: Final = (
    'kafka_telemetry_tls_certificate_expiry_timestamp_seconds{listener="CLIENT",side="client"}'
)

#: A sidecar that is well, is asked by a health check, and to which all kinds of things happened
#: long ago.
WELL: Final[Shown] = {
    "up": always(1),
    STARTED: always(NOW_S - 30 * DAY_S),
    READY: always(1),
    "kafka_telemetry_draining": always(0),
    REFUSED % "gone": grows,
    REFUSED % "limit": always(3),
    CLOSED % "client_closed": grows,
    CLOSED % "internal_error": always(1),
    CLOSED % "held_bytes": always(1),
    MALFORMED: always(1),
    PUSHES % ("java", "NONE"): grows,
    PUSHES % ("java", "INVALID_RECORD"): always(2),
    PUSHES % ("java", "TELEMETRY_TOO_LARGE"): always(2),
    DROPPED % "queue_full": always(0),
    DROPPED % "permanent": always(7),
    PLUGIN % "lag_seconds": always(1),
    CIRCUIT % "closed": always(1),
    PLUGIN % "spool_bytes": always(10),
    PLUGIN % "spool_max_bytes": always(100),
    'kafka_telemetry_plugin_spool_bytes{plugin="console",type="console"}': always(0),
    'kafka_telemetry_plugin_spool_max_bytes{plugin="console",type="console"}': always(0),
    PLUGIN % "spool_problem": always(0),
    PLUGIN % "call_seconds": always(0.1),
    PUSHES_NOT_STORED: always(4),
    OVERFLOWED: always(5),
    EVICTED: always(6),
    STALE: always(0),
    WARNINGS % "bypass": always(0),
    WARNINGS % "plugin": always(1),
    RELOADED: always(1),
    CERTIFICATE: always(NOW_S + 60 * DAY_S),
    OPENED: grows,
    TRAFFIC: grows,
    LAST_USED: always(NOW_S - 29 * DAY_S),
    NEW_NETWORKS: always(2),
}


#: Cases that fire no alert.
QUIET: Final[dict[str, Shown]] = {
    "all is well": WELL,
    "it stops": WELL | {READY: changes(1, 0), "kafka_telemetry_draining": changes(0, 1)},
    "one scrape fails": unscraped(MINUTES[EVENT : EVENT + 1], WELL),
    "Prometheus was away": {name: but_at(MINUTES[EVENT : EVENT + 20], value) for name, value in WELL.items()},
    "Prometheus is new": {name: but_at(MINUTES[:EVENT], value) for name, value in WELL.items()},
    "it is started again": unscraped(MINUTES[EVENT : EVENT + 1], WELL)
    | {
        STARTED: but_at(MINUTES[EVENT : EVENT + 1], changes(NOW_S - 30 * DAY_S, at_s(EVENT))),
        CLOSED % "internal_error": changes(1, None),
        CLOSED % "held_bytes": changes(1, None),
        NEW_NETWORKS: changes(2, None),
        PUSHES % ("java", "INVALID_RECORD"): changes(2, None),
        PUSHES % ("java", "TELEMETRY_TOO_LARGE"): changes(2, None),
        PUSHES_NOT_STORED: but_at(MINUTES[EVENT : EVENT + 1], changes(4, 0)),
        DROPPED % "permanent": but_at(MINUTES[EVENT : EVENT + 1], changes(7, 0)),
    },
    "another program's target is down": {"up": always(0)},
    "one client is refused": WELL | {REFUSED % "tls_handshake": changes(None, 1)},
    "a probe without TLS comes every ten seconds": WELL
    | {REFUSED % "tls_handshake": lambda minute: 6 * grows_from_then_on(minute)},
    "three handshakes fail a minute": WELL
    | {REFUSED % "tls_handshake": lambda minute: 3 * grows_from_then_on(minute)},
    "a destination is away for a minute": WELL
    | {
        CIRCUIT % "closed": but_at(MINUTES[EVENT : EVENT + 1], always(1)),
        CIRCUIT % "open": lambda minute: 1 if minute == EVENT else None,
    },
    "one push is in time for the next call": WELL | {PLUGIN % "lag_seconds": always(299)},
}

#: What lasts, with the alert for it.
LASTS: Final[dict[str, tuple[str, Shown]]] = {
    "the broker is away": ("KafkaTelemetryNotReady", WELL | {READY: changes(1, 0)}),
    "it is dead": ("KafkaTelemetryDown", unscraped(MINUTES[EVENT:], WELL)),
    **{
        f"clients are refused: {reason}": (
            "KafkaTelemetryConnectionsRefused",
            WELL | {REFUSED % reason: lambda minute: 60 * grows_from_then_on(minute)},
        )
        for reason in RefusalReason
        if reason != RefusalReason.GONE
    },
    "a listener is scanned": ("KafkaTelemetryProtocolErrors", WELL | {MALFORMED: grows_from_then_on}),
    "a destination is away": (
        "KafkaTelemetryDeliveryLags",
        WELL | {PLUGIN % "lag_seconds": lambda minute: 60 * grows_from_then_on(minute)},
    ),
    "a circuit is open, with a trial now and then": (
        "KafkaTelemetryCircuitOpen",
        WELL
        | {
            CIRCUIT % "closed": changes(1, None),
            CIRCUIT % "open": lambda minute: 1 if minute >= EVENT and minute % 2 else None,
            CIRCUIT % "half_open": lambda minute: 1 if minute >= EVENT and not minute % 2 else None,
        },
    ),
    "a spool fills": ("KafkaTelemetrySpoolNearlyFull", WELL | {PLUGIN % "spool_bytes": changes(10, 81)}),
    "a disk is read-only": ("KafkaTelemetrySpoolProblem", WELL | {PLUGIN % "spool_problem": changes(0, 1)}),
    "a plugin hangs": (
        "KafkaTelemetryPluginHangs",
        WELL | {PLUGIN % "call_seconds": lambda minute: 60 * grows_from_then_on(minute)},
    ),
    "a client is over budget": ("KafkaTelemetryOverBudget", WELL | {OVERFLOWED: grows_from_then_on}),
    "there are too many instances": (
        "KafkaTelemetryInstancesEvicted",
        WELL | {EVICTED: grows_from_then_on},
    ),
    "subscriptions can't be followed": (
        "KafkaTelemetrySubscriptionsStale",
        WELL | {STALE: always(1)},
    ),
    "clients pass by": ("KafkaTelemetryWarns", WELL | {WARNINGS % "bypass": always(1)}),
    "a reload is refused": (
        "KafkaTelemetryReloadRefused",
        WELL | {RELOADED: always(0)},
    ),
    "clients reconnect in a loop": (
        "KafkaTelemetryConnectionStorm",
        WELL | {OPENED: lambda minute: 3_000 * grows_from_then_on(minute)},
    ),
    "a principal reads much": (
        "KafkaTelemetryTrafficJumps",
        WELL | {TRAFFIC: lambda minute: 120e6 * grows_from_then_on(minute)},
    ),
    "a credential is forgotten": (
        "KafkaTelemetryCredentialUnused",
        WELL | {LAST_USED: always(NOW_S - 31 * DAY_S)},
    ),
    "a certificate ends": (
        "KafkaTelemetryCertificateEnds",
        WELL | {CERTIFICATE: always(NOW_S + 13 * DAY_S)},
    ),
}

#: What happens once, with the alert for it, which is over again at the end.
ONCE: Final[dict[str, tuple[str, Shown]]] = {
    "the first internal error": (
        "KafkaTelemetryInternalError",
        WELL | {CLOSED % "internal_error": changes(None, 1)},
    ),
    "another internal error": (
        "KafkaTelemetryInternalError",
        WELL | {CLOSED % "internal_error": changes(1, 2)},
    ),
    "the first slow reader that is closed": (
        "KafkaTelemetryClosesForMemory",
        WELL | {CLOSED % "held_bytes": changes(None, 1)},
    ),
    "another slow reader that is closed": (
        "KafkaTelemetryClosesForMemory",
        WELL | {CLOSED % "held_bytes": changes(1, 2)},
    ),
    "the first invalid push": (
        "KafkaTelemetryInvalidPushes",
        WELL | {PUSHES % ("librdkafka", "INVALID_RECORD"): changes(None, 1)},
    ),
    "another invalid push": (
        "KafkaTelemetryInvalidPushes",
        WELL | {PUSHES % ("java", "INVALID_RECORD"): changes(2, 3)},
    ),
    "an invalid push after a start": (
        "KafkaTelemetryInvalidPushes",
        WELL | {PUSHES % ("java", "INVALID_RECORD"): but_at(MINUTES[EVENT - 70 : EVENT], changes(2, 1))},
    ),
    "the first push that is too large": (
        "KafkaTelemetryPushesTooLarge",
        WELL | {PUSHES % ("librdkafka", "TELEMETRY_TOO_LARGE"): changes(None, 1)},
    ),
    "a burst that is dropped": (
        "KafkaTelemetryPushesDropped",
        WELL | {DROPPED % "queue_full": changes(0, 50)},
    ),
    "a spool that was found damaged at the start": (
        "KafkaTelemetryPushesDropped",
        {
            "up": changes(0, 1),
            STARTED: changes(None, at_s(EVENT)),
            READY: changes(None, 1),
            DROPPED % "spool_damaged": changes(None, 9),
        },
    ),
    "a credential that is used elsewhere": (
        "KafkaTelemetryCredentialFromNewNetwork",
        WELL | {NEW_NETWORKS: changes(2, 3)},
    ),
    "a disk that was slow for a moment": (
        "KafkaTelemetryPushesNotStored",
        WELL | {PUSHES_NOT_STORED: changes(4, 5)},
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
    asked = " ".join(rule["expr"] for rule in RULES.values())
    assert set(re.findall(r"kafka_telemetry_\w+", asked)) <= {name.partition("{")[0] for name in WELL}


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


def test_an_open_circuit_is_an_alert_after_two_minutes(fired: Fired) -> None:
    open_circuit = fired["a circuit is open, with a trial now and then"]
    assert min(open_circuit["KafkaTelemetryCircuitOpen"]) == EVENT + 2
