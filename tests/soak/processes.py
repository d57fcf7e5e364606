"""``python -m tests.soak.processes`` kills core and relays under the traffic of real clients.

A Java, a librdkafka and a franz-go producer send through the sidecar, and a consumer of each
library reads everything. The core is killed with SIGKILL every 20 s and a relay every 60 s.
Numbered pushes go to a plugin with ``delivery: spool_always`` meanwhile. Exit status 1 if a record
or an accepted push is lost, or if a client reports an error that no killed relay explains.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from tests.soak.delivery import arrivals, kill, resident_bytes
from tests.soak.load import NumberedClients
from tests.testbed.broker import KafkaBroker
from tests.testbed.clients import Client, FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.collector import Collector
from tests.testbed.ports import free_port
from tests.testbed.process import WaitTimeoutError, wait_until
from tests.testbed.sidecar import Sidecar, config_for

_TOPIC = "soak"
_INTERVAL_MS = 500
_RELAYS: Final = ("kct-relay-1", "kct-relay-2")

#: A request for each record; an idempotent producer writes no record twice when it sends it again.
_PRODUCERS: Final[Sequence[tuple[type[Client], Mapping[str, str]]]] = (
    (JavaClient, {"linger.ms": "0", "max.in.flight.requests.per.connection": "5"}),
    (LibrdkafkaClient, {"linger.ms": "0", "enable.idempotence": "true"}),
    (FranzClient, {}),
)

#: Seconds after the kill of a relay in which a client may report its lost connections.
_EXPLAINED_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Parameters of a run.

    Attributes:
        seconds: How long processes are killed.
        rate: Records a second of each producer.
        core_every_s: Seconds between two kills of the core.
        relay_every_s: Seconds between two kills of a relay.
        numbered_clients: Client instances that push numbered metrics, each every 500 ms.
    """

    seconds: float
    rate: float
    core_every_s: float = 20.0
    relay_every_s: float = 60.0
    numbered_clients: int = 20


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The result of a run.

    Attributes:
        produced: Acknowledged records, by client id.
        consumed: Records that were read, by client id.
        errors: What clients reported, by client id.
        unexplained: Of these, those that no killed relay explains.
        accepted: Pushes that were answered NONE.
        throttled: Pushes that were answered with an error.
        lost: When each accepted push that never arrived was answered, in seconds since the epoch.
        core_kills: When the core was killed.
        relay_kills: How often a relay was.
        resident_bytes: Resident memory of all processes, sampled once a second.
    """

    produced: dict[str, int] = field(default_factory=dict)
    consumed: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    unexplained: list[str] = field(default_factory=list)
    accepted: int = 0
    throttled: int = 0
    lost: list[float] = field(default_factory=list)
    core_kills: list[float] = field(default_factory=list)
    relay_kills: int = 0
    resident_bytes: list[int] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether nothing was lost and every error is explained."""
        total = sum(self.produced.values())
        return (
            total > 0
            and self.accepted > 0
            and not self.lost
            and not self.unexplained
            and all(count == total for count in self.consumed.values())
        )


def run(broker: KafkaBroker, plan: Plan) -> Outcome:
    """Run it; the broker must advertise a port for the sidecar."""
    outcome = Outcome()
    broker.create_topic(_TOPIC)
    with ExitStack() as stack:
        collector = stack.enter_context(Collector())
        sidecar = stack.enter_context(Sidecar(_config(broker, collector)))
        sidecar.put_subscription("soak", ["*"], _INTERVAL_MS)
        bootstrap = sidecar.bootstrap()
        producers: list[Client] = []
        consumers: list[Client] = []
        for library, properties in _PRODUCERS:
            consumers.append(stack.enter_context(library(Mode.CONSUMER, bootstrap=bootstrap, topic=_TOPIC)))
            producer = library(
                Mode.PRODUCER, bootstrap=bootstrap, topic=_TOPIC, rate=plan.rate, properties=properties
            )
            producers.append(stack.enter_context(producer))
        clients = [*producers, *consumers]
        for client in clients:
            client.wait_for_records(int(plan.rate))
        with NumberedClients(sidecar.port(), plan.numbered_clients) as numbered:
            _kill_in_turn(plan, sidecar, clients, outcome)
        for producer in producers:
            producer.stop()
        outcome.produced = {item.client_id: item.records for item in producers}
        total = sum(outcome.produced.values())
        for consumer in consumers:
            with contextlib.suppress(WaitTimeoutError):  # the outcome shows what is missing
                consumer.wait_for_records(total)
            consumer.stop()
        outcome.consumed = {item.client_id: item.records for item in consumers}
        outcome.errors = {item.client_id: len(item.errors) for item in clients}
        wait_until(sidecar.is_ready, timeout_s=60, what="the core after the last kill")
        there = arrivals(collector, numbered.accepted.keys(), _tell, "spool_always")
        outcome.accepted = len(numbered.accepted)
        outcome.throttled = sum(numbered.refused.values())
        outcome.lost = [at for number, at in numbered.accepted.items() if number not in there]
    return outcome


def _config(broker: KafkaBroker, collector: Collector) -> dict[str, object]:
    config = config_for(broker)
    config["gateway"] = {"relays": len(_RELAYS)}
    config["plugins"] = [
        {
            "type": "otlp",
            "endpoint": collector.grpc_endpoint,
            "delivery": "spool_always",
            "retry": {"initial_ms": 100, "max_ms": 500, "max_elapsed_s": 0},
        }
    ]
    # All clients come from one address.
    config["limits"] = {"source_address": {"telemetry_requests_per_second": None, "core_ms_per_second": None}}
    return config


def _kill_in_turn(plan: Plan, sidecar: Sidecar, clients: Sequence[Client], outcome: Outcome) -> None:
    began = time.monotonic()
    next_core, next_relay = plan.core_every_s, plan.relay_every_s
    relays = itertools.cycle(_RELAYS)
    relay_killed = float("-inf")
    seen = {client.client_id: len(client.errors) for client in clients}
    while (passed := time.monotonic() - began) < plan.seconds:
        if passed >= next_core:
            kill(sidecar, "kct-core")
            outcome.core_kills.append(time.time())
            next_core += plan.core_every_s
        if passed >= next_relay:
            kill(sidecar, next(relays))
            outcome.relay_kills += 1
            relay_killed = time.monotonic()
            next_relay += plan.relay_every_s
        time.sleep(1.0)
        outcome.resident_bytes.append(resident_bytes(sidecar.pid))
        for client in clients:
            new = client.errors[seen[client.client_id] :]
            seen[client.client_id] += len(new)
            if time.monotonic() - relay_killed > _EXPLAINED_S:
                outcome.unexplained += [f"{passed:.0f} s: {client.client_id}: {error}" for error in new]
        if int(passed) % 10 == 0:
            _tell(
                f"{passed:4.0f} s: {sum(client.records for client in clients)} records written and read, "
                f"{len(outcome.core_kills)} cores and {outcome.relay_kills} relays killed"
            )


def main() -> int:
    """Run it and report."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.processes", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long processes are killed")
    parser.add_argument("--rate", type=float, default=1000.0, help="records a second of each producer")
    options = parser.parse_args()
    with KafkaBroker(advertised_client_port=free_port()) as broker:
        outcome = run(broker, Plan(seconds=options.minutes * 60, rate=options.rate))
    _report(outcome, options.minutes * 60)
    return 0 if outcome.passed else 1


def _report(outcome: Outcome, seconds: float) -> None:
    _tell(f"{len(outcome.core_kills)} cores and {outcome.relay_kills} relays killed")
    for client_id, count in outcome.produced.items():
        _tell(f"{client_id:22} wrote {count} records ({count / seconds:.0f} a second)")
    for client_id, count in outcome.consumed.items():
        _tell(f"{client_id:22} read {count} records")
    _tell(f"errors reported: {outcome.errors}; unexplained: {outcome.unexplained or 'none'}")
    _tell(f"pushes: {outcome.accepted} accepted, {outcome.throttled} refused, {len(outcome.lost)} lost")
    for at in outcome.lost:
        nearest = min((at - killed for killed in outcome.core_kills), key=abs, default=0.0)
        _tell(f"lost: a push answered {nearest:+.3f} s from the kill of a core")
    memory = outcome.resident_bytes
    tenth = max(1, len(memory) // 10)
    first, last = memory[tenth : 2 * tenth] or memory, memory[-tenth:]
    _tell(
        f"resident MiB: {max(first) >> 20} in the second tenth, {max(last) >> 20} in the last, "
        f"{max(memory) >> 20} at most"
    )


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
