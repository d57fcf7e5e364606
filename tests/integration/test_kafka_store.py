"""The store of subscriptions on a real broker: writes, reads, records, faults."""

from __future__ import annotations

import contextlib
import gc
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from receiver.settings.subscriptions import KafkaStoreSettings
from receiver.store.files import FileSubscriptionStore
from receiver.store.kafka import KafkaSubscriptionStore
from receiver.store.kafka_cluster import Cluster, RefusedError
from receiver.store.kafka_format import Entry, join, split, split_complete
from receiver.store.sqlite import SqliteSubscriptionStore
from receiver.store.store import StoreError
from receiver.telemetry.subscription import Subscription
from receiver.telemetry.subscription_document import to_document
from tests.integration.gateway.support import GatewaySidecar, config
from tests.testbed.broker import KafkaBroker, Listener
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.older_broker import OlderBroker
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import wait_until
from tests.unit.hostile_values import TEXTS, TIMES, nested

# kafka-python leaves the sockets of connections that fail to the garbage collector. A test below
# checks that the store does not let them pile up.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

_WITHIN_S = 120.0


@pytest.fixture(autouse=True)
def sockets_of_the_library() -> Iterator[None]:
    yield
    gc.collect()


def settings_of(
    bootstrap: str, topic: str = "subscriptions", options: Mapping[str, Any] | None = None
) -> KafkaStoreSettings:
    return KafkaStoreSettings.model_validate(
        {"bootstrap_servers": bootstrap, "topic": topic, "options": dict(options or {})}
    )


@pytest.fixture
def settings(broker: KafkaBroker, request: pytest.FixtureRequest) -> Iterator[KafkaStoreSettings]:
    """The shared broker with a topic of the test's own, and no resources before and after it."""
    settings = settings_of(broker.internal_bootstrap, f"subscriptions-{request.node.name[:100]}")
    _empty(settings)
    yield settings
    # Records stay: the topic is of this test alone, and may hold anything.
    _empty(settings_of(broker.internal_bootstrap, "no-records"))


def _empty(settings: KafkaStoreSettings) -> None:
    with contextlib.closing(Cluster(settings)) as cluster:
        for name, entry in cluster.read().items():
            if entry.configs is not None:
                cluster.delete(name)


@contextlib.contextmanager
def following(settings: KafkaStoreSettings, copy: Path) -> Iterator[KafkaSubscriptionStore]:
    store = KafkaSubscriptionStore(settings, copy)
    store.follow(lambda: None)
    try:
        yield store
    finally:
        store.close()


def become(holds: Callable[[], bool], what: str) -> None:
    wait_until(holds, timeout_s=_WITHIN_S, what=what)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def sub(
    name: str, *metrics: str, match: Mapping[str, str] | None = None, interval_ms: int = 1000
) -> Subscription:
    return Subscription(name=name, metrics=metrics, interval_ms=interval_ms, match=match or {})


ALL = (
    sub("a b/é", "x."),
    sub("all", "*"),
    sub("beside", "x.", match={"client_id": "a{1,3}", "client_source_port": "1"}),
    sub("none"),
    sub("only RE2", "x.", match={"client_id": "(?P<name>a)"}),
)


def test_two_receivers_have_the_same_subscriptions(settings: KafkaStoreSettings, tmp_path: Path) -> None:
    with (
        following(settings, tmp_path / "one.json") as one,
        following(settings, tmp_path / "two.json") as two,
    ):
        for subscription in ALL:
            one.put(subscription)
        assert one.load_all() == ALL
        become(lambda: two.load_all() == ALL, "the other's subscriptions")
        two.put(sub("none", "y."))
        two.delete("only RE2")
        changed = tuple(sub("none", "y.") if each.name == "none" else each for each in ALL[:4])
        become(lambda: one.load_all() == changed, "a change and a deletion")
        assert one.status().problem is None
    # Both have a copy, which is in force before the broker is asked.
    for name in ("one.json", "two.json"):
        again = KafkaSubscriptionStore(settings, tmp_path / name)
        assert again.load_all() == changed
        assert "not read since the start" in str(again.status().problem)


@pytest.mark.full
def test_a_refresh_knows_what_others_have_written(settings: KafkaStoreSettings, tmp_path: Path) -> None:
    # Neither follows, so neither knows of the other by itself.
    with (
        contextlib.closing(KafkaSubscriptionStore(settings, tmp_path / "one.json")) as one,
        contextlib.closing(KafkaSubscriptionStore(settings, tmp_path / "two.json")) as two,
    ):
        for number in range(5):
            # Each writes just after the other, while a broker might still answer what was before.
            for writer, reader in ((one, two), (two, one)):
                written = sub("both", f"{number}.", match={"client_id": f"{id(writer)}{{1,3}}"})
                writer.put(written)
                assert writer.load_all() == (written,)
                become(lambda: refreshed(reader) == (written,), "the other's change")  # noqa: B023
        one.delete("both")
        become(lambda: refreshed(two) == (), "the other's deletion")


def refreshed(store: KafkaSubscriptionStore) -> tuple[Subscription, ...]:
    store.refresh()
    return store.load_all()


def test_a_refresh_without_brokers_is_an_error(tmp_path: Path) -> None:
    settings = settings_of(f"{LOOPBACK}:{free_port()}")
    with (
        contextlib.closing(KafkaSubscriptionStore(settings, tmp_path / "copy.json")) as store,
        pytest.raises(StoreError, match="cannot be connected to"),
    ):
        store.refresh()


#: Kafka's tools would show these too.
ODD_NAMES = (
    ".",
    "..",
    "<default>",
    "a,b=c",
    'a"b\\c',
    "a/../b?c#d%2F",
    " leading and trailing ",
    "ünï\N{ROCKET}",
    "x" * 255,
)


def test_odd_names_are_the_same_in_every_store(settings: KafkaStoreSettings, tmp_path: Path) -> None:
    kept = tuple(sorted((sub(name, "x.") for name in ODD_NAMES), key=lambda one: one.name))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/odd.json").write_text(json.dumps([to_document(item) for item in kept]))
    assert FileSubscriptionStore(tmp_path / "folder").load_all() == kept
    with contextlib.closing(SqliteSubscriptionStore(tmp_path / "s.db")) as sqlite:
        for item in kept:
            sqlite.put(item)
        assert sqlite.load_all() == kept
    with contextlib.closing(KafkaSubscriptionStore(settings, tmp_path / "one.json")) as kafka:
        for item in kept:
            kafka.put(item)
        become(lambda: refreshed(kafka) == kept, "all names")
    assert KafkaSubscriptionStore(settings, tmp_path / "one.json").load_all() == kept


@pytest.mark.full
def test_a_write_without_following_reads_first(settings: KafkaStoreSettings, tmp_path: Path) -> None:
    with contextlib.closing(KafkaSubscriptionStore(settings, tmp_path / "copy.json")) as store:
        store.put(ALL[2])
    with contextlib.closing(KafkaSubscriptionStore(settings, tmp_path / "other.json")) as other:
        other.delete("beside")
    with contextlib.closing(Cluster(settings)) as cluster:
        assert cluster.read() == {}


@pytest.mark.full
def test_a_record_goes_with_its_resource(
    settings: KafkaStoreSettings, broker: KafkaBroker, tmp_path: Path
) -> None:
    with following(settings, tmp_path / "copy.json") as store:
        store.put(ALL[2])
        become(lambda: store.status().problem is None, "a read")
        broker.alter_client_metrics("beside", ["z."], 500)  # it keeps the record
        edited = sub("beside", "z.", match={"client_id": "a{1,3}"}, interval_ms=500)
        become(lambda: store.load_all() == (edited,), "the tool's edit")

        broker.delete_client_metrics("beside")
        become(lambda: store.load_all() == (), "the deletion")
        with contextlib.closing(Cluster(settings)) as cluster:
            become(lambda: cluster.read() == {}, "the record's end")
        broker.alter_client_metrics("beside", ["z."], 500)
        become(lambda: store.load_all() == (sub("beside", "z.", interval_ms=500),), "a new one")


def test_a_subscription_that_cannot_be_used_stays_as_it_was(
    settings: KafkaStoreSettings, broker: KafkaBroker, tmp_path: Path
) -> None:
    with following(settings, tmp_path / "copy.json") as store:
        store.put(sub("a", "x."))
        become(lambda: store.status().problem is None, "a read")
        broker.alter_client_metrics("a", ["y."], 1000, {"client_id": "(?!no RE2)"})
        broker.alter_client_metrics("b", ["not a prefix"], 1000)
        broker.alter_client_metrics("c", ["z."], 1000)
        become(lambda: store.status().failures > 0 and len(store.load_all()) == 2, "both problems")
        assert store.load_all() == (sub("a", "x."), sub("c", "z."))
        become(lambda: "2 subscriptions can't be used" in str(store.status().problem), "its number")
        store.put(sub("a", "w."))
        store.delete("b")
        become(lambda: store.status().problem is None, "their correction")
        assert store.load_all() == (sub("a", "w."), sub("c", "z."))


def test_what_is_too_much_for_clients_changes_nothing_that_is_in_force(
    settings: KafkaStoreSettings, tmp_path: Path
) -> None:
    with (
        following(settings, tmp_path / "copy.json") as store,
        contextlib.closing(Cluster(settings)) as cluster,
    ):
        store.put(sub("z", "x."))
        become(lambda: store.status().problem is None, "a read")
        for number in range(5):
            metrics = ",".join(f"p{number}.{each}." for each in range(249))
            cluster.write(f"s{number}", Entry(configs={"metrics": metrics, "interval.ms": "1000"}))
        become(lambda: "can't be used; the log has them: 's" in str(store.status().problem), "the bound")
        assert len(store.load_all()) == 5
        assert store.load_all()[-1] == sub("z", "x.")
        cluster.read()
        cluster.delete("s0")
        become(lambda: store.status().problem is None, "one less")
        assert len(store.load_all()) == 5


@pytest.mark.full
def test_a_receiver_that_is_ready_has_read_the_cluster(
    settings: KafkaStoreSettings, broker: KafkaBroker, tmp_path: Path
) -> None:
    broker.alter_client_metrics("early", ["x."], 1000)
    store = {"store": "kafka", "path": str(tmp_path / "copy.json")}
    kafka = {"bootstrap_servers": str(settings.bootstrap_servers), "topic": settings.topic}
    upstream = int(broker.bootstrap.rpartition(":")[2])
    with GatewaySidecar(config(upstream, subscriptions={**store, "kafka": kafka})) as sidecar:
        (item,) = sidecar.http.get("/v1/subscriptions").json()["items"]
        assert item["name"] == "early"
        assert not [warning for warning in sidecar.warnings() if "subscription" in warning]


def test_a_record_with_any_value_costs_itself_alone(settings: KafkaStoreSettings, tmp_path: Path) -> None:
    with (
        following(settings, tmp_path / "copy.json") as store,
        contextlib.closing(Cluster(settings)) as cluster,
    ):
        store.put(sub("a", "x."))
        become(lambda: store.status().problem is None, "a read")
        cluster.read()
        configs = {"metrics": "y.", "interval.ms": "1000"}
        hostile: dict[str, dict[str, object]] = {
            "deep": {"labels": nested(300)},
            "late": {"expires_at": TIMES[0]},
            "early": {"expires_at": TIMES[1]},
            "path": {TEXTS[-3]: 1},
        }
        for name, beside in hostile.items():
            cluster.write(name, Entry(configs=configs, beside=beside))
        changed_at = {"changed_at": TIMES[0]}  # not an operator's value, so it is left out
        cluster.write("shown", Entry(configs=configs, beside=changed_at))
        # The last record may come with a later read than those before it.
        become(lambda: store.load_all() == (sub("a", "x."), sub("shown", "y.")), "the last record")
        become(lambda: "4 subscriptions can't be used" in str(store.status().problem), "all problems")
        assert all(to_document(item) for item in store.load_all())
        for name in hostile:
            cluster.delete(name)
        become(lambda: store.status().problem is None, "the thread goes on")


def test_what_the_broker_refuses_is_said(settings: KafkaStoreSettings) -> None:
    with contextlib.closing(Cluster(settings)) as cluster:
        with pytest.raises(RefusedError, match=r"the brokers refuse the subscription: .*between 100 and"):
            cluster.check("a", {"interval.ms": "1"})
        assert cluster.read() == {}


@pytest.mark.full
def test_brokers_that_are_away_are_named_and_cost_nothing_lasting(tmp_path: Path) -> None:
    away = f"{LOOPBACK}:{free_port()}"
    with following(settings_of(away, options={"request.timeout.ms": 1000}), tmp_path / "copy.json") as store:
        become(lambda: store.status().failures >= 2, "two attempts")
        before = threading.active_count(), open_files()
        assert f"{away}: cannot be connected to: " in str(store.status().problem)
        with pytest.raises(StoreError, match="cannot be connected to"):
            store.put(sub("a"))
        failures = store.status().failures
        become(lambda: store.status().failures >= failures + 2, "two more")
        assert threading.active_count() <= before[0] + 1
        assert open_files() <= before[1] + 4


@pytest.mark.full
def test_a_wrong_password_is_named_and_not_shown(broker: KafkaBroker, tmp_path: Path) -> None:
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "hunter2",
    }
    settings = settings_of(f"{LOOPBACK}:{broker.port('SASL')}", options=login)
    with following(settings, tmp_path / "copy.json") as store:
        become(lambda: store.status().failures >= 1, "an attempt")
        problem = str(store.status().problem)
        assert "cannot be connected to: " in problem
        assert "Authentication" in problem or "perhaps because of the login" in problem
        assert "hunter2" not in problem
        before = open_files()
        become(lambda: store.status().failures >= 3, "two more")
        assert open_files() <= before + 4
    assert store._thread is not None
    store._thread.join(_WITHIN_S)  # its last attempt takes some seconds


def test_a_topic_of_something_else_is_refused(settings: KafkaStoreSettings, broker: KafkaBroker) -> None:
    from confluent_kafka import Producer

    broker.create_topic(settings.topic)
    producer = Producer({"bootstrap.servers": broker.internal_bootstrap})
    for number in range(5001):
        producer.produce(settings.topic, key=str(number), value="{}")
    assert producer.flush(_WITHIN_S) == 0
    with (
        contextlib.closing(Cluster(settings)) as cluster,
        pytest.raises(
            StoreError, match=r"has too much for a topic of subscriptions: set subscriptions\.kafka\.t"
        ),
    ):
        cluster.read()


#: ListConfigResources, before Kafka 4.1 ListClientMetricsResources.
_LIST_CONFIG_RESOURCES = 74


@pytest.mark.full  # a store looks for an upgrade every half a minute
def test_brokers_without_client_metrics_use_the_topic_alone(tmp_path: Path) -> None:
    port = free_port()
    with (
        KafkaBroker(advertised_client_port=port) as broker,
        OlderBroker(port, broker.client_port, frozenset({_LIST_CONFIG_RESOURCES})) as older,
    ):
        settings = settings_of(f"{LOOPBACK}:{port}")
        with (
            following(settings, tmp_path / "one.json") as one,
            following(settings, tmp_path / "two.json") as two,
        ):
            for subscription in ALL:
                one.put(subscription)
            two.delete("none")
            kept = tuple(each for each in ALL if each.name != "none")
            become(lambda: one.load_all() == two.load_all() == kept, "the same subscriptions")
            with contextlib.closing(Cluster(settings_of(broker.internal_bootstrap))) as cluster:
                assert all(entry.configs is None and entry.exists for entry in cluster.read().values())

                # After the upgrade of the brokers, Kafka's tools show them too.
                older.without = frozenset()
                older.disconnect()
                become(
                    lambda: all(entry.configs is not None for entry in cluster.read().values()), "resources"
                )
                assert len(cluster.read()) == len(kept)
            become(lambda: one.status().problem is None and two.status().problem is None, "reads")
            assert one.load_all() == two.load_all() == kept
            two.delete("all")
            become(lambda: one.load_all() == kept[:1] + kept[2:], "a deletion")


def test_a_read_sees_records_that_another_receiver_moves(
    settings: KafkaStoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The move comes between the two parts of a read, whichever is first."""
    with (
        contextlib.closing(Cluster(settings)) as other,
        contextlib.closing(Cluster(settings)) as cluster,
    ):
        for subscription in ALL:
            other.write(subscription.name, split_complete(subscription))
        cluster.read()
        other.read()
        to_move = iter(ALL)

        def then_moved(part: Callable[[], Any]) -> Any:
            found = part()
            for subscription in to_move:
                other.write(subscription.name, split(subscription, match_beside=True))
            return found

        for part in ("_read_resources", "_read_records"):
            monkeypatch.setattr(cluster, part, partial(then_moved, getattr(cluster, part)))
        for _ in ("during the move", "after it"):
            entries = cluster.read()
            assert tuple(join(name, entries[name]) for name in sorted(entries)) == ALL


@pytest.mark.full
def test_a_login_by_tls_sasl_and_certificate(tmp_path: Path) -> None:
    authority, other = CertificateAuthority(), CertificateAuthority("Another CA")
    identity = authority.issue().write(tmp_path, "broker")
    client = authority.issue(common_name="sidecar", client=True).write(tmp_path, "client")
    stranger = other.issue().write(tmp_path, "stranger")
    (tmp_path / "password").write_text("alice-secret\n")
    secure = Listener(name="SECURE", security_protocol="SASL_SSL", client_auth="required")
    with KafkaBroker(listeners=[secure], certificate=identity) as broker:
        bootstrap = f"{LOOPBACK}:{broker.port('SECURE')}"
        options = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": {"file": str(tmp_path / "password")},
            "ssl.ca.location": str(client.ca),
            "ssl.keystore.location": str(client.keystore),
        }
        with following(settings_of(bootstrap, options=options), tmp_path / "copy.json") as store:
            for subscription in ALL[:3]:
                store.put(subscription)
            become(lambda: store.status().problem is None, "a read")
            assert store.load_all() == ALL[:3]
        with (
            pytest.raises(StoreError, match=r"cannot be connected to: .*certificate verify failed"),
            contextlib.closing(
                Cluster(settings_of(bootstrap, options={**options, "ssl.ca.location": str(stranger.ca)}))
            ),
        ):
            pass
