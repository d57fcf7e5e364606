"""A made-up fleet behind the real REST application, for a browser."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from receiver.settings.rest import RestSettings
from receiver.store.sqlite import SqliteSubscriptionStore
from receiver.telemetry.identity import Via
from receiver.telemetry.subscription import Subscription
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from tests.unit.api.conftest import Api, ask, connection, instance_id, token_settings
from tests.unit.telemetry.otlp_parts import gauge, resource_metrics
from tests.unit.telemetry.otlp_parts import push as otlp_push

SOFTWARE: Final = (
    ("apache-kafka-java", "4.4.0"),
    ("apache-kafka-java", "3.8.0"),
    ("librdkafka", "2.16.0"),
    ("franz-go", "1.22.2"),
    ("confluent-kafka-python", "2.6.0-librdkafka-2.6.0"),
)
#: Markup, text that turns its direction, control characters, and what no screen can show.
HOSTILE: Final = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "\u202egnp.sredro\u0000\u200b",
    "x" * 32_000,
    "",
)
#: The second one needs a value that the clients lack.
LINKS: Final = (
    {"name": "Grafana", "url": "https://grafana.example/d/client?var-client={client_id}&p={principal}"},
    {"name": "Traces", "url": "https://traces.example/{transactional_id}"},
)
#: What the roll-up knows, with text that a client has chosen.
FINDINGS: Final[tuple[dict[str, Any], ...]] = (
    {
        "kind": "throttled",
        "severity": "critical",
        "client_id": "orders-13",
        "principal": "User:team-6",
        "began_at": "2026-11-30T18:02:00+00:00",
        "summary": "the brokers delayed it by up to 250 ms",
        "client_ids": {"count": 12, "first": ["orders-13", "orders-17"]},
        "principals": {"count": 1, "first": ["User:team-6"]},
        "owners": {"count": 1, "first": ["payments"]},
        "advice": [
            {
                "rule": "quota",
                "now": "250 ms in 5 minutes",
                "change": {"all": "producer_byte_rate"},
                "why": "<b>The quota is below what it sends</b>",
                "source": "https://kafka.apache.org/documentation/#design_quotas",
                "cannot_see": "the quota",
            }
        ],
    },
)
#: The number of the client that is throttled.
THROTTLED: Final = 13


def _metrics(*, throttled_ms: float) -> bytes:
    """A push of a producer."""
    values = {
        "produce.throttle.time.max": throttled_ms,
        "request.latency.avg": 3.5,
        "record.send.rate": 120.0,
    }
    return otlp_push(
        resource_metrics(
            *(gauge(f"org.apache.kafka.producer.{name}", value) for name, value in values.items())
        )
    )


def fleet(folder: Path, clients: int, *, guarded: bool = False) -> Api:
    """Return an API with so many clients; the first have hostile ids, and three of four push."""
    facts = {"bind": "127.0.0.1:0", "links": LINKS}
    settings = token_settings(links=LINKS) if guarded else RestSettings.model_validate(facts)
    api = Api(SqliteSubscriptionStore(folder / "subscriptions.db"), clock=time.monotonic, settings=settings)  # type: ignore[arg-type]  # it only reads it
    if clients:
        for name, pattern in (("producers", "orders-.*"), ("nobody", "nobody-.*")):
            prefixes = ("org.apache.kafka.producer.",)
            api.store.put(
                Subscription(name=name, metrics=prefixes, interval_ms=60_000, match={"client_id": pattern})
            )
    return api


def populate(api: Api, clients: int) -> None:
    """Let the clients ask and push, once the API has loaded its subscriptions."""
    for number in range(clients):
        name, version = SOFTWARE[number % len(SOFTWARE)]
        facts = {
            "client_id": HOSTILE[number] if number < len(HOSTILE) else f"orders-{number}",
            "client_software_name": name,
            "client_software_version": version,
            "principal": f"User:team-{number % 7}",
            "client_instance_id": instance_id(number + 2),
        }
        api.connections.append(connection(number + 2, **facts))
        answer = ask(api.telemetry, number + 2, api.clock(), **facts).response
        if number % 4:
            push = PushTelemetryRequest(
                client_instance_id=instance_id(number + 2),
                subscription_id=answer.subscription_id,
                metrics=_metrics(throttled_ms=250.0 if number == THROTTLED else 0.0),
            )
            api.telemetry.push_telemetry(
                connection(number + 2, **facts), push, now=api.clock() + 1, received_at_ns=time.time_ns()
            )


def bridge(api: Api) -> None:
    """Let a further client push by a bridge."""
    identity = connection(0, client_id="by-bridge", via=Via.BRIDGE)
    push = PushTelemetryRequest(client_instance_id=instance_id(1_000), metrics=_metrics(throttled_ms=0.0))
    api.telemetry.accept(identity, push, now=api.clock(), received_at_ns=time.time_ns(), interval_ms=300_000)
