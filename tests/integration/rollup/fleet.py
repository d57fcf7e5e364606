"""A fleet with known totals: real clients, two sidecars, the job, and faults.

Producers send numbers of records that are chosen here. A client's last push tells all it did in one
of two ways: it is the terminating push, or it came after the client had been idle for two intervals
(an idle Java producer sends no terminating push). What a Java client has collected for a push that
then fails, it never sends again, so sidecars end by a drain while clients push, and by SIGKILL when
nobody does.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from tests.integration.gateway.support import (
    GatewaySidecar,
    Raw,
    api_versions,
    error_of_push,
    get_subscriptions,
    push,
    read_get,
)
from tests.testbed.broker import KafkaBroker, Listener
from tests.testbed.clients import Client, FranzClient, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.ports import free_port
from tests.testbed.postgres import Postgres
from tests.testbed.process import ScratchFolder, wait_until
from tests.testbed.rollup import Rollup
from tests.testbed.sidecar import config_for

#: Records that each producer sends, by client id: while both sidecars are there, and after one is
#: gone.
SENT: Final = {"java": 300, "librdkafka": 200, "franz-go": 100}
SENT_LATER: Final = {"java-later": 100, "librdkafka-later": 50}

#: What raw clients say that they did, of this metric.
CREATED: Final = "org.apache.kafka.producer.connection.creation.total"
RAW_VALUE: Final = 7.0
#: How old the points of one of them are.
LATE_BY_S: Final = 3 * 3600

_TOPIC: Final = "ledger"
_INTERVAL_MS: Final = 1000
_RATE: Final = 60.0
_TIMEOUT_S: Final = 600.0
_SETTINGS: Final = {"trigger_seconds": 0.5, "grace_seconds": 5.0, "log": {"format": "json"}}
_KINDS: Final[Sequence[type[Client]]] = (JavaClient, LibrdkafkaClient, FranzClient)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What is known of a fleet that has come and gone.

    Attributes:
        url: The database that the job filled.
        spool: The folder that both sidecars wrote to, everything still in it.
        consumed: Records that each consumer took, by client id, as its application counted them.
        rebalances: How often a Java consumer got partitions, by client id, as its log tells.
        connections: Connections that the sidecars accepted, by client id.
        pushes: Pushes that the sidecars answered without an error, by client id.
        kills: How often the job was killed just after a batch was in the ledger.
        between: Of these, how often Spark had not noted the batch yet.
        withheld: Files of pushes that came after everything else.
    """

    url: str
    spool: Path
    consumed: Mapping[str, int]
    rebalances: Mapping[str, int]
    connections: Mapping[str, int]
    pushes: Mapping[str, int]
    kills: int
    between: int
    withheld: int


class _Stage:
    """Everything that runs, and what may happen to it."""

    def __init__(self, stack: ExitStack) -> None:
        self.folder = stack.enter_context(ScratchFolder("fleet")).path
        self.spool = self.folder / "telemetry"
        self.postgres = stack.enter_context(Postgres())
        self.url = stack.enter_context(self.postgres.database())
        other = Listener(name="OTHER", advertised_port=free_port())
        self.broker = stack.enter_context(KafkaBroker(advertised_client_port=free_port(), listeners=[other]))
        self.broker.create_topic(_TOPIC, partitions=2)
        self.sidecars = [
            stack.enter_context(GatewaySidecar(self._config(name))) for name in ("CLIENT", "OTHER")
        ]
        for sidecar in self.sidecars:
            sidecar.put_subscription("all", ["*"], _INTERVAL_MS)
        self.rollup = stack.enter_context(Rollup(spool=self.spool, postgres=self.url, settings=_SETTINGS))
        self.kills = self.between = 0

    def _config(self, listener: str) -> dict[str, Any]:
        config = config_for(self.broker)
        config["listeners"] = [item for item in config["listeners"] if item["name"] == listener]
        # On disk before it is answered: a sidecar that is killed then owes nothing.
        spool = {"type": "spool_files", "path": str(self.spool), "roll_seconds": 1}
        config["plugins"] = [spool | {"delivery": "spool_always"}]
        config["log"] = {"requests": True}
        return config

    def client(self, kind: type[Client], mode: Mode, client_id: str, count: int | None = None) -> Client:
        """A client that may use either sidecar."""
        return kind(
            mode,
            bootstrap=",".join(
                sidecar.bootstrap(name)
                for sidecar, name in zip(self.sidecars, ("CLIENT", "OTHER"), strict=True)
            ),
            topic=_TOPIC,
            client_id=client_id,
            group=f"{_TOPIC}-{kind.language}",
            rate=_RATE,
            count=count,
        )

    def kill_between_commits(self) -> None:
        """Kill the job after its next commit, if possible before Spark's."""
        with psycopg.connect(self.url, autocommit=True) as connection:

            def newest() -> int:
                query = "SELECT batch_id FROM telemetry.ledger ORDER BY committed_at DESC LIMIT 1"
                try:
                    row = connection.execute(query).fetchone()
                except psycopg.errors.UndefinedTable:
                    return -1
                return -1 if row is None else int(row[0])

            before = newest()
            wait_until(
                lambda: newest() != before, timeout_s=_TIMEOUT_S, what="a batch in the ledger", every_s=0.01
            )
            self.rollup.kill()
            self.kills += 1
            self.between += not (self.rollup.checkpoint / "commits" / str(newest())).exists()

    def files(self) -> set[Path]:
        """The spool's published files."""
        return set(self.spool.glob("date=*/hour=*/*.parquet"))

    def withhold(self) -> dict[Path, Path]:
        """Move two files away that the dead job has not read. Return their moves."""
        seen = self.files()
        wait_until(lambda: len(self.files() - seen) >= 2, timeout_s=_TIMEOUT_S, what="new files")
        kept = {file: self.folder / file.name for file in sorted(self.files() - seen)[:2]}
        for file, place in kept.items():
            file.rename(place)
        return kept

    def wait_for_two_pushes(self, clients: Sequence[Client]) -> None:
        """Wait until each client has pushed twice since now."""

        def pushes() -> Counter[str]:
            counted: Counter[str] = Counter()
            for sidecar in self.sidecars:
                for item in sidecar.clients() if sidecar.running else ():
                    counted[item["client_id"]] += item["pushes"]
            return counted

        before = pushes()
        wait_until(
            lambda: all(pushes()[client.client_id] >= before[client.client_id] + 2 for client in clients),
            timeout_s=_TIMEOUT_S,
            what="two more pushes of each client",
        )

    def push_raw(self, client_id: str, age_s: int, *sidecars: GatewaySidecar) -> None:
        """Push the same bytes to each sidecar, like a client that got no answer."""
        metrics = _one_count(time.time_ns() - age_s * 1_000_000_000)
        instance = bytes(16)
        for number, (sidecar, name) in enumerate(zip(self.sidecars, ("CLIENT", "OTHER"), strict=True)):
            if sidecar not in sidecars:
                continue
            with Raw(sidecar.port(name)) as raw:
                raw.exchange(api_versions(3, client_id=client_id, software=("raw", "1.0")))
                _, instance, subscription = read_get(
                    raw.exchange(get_subscriptions(instance, client_id=client_id))
                )
                answer = raw.exchange(push(instance, subscription, metrics, client_id=client_id))
                assert error_of_push(answer) == 0
            # The log has a thread of its own, and the sidecar may be killed next.
            wait_until(
                lambda number=number: any(  # type: ignore[misc]
                    (number, client_id) == (at, line["client_id"])
                    for at, line in self.answered("PushTelemetry")
                ),
                timeout_s=_TIMEOUT_S,
                what=f"the push of {client_id} in the log",
            )

    def answered(self, api: str) -> list[tuple[int, dict[str, Any]]]:
        """Return successful requests from the logs, with the sidecar's number."""
        return [
            (number, line)
            for number, sidecar in enumerate(self.sidecars)
            for line in sidecar.logged("request answered")
            if line["api"] == api and line["error"] == "NONE"
        ]

    def fleet(self, consumed: Mapping[str, int], rebalances: Mapping[str, int], withheld: int) -> Fleet:
        """What is known in the end."""
        connections = {
            (number, line["connection"], line["source"]): line["client_id"]
            for number, line in self.answered("ApiVersions")
        }
        pushes = [line["client_id"] for _, line in self.answered("PushTelemetry")]
        return Fleet(
            url=self.url,
            spool=self.spool,
            consumed=consumed,
            rebalances=rebalances,
            connections=Counter(connections.values()),
            pushes=Counter(pushes),
            kills=self.kills,
            between=self.between,
            withheld=withheld,
        )


def run(stack: ExitStack) -> Fleet:
    """Let it all happen; what started is ended with ``stack``, the database too."""
    stage = _Stage(stack)
    first, last = stage.sidecars
    with ExitStack() as running:
        consumers = [
            running.enter_context(stage.client(kind, Mode.CONSUMER, f"{kind.language}-consumer"))
            for kind in _KINDS
        ]
        java, *others = [
            stage.client(kind, Mode.PRODUCER, kind.language, SENT[kind.language]) for kind in _KINDS
        ]
        producers = [running.enter_context(other) for other in others]
        consumers[0].wait_for_records(1, timeout_s=_TIMEOUT_S)
        # It joins the Java group and leaves it: at least two more rebalances for the one that was
        # there.
        with stage.client(JavaClient, Mode.CONSUMER, "java-visitor") as visitor:
            wait_until(
                lambda: "newly assigned partitions" in visitor.log_text(),
                timeout_s=_TIMEOUT_S,
                what="the visitor's partition",
            )
            producers.append(running.enter_context(java))
            java.wait_for_records(SENT[java.language], timeout_s=_TIMEOUT_S)
            visitor.stop()
            consumed = {visitor.client_id: visitor.records}
            rebalances = {visitor.client_id: _rebalances(visitor)}
        stage.kill_between_commits()
        stage.rollup.start()
        sent = sum(SENT.values())
        _wait_for_all(consumers, sent, visitor_took=consumed[visitor.client_id])
        pushing = [producer for producer in producers if producer.language != "franz-go"]
        stage.wait_for_two_pushes(pushing)
        first.terminate()
        later = [
            running.enter_context(stage.client(kind, Mode.PRODUCER, name, SENT_LATER[name]))
            for kind, name in zip(_KINDS, SENT_LATER, strict=False)
        ]
        stage.kill_between_commits()
        stage.postgres.stop()
        stage.rollup.start()
        sent += sum(SENT_LATER.values())
        _wait_for_all(consumers, sent, visitor_took=consumed[visitor.client_id])
        stage.postgres.start()
        stage.kill_between_commits()
        withheld = stage.withhold()
        stage.rollup.start()
        first.start()
        stage.wait_for_two_pushes([*later, *pushing])
        for client in (*later, *producers, *consumers):
            client.stop()
        consumed |= {consumer.client_id: consumer.records for consumer in consumers}
        rebalances[consumers[0].client_id] = _rebalances(consumers[0])
    stage.push_raw("repeated", 0, first, last)
    stage.push_raw("late", LATE_BY_S, last)
    last.kill()
    last.start()
    for sidecar in stage.sidecars:
        sidecar.terminate()
    stage.rollup.stop()
    for place, file in withheld.items():
        file.rename(place)
    again = min(stage.files() - withheld.keys())
    shutil.copy(again, again.with_name(f"again-{again.name}"))
    stage.rollup.run_once()
    return stage.fleet(consumed, rebalances, len(withheld))


def _wait_for_all(consumers: Sequence[Client], sent: int, *, visitor_took: int) -> None:
    """Wait until each group has consumed all records."""
    for number, consumer in enumerate(consumers):
        consumer.wait_for_records(sent if number else sent - visitor_took, timeout_s=_TIMEOUT_S)


def _rebalances(consumer: Client) -> int:
    return consumer.log_text().count("Successfully synced group in generation")


def _one_count(time_ns: int) -> bytes:
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.name = CREATED
    metric.sum.is_monotonic = True
    metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    metric.sum.data_points.add(
        start_time_unix_nano=time_ns - 1_000_000_000, time_unix_nano=time_ns, as_double=RAW_VALUE
    )
    return data.SerializeToString()
