"""What may go wrong around the bridge, and that neither broker nor clients suffer from it."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from benchmarks.bridge_programs import Programs
from tests.integration.bridge.peer import TOKEN, WINDOW, Peer
from tests.integration.bridge.support import EXPORTER, JMX, properties
from tests.testbed import jvm, parts
from tests.testbed.broker import KafkaBroker
from tests.testbed.clients import Client, JavaClient, LibrdkafkaClient, Mode
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import ChildProcess, StartError, wait_until
from tests.testbed.raw import BrokerAnswerError

_HERE = Path(__file__).parent
_NEIGHBOUR = "kafkatelemetry.testbed.BadNeighbour"
#: Linux keeps 15 characters of a thread's name.
_THREAD = "telemetry-bridge"[:15]


@pytest.fixture(scope="session")
def neighbour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A jar with a telemetry plugin that makes the mistakes of others."""
    folder = tmp_path_factory.mktemp("neighbour")
    path = ":".join(map(str, jvm.class_path()))
    subprocess.run(
        ["javac", "-cp", path, "-d", folder / "classes", _HERE / "BadNeighbour.java"], check=True, timeout=600
    )
    jar = folder / "neighbour.jar"
    subprocess.run(["jar", "--create", "--file", jar, "-C", folder / "classes", "."], check=True, timeout=600)
    return jar


def producer(broker: KafkaBroker, client_id: str) -> Client:
    return LibrdkafkaClient(Mode.PRODUCER, bootstrap=broker.bootstrap, topic="faults", client_id=client_id)


def threads(broker: KafkaBroker) -> int:
    """How many threads of bridges a broker has."""
    names = (task.read_text().strip() for task in Path(f"/proc/{broker.pid}/task").glob("*/comm"))
    return sum(name == _THREAD for name in names)


def sequences(peer: Peer) -> set[int]:
    return {push.sequence for push in list(peer.pushes)}


@pytest.mark.full
def test_nothing_is_lost_while_the_receiver_is_away_and_the_broker_stops_while_it_hangs(
    jar: Path, token_file: Path
) -> None:
    with (
        Peer() as first,
        KafkaBroker(plugins=[jar], properties=properties(token_file, first.port)) as broker,
    ):
        broker.alter_client_metrics("all", ["*"], 500)
        with producer(broker, "faults") as client:
            first.wait_for("faults", 2)
            first.answers = False
            taken = len(first.pushes)
            wait_until(lambda: len(first.pushes) > taken, timeout_s=60, what="a push without an answer")
            first.close()
            with Peer(first.port) as second:
                second.wait_for("faults", 3)
                both = sequences(first) | sequences(second)
                assert both == set(range(1, max(both) + 1))
                assert sequences(first) & sequences(second)  # what was not acknowledged came again
                second.answers = False
                taken = len(second.pushes)
                wait_until(lambda: len(second.pushes) > taken, timeout_s=60, what="a hung push")
                client.stop()
                broker.stop()


@pytest.mark.full
def test_a_slow_receiver_delays_pushes_and_nothing_else(jar: Path, token_file: Path) -> None:
    with (
        Peer() as peer,
        KafkaBroker(plugins=[jar], properties=properties(token_file, peer.port)) as broker,
        contextlib.ExitStack() as clients,
    ):
        broker.alter_client_metrics("all", ["*"], 200)
        producers = [clients.enter_context(producer(broker, f"slow-{number}")) for number in range(4)]
        peer.wait_for("slow-0", 2)
        peer.delay_s = 0.2  # five pushes a second, of twenty
        wait_until(lambda: peer.statistics.get("queue_items", 0) > 10, timeout_s=120, what="pushes that wait")
        for client in producers:
            client.wait_for_records(client.records + 20)
        peer.delay_s = 0.0
        for client in producers:
            client.stop()
        wait_until(
            lambda: 0 < peer.statistics["received"] == peer.statistics["acknowledged"],
            timeout_s=60,
            what="all pushes acknowledged",
        )
        assert {name: count for name, count in peer.statistics.items() if "dropped" in name and count} == {}
        assert sequences(peer) == set(range(1, peer.statistics["received"] + 1))


@pytest.mark.full
def test_pushes_wake_nothing_while_the_receiver_owes_acknowledgements(tmp_path: Path) -> None:
    programs, pushes = Programs(tmp_path, _HERE / "FullWindow.java"), 400
    metrics = programs.metrics(tmp_path / "metrics", 1_000)
    with Peer(answers=False) as peer:
        receiver = f"{LOOPBACK}:{peer.port}"
        (line,) = programs.lines("FullWindow", receiver, programs.token, metrics, WINDOW, pushes, seconds=120)
    # Statistics wake the thread too, and a new connection after ten seconds.
    assert line["sleeps"] < pushes / 4


@pytest.mark.full
def test_a_full_queue_drops_and_counts(jar: Path, token_file: Path) -> None:
    port = free_port()
    with KafkaBroker(plugins=[jar], properties=properties(token_file, port, queue_items="2")) as broker:
        broker.alter_client_metrics("all", ["*"], 500)
        with producer(broker, "full"):
            broker.wait_for_log("telemetry pushes dropped since the start: queue_full=")
            with Peer(port) as peer:
                wait_until(
                    lambda: peer.statistics.get("dropped_queue_full", 0) > 0, timeout_s=60, what="drops"
                )
                peer.wait_for("full", 3)
                counted = peer.statistics
                assert counted["queue_items"] <= 2
                assert counted["received"] >= counted["acknowledged"] + counted["dropped_queue_full"]


@pytest.mark.full
def test_a_wrong_value_of_its_own_stops_the_start_by_its_name(jar: Path, token_file: Path) -> None:
    wrong = {"kafka.telemetry.bridge.receivers": "receiver.example:9714"}
    problem = r"kafka\.telemetry\.bridge\.receivers: .* set kafka\.telemetry\.bridge\.tls=true"
    with (
        pytest.raises(
            StartError, match=rf"ConfigException: Invalid value receiver\.example:9714 .*{problem}"
        ),
        KafkaBroker(plugins=[jar], properties=properties(token_file, 9714) | wrong),
    ):
        pass


@pytest.mark.full
def test_a_broker_starts_without_the_token_and_delivers_when_it_is_there(jar: Path, tmp_path: Path) -> None:
    late = tmp_path / "token"
    with (
        Peer() as peer,
        KafkaBroker(plugins=[jar], properties=properties(late, peer.port)) as broker,
    ):
        broker.alter_client_metrics("all", ["*"], 500)
        broker.wait_for_log("kafka.telemetry.bridge.token.file: can't read")
        with producer(broker, "patient"):
            late.write_bytes(b"another-token-0123456789")
            broker.wait_for_log("it refuses the bridge: the bridge does not have the receiver's token")
            late.write_bytes(TOKEN)
            peer.wait_for("patient")
        assert TOKEN.decode() not in broker.log_text()


@pytest.mark.full
@pytest.mark.parametrize("mistake", ["reads", "waits", "throws", "null"])
def test_bad_neighbours(mistake: str, jar: Path, neighbour: Path, token_file: Path) -> None:
    with Peer() as peer:
        settings = properties(token_file, peer.port)
        settings |= {"metric.reporters": f"{_NEIGHBOUR},{EXPORTER}", "testbed.neighbour": mistake}
        with KafkaBroker(plugins=[jar, neighbour], properties=settings) as broker:
            broker.alter_client_metrics("all", ["*"], 500)
            with JavaClient(
                Mode.PRODUCER, bootstrap=broker.bootstrap, topic="faults", client_id=mistake
            ) as client:
                client.wait_for_records(1)
                if mistake in {"reads", "waits"}:
                    peer.wait_for(mistake, 3)
                    assert all(push.metrics[0] == 0x0A for push in peer.of(mistake))
                else:
                    # Kafka calls the neighbour first, and the client then stops its telemetry.
                    broker.wait_for_log("INVALID_RECORD" if mistake == "" else "xception")
                    client.wait_for_records(client.records + 50)
                    assert not peer.of(mistake)


@pytest.mark.full
def test_added_changed_and_removed_while_the_broker_runs(jar: Path, token_file: Path) -> None:
    with Peer() as first, Peer() as second, KafkaBroker(plugins=[jar]) as broker:
        broker.alter_client_metrics("all", ["*"], 500)
        settings = properties(token_file, first.port)
        broker.alter_properties(settings | {"kafka.telemetry.bridge.tls": "perhaps"})
        broker.wait_for_log("kafka.telemetry.bridge.tls: expected true or false")
        assert threads(broker) == 0
        broker.alter_properties(settings | {"kafka.telemetry.bridge.tls": "false"})
        wait_until(lambda: len(first.hellos) == 1, timeout_s=60, what="the bridge")
        with producer(broker, "added"):
            first.wait_for("added", 2)
            with pytest.raises(BrokerAnswerError, match="is not on this machine"):
                broker.alter_properties({"kafka.telemetry.bridge.receivers": "receiver.example:1"})
            broker.alter_properties({"kafka.telemetry.bridge.receivers": f"127.0.0.1:{second.port}"})
            second.wait_for("added", 2)
            both = sequences(first) | sequences(second)
            assert both == set(range(1, max(both) + 1))
            broker.alter_properties({"metric.reporters": JMX})
            wait_until(lambda: threads(broker) == 0, timeout_s=60, what="the end of the threads")
            broker.alter_properties({"metric.reporters": f"{JMX},{EXPORTER}"})
            before = len(second.of("added"))
            second.wait_for("added", before + 2)
        assert {hello.bridge_id for hello in second.hellos} - {hello.bridge_id for hello in first.hellos}
        broker.stop()


class _IsolatedController(KafkaBroker):
    """A node with the role of a controller alone, and a broker's properties otherwise."""

    def start(self) -> None:
        folder = self._folder()
        self._process = ChildProcess(
            "isolated controller",
            jvm.command("kafka.Kafka", folder / "server.properties", plugins=self._plugins),
            log=folder / "broker.log",
            cwd=folder,
        )
        self._process.wait_until_ready(lambda: "Kafka Server started" in self.log_text(), timeout_s=60)


@pytest.mark.full
def test_an_isolated_controller_starts_nothing(jar: Path, token_file: Path) -> None:
    port = free_port()
    role = {
        "process.roles": "controller",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "advertised.listeners": "",
        "inter.broker.listener.name": "",
        "controller.quorum.voters": f"1@127.0.0.1:{port}",
    }
    with Peer() as peer:
        settings = properties(token_file, peer.port) | role
        settings = {key: value for key, value in settings.items() if value}
        with _IsolatedController(plugins=[jar], properties=settings) as controller:
            assert threads(controller) == 0
            assert not peer.hellos
            controller.stop()


def test_the_jar_needs_java_11_and_nothing_else(jar: Path) -> None:
    described = subprocess.run(
        ["javap", "-v", "-cp", jar, EXPORTER], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    assert "major version: 55" in described
    names = subprocess.run(
        ["jar", "--list", "--file", jar], check=True, capture_output=True, text=True, timeout=60
    ).stdout.split()
    classes = [name for name in names if name.endswith(".class")]
    assert classes
    assert all(name.startswith("kafkaclienttelemetry/bridge/") for name in classes)
    assert parts.BRIDGE.require() == jar.parent


@pytest.mark.full
def test_each_client_has_one_of_several_receivers_and_another_while_it_is_away(
    jar: Path, token_file: Path
) -> None:
    names = [f"client-{number}" for number in range(6)]
    with Peer() as first, Peer() as second, contextlib.ExitStack() as clients:
        settings = properties(token_file, first.port, second.port)
        broker = clients.enter_context(KafkaBroker(plugins=[jar], properties=settings))
        broker.alter_client_metrics("all", ["*"], 500)
        wait_until(lambda: bool(first.hellos and second.hellos), timeout_s=60, what="both connections")
        for name in names:
            clients.enter_context(producer(broker, name))
        wait_until(
            lambda: all(_count(name, first, second) >= 3 for name in names), timeout_s=60, what="all clients"
        )
        assert not [name for name in names if first.of(name) and second.of(name)]
        first.answers = False
        first.close()
        before = {name: len(second.of(name)) for name in names}
        for name in names:
            second.wait_for(name, before[name] + 2)
        both = sequences(first) | sequences(second)
        # What is under way may arrive in another order.
        wait_until(
            lambda: set(range(1, max(both) + 1)) <= sequences(first) | sequences(second),
            timeout_s=60,
            what="every push at one of them",
        )


def _count(name: str, *peers: Peer) -> int:
    return sum(len(peer.of(name)) for peer in peers)
