"""subscriptions, clients and series on the command line, against a real REST server."""

import json
import socket
from dataclasses import replace
from pathlib import Path

from receiver.host.host import PluginHost
from receiver.wire.uuid import uuid_to_text
from tests.unit.api.conftest import ask, instance_id, whole
from tests.unit.cli.conftest import Run, Sidecar
from tests.unit.host.support import Single, hosted, push, took


def test_the_life_of_subscriptions(run: Run, sidecar: Sidecar) -> None:
    url = {"KAFKA_TELEMETRY_URL": sidecar.url}
    empty = run("subscriptions", "list", **url)
    assert (empty.exit_code, empty.stdout, empty.stderr) == (0, "", "there are no subscriptions\n")

    arguments = ["--metric", "org.apache.kafka.producer.", "--metric", "a.", "--interval-ms", "60000"]
    matches = ["--match", "client_software_name=apache-kafka-java", "--match", "client_id=a=b"]
    put = run("subscriptions", "put", "producers", *arguments, *matches, **url)
    assert (put.exit_code, put.stdout) == (0, "producers: created\n")
    assert run("subscriptions", "put", "all", "-m", "*", **url).stdout == "all: created\n"
    assert run("subscriptions", "put", "all", "-m", "*", **url).stdout == "all: replaced\n"

    listed = run("subscriptions", "list", **url)
    rows = [line.split() for line in listed.stdout.splitlines()]
    assert rows[0] == ["NAME", "STATE", "INTERVAL", "METRICS", "MATCH"]
    assert rows[1] == ["all", "active", "300", "s", "all", "metrics", "all", "clients"]
    assert rows[2][:4] == ["producers", "active", "60", "s"]
    assert all(cell.endswith("\N{HORIZONTAL ELLIPSIS}") for cell in rows[2][4:])
    wide = run("subscriptions", "list", "-o", "wide", **url).stdout.splitlines()[2]
    assert "org.apache.kafka.producer. a." in wide
    assert "client_software_name=apache-kafka-java client_id=a=b" in wide
    shown = run("subscriptions", "show", "producers", "--output", "json", **url)
    body = {
        "metrics": ["org.apache.kafka.producer.", "a."],
        "interval_ms": 60000,
        "match": {"client_software_name": "apache-kafka-java", "client_id": "a=b"},
    }
    document = json.loads(shown.stdout)
    assert document == whole("producers", body, changed_at=document["changed_at"])
    shown_all = run("subscriptions", "show", "all", **url).stdout.splitlines()
    assert {"name         all", "metrics      all metrics"} <= set(shown_all)

    deleted = run("subscriptions", "delete", "all", **url)
    assert (deleted.exit_code, deleted.stdout) == (0, "all: deleted\n")
    again = run("subscriptions", "delete", "all", "--url", sidecar.url)
    assert again.exit_code == 1
    assert again.stderr == "kafka-telemetry: there is no subscription named 'all'\n"
    assert [item.name for item in sidecar.store.load_all()] == ["producers"]


def test_put_accepts_what_show_writes(run: Run, sidecar: Sidecar, tmp_path: Path) -> None:
    run("subscriptions", "put", "a b/c", "-m", "x.", "--url", sidecar.url)
    shown = run("subscriptions", "show", "a b/c", "-o", "json", "--url", sidecar.url).stdout
    file = tmp_path / "subscription.json"
    file.write_text(shown)
    put = run("subscriptions", "put", "a b/c", "--file", str(file), "--url", sidecar.url)
    assert put.stdout == "a b/c: replaced\n"
    body = '{"metrics": ["y."]}'
    put = run("subscriptions", "put", "a b/c", "-f", "-", "-o", "json", "--url", sidecar.url, stdin=body)
    assert json.loads(put.stdout)["metrics"] == ["y."]


def test_an_error_of_the_sidecar_is_one_line(run: Run, sidecar: Sidecar) -> None:
    put = run("subscriptions", "put", "s", "-m", "a.*", "--url", sidecar.url)
    assert put.exit_code == 1
    assert put.stderr.startswith("kafka-telemetry: metrics[0]: is no prefix of a metric name")
    assert put.stderr.count("\n") == 1
    put = run("subscriptions", "put", "s", "-m", "a.", "--match", "colour=red", "--url", sidecar.url)
    assert put.stderr.startswith("kafka-telemetry: match.colour: ")
    put = run("subscriptions", "put", "s", "-f", "-", "--url", sidecar.url, stdin="{")
    assert put.exit_code == 2
    assert put.stderr.startswith("kafka-telemetry: stdin: line 1, column 2: ")


def test_wrong_usage(run: Run, tmp_path: Path) -> None:
    for arguments, expected in (
        (["put", "s"], "give at least one, for example --metric '*'"),
        (["put", "s", "-m", "a.", "--match", "client_id"], "'client_id': expected SELECTOR=REGEX"),
        (["put", "s", "-m", "a.", "--file", "x.json"], "either a file or the parts of the subscription"),
        (["put", "s", "--file", str(tmp_path / "absent")], "No such file or directory"),
        (["show", ".."], "cannot be the name of a subscription"),
        (["list", "--output", "xml"], "xml"),
        (["list", "--url", "nonsense"], "nonsense: not a URL such as http://127.0.0.1:8642"),
    ):
        result = run("subscriptions", *arguments)
        assert result.exit_code == 2, result.stderr
        assert expected in " ".join(result.stderr.split())


def test_more_subscriptions_than_a_page_holds(run: Run, sidecar: Sidecar) -> None:
    for number in range(3):
        run("subscriptions", "put", f"s{number}", "-m", "a.", "--url", sidecar.url)
    listed = run("subscriptions", "list", "-o", "json", "--url", sidecar.url)
    assert [load["name"] for load in json.loads(listed.stdout)] == ["s0", "s1", "s2"]


def test_clients(run: Run, sidecar: Sidecar) -> None:
    empty = run("clients", "list", "--url", sidecar.url)
    assert (empty.exit_code, empty.stderr) == (0, "no clients are known\n")
    numbers = range(2, 2102)
    for number in numbers:
        ask(sidecar.telemetry, number, 1000.0)
    listed = run("clients", "list", "--url", sidecar.url)
    header, first, _, *rest = listed.stdout.splitlines()
    assert len(rest) == 998
    assert header.split() == ["CLIENT", "ID", "CLIENT", "INSTANCE", "ID", "SOFTWARE", "STATE", "LAST", "PUSH"]
    row = ["orders", "AAAAAAAAAAAAAAAAAAAAAg", "apache-kafka-java", "unsubscribed", "-"]
    assert first.split() == row
    wide = run("clients", "list", "--limit", "2", "-o", "wide", "--url", sidecar.url).stdout.splitlines()
    assert "4.4.0" in wide[1]
    assert "10.0.0.7:40002" in wide[1]
    second = wide[2]
    assert "10.0.0.7:40003" in second
    ids = [uuid_to_text(instance_id(number)) for number in numbers]
    for limit, expected in (("3000", ids), ("1001", ids[:1001])):
        result = run("clients", "list", "--limit", limit, "-o", "json", "--url", sidecar.url)
        assert [load["client_instance_id"] for load in json.loads(result.stdout)] == expected


def test_series(run: Run, sidecar: Sidecar) -> None:
    empty = run("series", "--url", sidecar.url)
    assert empty.stdout.splitlines() == [
        "OF   NAME  SERIES  BUDGET   OVER BUDGET  FOR",
        "all        0       1000000  0            -",
    ]
    for number, overflowed in ((2, 0), (3, 7)):
        ask(sidecar.telemetry, number, 1000.0, principal="User:alice")
        sidecar.telemetry.series.record_push(
            instance_id(number),
            principal="User:alice",
            client_id="orders",
            block="10.0.0.1",
            series=40,
            overflowed=overflowed,
            now=940.0,
        )
    assert run("series", "--limit", "1", "--url", sidecar.url).stdout.splitlines() == [
        "OF         NAME                    SERIES  BUDGET   OVER BUDGET  FOR",
        "all                                80      1000000  7            1 min",
        "principal  User:alice              80      200000   7            1 min",
        "client id  orders                  80      -        7            1 min",
        "instance   AAAAAAAAAAAAAAAAAAAAAw  40      10000    7            1 min",
    ]
    shown = json.loads(run("series", "-o", "json", "--url", sidecar.url).stdout)
    assert [client["overflowed"] for client in shown["clients"]] == [7, 0]


def test_plugins(run: Run, sidecar: Sidecar, tmp_path: Path) -> None:
    nothing = run("plugins", "--url", sidecar.url)
    assert (nothing.exit_code, nothing.stderr) == (0, "no plugins are configured\n")
    folder = {"path": str(tmp_path / "spool")}
    host = PluginHost(
        [
            hosted(Single(took), name="collector", queue={"max_items": 2}),
            hosted(Single(took), name="lake", delivery="spool_always", spool=folder),
        ]
    )
    for number in range(3):
        host.offer(push(number))
    statistics = host.statistics()
    sidecar.plugins = [
        replace(statistics[0], lag_seconds=7.2, consecutive_failures=2, last_error="UNAVAILABLE: away"),
        replace(
            statistics[1],
            lag_seconds=0.0,
            spool_problem="spool: Read-only file system",
            backlog=replace(
                statistics[1].backlog, pushes=1204, bytes=3_100_000, used=0.125, full_in_s=12_000.0
            ),
        ),
    ]
    lines = run("plugins", "--url", sidecar.url).stdout.splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "NAME STATE CIRCUIT WAITING LAG EXPORTED DROPPED",
        "collector new closed 2 (20 B) 7 s 0 1",
        "lake new closed 1204 (3.1 MB) 0 s 0 0",
        "collector: UNAVAILABLE: away",
        "lake: spool: Read-only file system",
    ]
    wide = run("plugins", "-o", "wide", "--url", sidecar.url).stdout.splitlines()
    assert [" ".join(line.split()) for line in wide][:3] == [
        "NAME TYPE STATE CIRCUIT DELIVERY WAITING SPOOL FULL IN LAG EXPORTED DROPPED DROPPED BECAUSE",
        "collector test new closed memory 2 (20 B) - - 7 s 0 1 1 queue_full",
        "lake test new closed spool_always 1204 (3.1 MB) 12.5 % 3 h 20 min 0 s 0 0 -",
    ]
    shown = json.loads(run("plugins", "-o", "json", "--url", sidecar.url).stdout)
    assert [item["name"] for item in shown] == ["collector", "lake"]


def test_a_client_id_cannot_control_the_terminal(run: Run, sidecar: Sidecar) -> None:
    ask(sidecar.telemetry, 2, 1000.0, client_id="a\x1b[2Jb\nc")
    listed = run("clients", "list", "--url", sidecar.url)
    assert "\x1b" not in listed.stdout
    assert len(listed.stdout.splitlines()) == 2


def test_no_sidecar_at_the_url(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    result = run("clients", "list", "--url", url)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"kafka-telemetry: {url}: cannot connect: ")
    assert result.stderr.count("\n") == 1
