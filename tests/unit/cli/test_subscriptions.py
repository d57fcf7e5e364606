"""subscriptions, clients and connections in full, against a real REST server."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from receiver.telemetry.subscription_document import time_from_text
from receiver.wire.uuid import uuid_to_text
from tests.unit.api.conftest import ask, connection, instance_id
from tests.unit.cli.conftest import Run, Sidecar

METRICS = "org.apache.kafka.producer."


@pytest.fixture
def here(sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch, run: Run) -> Sidecar:
    """A sidecar that is the default of every command."""
    monkeypatch.setenv("KAFKA_TELEMETRY_URL", sidecar.url)
    return sidecar


def document(run: Run, name: str) -> dict[str, object]:
    found = json.loads(run("subscriptions", "show", name, "-o", "json").stdout)
    assert isinstance(found, dict)
    return found


def test_put_sets_every_field(run: Run, here: Sidecar) -> None:
    before = datetime.now(UTC)
    put = run(
        *("subscriptions", "put", "debug", "-m", METRICS, "--interval", "1000", "--for", "15m"),
        *("--match", "client_id=a.*", "--match", "client_id!=.*-test", "--temporality", "cumulative"),
        *("--label", "team=orders", "--description", "why", "--disabled"),
    )
    assert put.exit_code == 0, put.stderr
    shown = document(run, "debug")
    end = time_from_text(str(shown["expires_at"]))
    assert 890 <= (end - before).total_seconds() <= 960
    assert shown["match"] == {"client_id": "a.*", "client_id!": ".*-test"}
    assert (shown["interval_ms"], shown["temporality"], shown["state"]) == (1000, "cumulative", "disabled")
    assert (shown["labels"], shown["description"]) == ({"team": "orders"}, "why")
    # Without an interval, the existing one stays.
    run("subscriptions", "put", "debug", "-m", METRICS)
    assert document(run, "debug")["interval_ms"] == 1000


def test_put_takes_what_the_dashboards_need(run: Run, here: Sidecar) -> None:
    put = run("subscriptions", "put", "d", "--preset", "dashboards", "--match", "client_id=a.*")
    assert put.exit_code == 0, put.stderr
    shown = document(run, "d")
    assert (shown["interval_ms"], shown["match"]) == (60_000, {"client_id": "a.*"})
    assert "org.apache.kafka.consumer.fetch.manager.records.lag.max" in str(shown["metrics"])
    run("subscriptions", "put", "d", "--preset", "dashboards", "-m", METRICS, "--interval", "5000")
    shown = document(run, "d")
    assert shown["interval_ms"] == 5000
    assert METRICS in str(shown["metrics"])
    both = run("subscriptions", "put", "d", "--preset", "dashboards", "--file", "d.yaml")
    assert both.exit_code == 2


def test_patch_changes_parts(run: Run, here: Sidecar) -> None:
    run("subscriptions", "put", "s", "-m", METRICS, "--match", "client_id=a", "--label", "a=b")
    patch = run(
        *("subscriptions", "patch", "s", "--add-metric", "org.apache.kafka.consumer."),
        *("--remove-metric", METRICS, "--disable", "--expires-at", "2030-01-01T00:00:00Z"),
        *("--match", "listener=L", "--remove-match", "client_id", "--remove-label", "a"),
    )
    assert (patch.exit_code, patch.stdout) == (0, "s: changed\n"), patch.stderr
    shown = document(run, "s")
    assert shown["metrics"] == ["org.apache.kafka.consumer."]
    assert (shown["match"], shown["labels"], shown["enabled"]) == ({"listener": "L"}, {}, False)
    assert shown["expires_at"] == "2030-01-01T00:00:00Z"
    run("subscriptions", "patch", "s", "--enable", "--expires-at", "never")
    shown = document(run, "s")
    assert (shown["enabled"], shown["expires_at"]) == (True, None)
    assert run("subscriptions", "patch", "s").exit_code == 2
    assert run("subscriptions", "patch", "absent", "--enable").exit_code == 1


@pytest.mark.parametrize("duration", ["15", "m", "1.5h", "1y"])
def test_a_wrong_duration(run: Run, duration: str) -> None:
    result = run("subscriptions", "put", "s", "-m", "a.", "--for", duration)
    assert result.exit_code == 2
    assert "expected a time such as 90s, 15m, 2h or 7d" in " ".join(result.stderr.split())


def folder_of(path: Path, **files: object) -> Path:
    for name, content in files.items():
        (path / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return path


def test_apply_is_idempotent_and_prunes(run: Run, here: Sidecar, tmp_path: Path) -> None:
    run("subscriptions", "put", "old", "-m", METRICS)
    (tmp_path / "d").mkdir()
    folder = folder_of(
        tmp_path / "d",
        producers={"metrics": [METRICS], "interval_ms": 60_000},
        several=[
            {"name": "b", "metrics": [], "expires_at": "2030-01-01T00:00:00Z"},
            {"name": "c", "metrics": ["*"], "match": {"client_id": "x"}},
        ],
    )
    (folder / ".hidden.yaml").write_text("nonsense")
    (folder / "README.md").write_text("nonsense")
    files = ("-f", str(folder), "--prune")
    diff = run("subscriptions", "diff", *files)
    assert diff.exit_code == 3
    assert [line for line in diff.stdout.splitlines() if not line.startswith(" ")] == [
        "+ producers",
        "+ b",
        "+ c",
        "- old",
    ]
    assert here.store.load_all()[0].name == "old", "diff changes nothing"
    applied = run("subscriptions", "apply", *files)
    assert (applied.exit_code, applied.stdout.splitlines()) == (
        0,
        ["producers: created", "b: created", "c: created", "old: deleted"],
    )
    stored = here.store.load_all()
    again = run("subscriptions", "apply", *files)
    assert again.stdout.splitlines() == ["producers: unchanged", "b: unchanged", "c: unchanged"]
    assert [item.changed_at for item in here.store.load_all()] == [item.changed_at for item in stored]
    assert (run("subscriptions", "diff", *files).exit_code, run("subscriptions", "diff", *files).stdout) == (
        0,
        "",
    )
    folder_of(folder, producers={"metrics": [METRICS], "interval_ms": 1000})
    diff = run("subscriptions", "diff", *files)
    assert diff.stdout.splitlines() == ["~ producers", "    interval_ms: 60000 -> 1000"]
    # What list writes can be applied.
    listed = run("subscriptions", "list", "-o", "yaml").stdout
    assert run("subscriptions", "diff", "-f", "-", "--prune", stdin=listed).exit_code == 0


def test_apply_checks_all_files_first(run: Run, here: Sidecar, tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path,
        a={"metrics": ["good."]},
        b={"metrics": ["a b"], "interval_ms": 1},
        c=[{"metrics": []}, {"name": "a", "metrics": []}],
    )
    result = run("subscriptions", "apply", "-f", str(folder))
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    begins = (
        "b.yaml:3:3: metrics[0]: 'a b' is no prefix of",
        "b.yaml:1:1: interval_ms: 1 is out of range;",
        "c.yaml:1:3: [0]: name: null is not a name;",
        "c.yaml:3:3: name: 'a' is the name of a subscription at ",
    )
    for line, begin in zip(lines, begins, strict=True):
        assert re.sub(r"^kafka-telemetry: \S*/(?=[abc].yaml:)", "", line, count=1).startswith(begin)
    assert here.store.load_all() == ()


def test_a_file_that_is_too_large_is_not_cut(run: Run, here: Sidecar, tmp_path: Path) -> None:
    """Cut after its first lines, it would be another subscription."""
    file = tmp_path / "a.yaml"
    file.write_text("metrics: [good.]\n" + "#\n" * 600_000 + "enabled: false\n")
    for command in (["put", "a"], ["apply"], ["diff"]):
        result = run("subscriptions", *command, "-f", str(file))
        assert result.exit_code == 2
        assert "larger than 1048576 bytes" in " ".join(result.stderr.split())
    assert here.store.load_all() == ()


def test_an_empty_folder_prunes_nothing(run: Run, here: Sidecar, tmp_path: Path) -> None:
    run("subscriptions", "put", "old", "-m", METRICS)
    result = run("subscriptions", "apply", "-f", str(tmp_path), "--prune")
    assert result.exit_code == 2
    assert "has no file .yaml, .yml, .json" in " ".join(result.stderr.split())
    assert len(here.store.load_all()) == 1


def test_explain_and_match(run: Run, here: Sidecar, tmp_path: Path) -> None:
    run("subscriptions", "put", "s", "-m", METRICS, "--match", "client_id=orders")
    for number, client_id in ((2, "orders"), (3, "billing")):
        ask(here.telemetry, number, 1000.0, client_id=client_id)
    explained = run("subscriptions", "explain", "s")
    assert explained.stdout.startswith(
        "matches 1 of 2 clients, an unknown number of series, all asked within "
    )
    assert "has pushed yet" in explained.stderr
    body = tmp_path / "s.yaml"
    body.write_text("metrics: ['*']\n")
    for arguments, matched in (
        (["-f", str(body)], 2),
        (["-m", "*", "--match", "client_id=billing"], 1),
        (["s", "--match", "client_id=absent"], 0),
    ):
        result = run("subscriptions", "explain", *arguments, "-o", "json")
        assert json.loads(result.stdout)["matched"] == matched
    assert run("subscriptions", "explain").exit_code == 2
    matching = run("subscriptions", "match", "s", "-o", "json")
    assert [load["client_id"] for load in json.loads(matching.stdout)] == ["orders"]
    run("subscriptions", "put", "nobody", "-m", METRICS, "--match", "client_id=absent")
    assert run("subscriptions", "match", "nobody").exit_code == 3
    assert run("subscriptions", "match", "absent").exit_code == 1


@pytest.mark.full
def test_the_spelling_of_the_draft(run: Run, here: Sidecar) -> None:
    added = run("subscriptions", "--add", "--id", "s", "--metric", METRICS, "--interval", "60000")
    assert (added.exit_code, added.stdout) == (0, "s: created\n"), added.stderr
    assert document(run, "s")["match"] == {"client_id": "s.*"}
    changed = run("subscriptions", "--add", "--id", "s", "--metric", "*", "--url", here.url)
    assert changed.stdout == "s: changed\n"
    shown = document(run, "s")
    assert (shown["metrics"], shown["interval_ms"]) == ([METRICS, "*"], 60_000)
    assert run("subscriptions", "--delete", "--id", "s", "--metric", "*").stdout == "s: changed\n"
    assert run("subscriptions", "--delete", "--id", "s", "--metric", METRICS).stdout == "s: deleted\n"
    instance = uuid_to_text(instance_id(7))
    run("subscriptions", "--add", "--id", instance, "--metric", "*")
    assert document(run, instance)["match"] == {"client_instance_id": instance}
    run("subscriptions", "--add", "--id", "s", "--metric", "*", "--match", "client_id=t")
    assert document(run, "s")["match"] == {"client_id": "t"}
    assert [line.split()[0] for line in run("subscriptions", "--list", "--id", "s").stdout.splitlines()] == [
        "NAME",
        "s",
    ]
    assert run("subscriptions", "--delete", "--id", "s").stdout == "s: deleted\n"
    for wrong in (["--add"], ["--add", "--delete", "--id", "s"], ["--add", "--id", "s"]):
        assert run("subscriptions", *wrong).exit_code == 2
    early = run("subscriptions", "--url", here.url, "list")
    assert early.exit_code == 2
    assert "give it after the command" in " ".join(early.stderr.split())


def test_lists_of_clients_and_connections_take_filters(run: Run, here: Sidecar) -> None:
    ask(here.telemetry, 2, 1000.0, client_software_name="librdkafka")
    ask(here.telemetry, 3, 1000.0, principal="User:a")
    here.connections.extend([connection(2, client_software_name="librdkafka"), connection(4)])

    def ids(*arguments: str) -> list[str]:
        found = yaml.safe_load(run(*arguments, "-o", "yaml").stdout)
        return [item.get("connection_id", item.get("id")) for item in found]

    assert ids("clients", "list", "--software", "librdkafka") == ["CLIENT-2"]
    assert ids("clients", "list", "--principal", "User:a", "--state", "unsubscribed") == ["CLIENT-3"]
    assert ids("connections", "--state", "no_telemetry") == ["CLIENT-4"]
    assert len(run("connections").stdout.splitlines()) == 3
    nothing = run("clients", "list", "--client-id", "absent")
    assert (nothing.exit_code, nothing.stderr) == (0, "no clients pass the filters\n")
    wrong = run("clients", "list", "--state", "asleep")
    assert wrong.exit_code == 1
    assert "expected one of terminated, silent" in wrong.stderr


def test_one_client(run: Run, here: Sidecar) -> None:
    run("subscriptions", "put", "s", "-m", METRICS, "--interval", "1000")
    run("subscriptions", "put", "t", "-m", METRICS, "--match", "client_id=absent")
    ask(here.telemetry, 2, 1000.0)
    text = uuid_to_text(instance_id(2))
    rows = [" ".join(line.split()) for line in run("clients", "show", text).stdout.splitlines()]
    assert {"state waiting", f"client_instance_id {text}", "subscriptions s"} <= set(rows)
    # Where it was seen, which is a list of fields, is as plain as the other fields.
    for named in (text, "orders"):
        shown = " ".join(run("clients", "show", named).stdout.split())
        assert "via gateway, listener CLIENT, source_address 10.0.0.7" in shown
        assert not set("{}[]'\"") & set(shown)
    rows = [" ".join(line.split()) for line in run("clients", "explain", text).stdout.splitlines()]
    assert rows == [
        f"client orders {text}",
        "state waiting",
        "next request within 2 s",
        "interval 1 s (subscription s)",
        "temporality delta (default)",
        f"metrics {METRICS} (s)",
        "subscription s applies",
        "subscription t does not apply: client_id is 'orders', which 'absent' does not",
        "match",
    ]
    by_client_id = run("clients", "explain", "orders").stdout.splitlines()
    assert [" ".join(line.split()) for line in by_client_id] == rows
    assert json.loads(run("clients", "explain", text, "-o", "json").stdout)["in_effect"] is True
    for unknown in ("a/../b", "A" * 22):
        result = run("clients", "show", unknown)
        assert result.exit_code == 1
        assert f"no client has the client id or client instance id {unknown}" in result.stderr
    here.connections.append(connection(9, client_id="mute", client_software_version="3.6.0"))
    mute = run("clients", "explain", "mute")
    assert "mute (apache-kafka-java 3.6.0) is connected and has sent no telemetry request" in mute.stderr


def test_several_clients_have_a_client_id(run: Run, here: Sidecar) -> None:
    for number in range(2, 12):
        ask(here.telemetry, number, 1000.0)
    shown = run("clients", "show", "orders", "-o", "json")
    decoder, found, text = json.JSONDecoder(), [], shown.stdout
    while text:
        document, end = decoder.raw_decode(text)
        found.append(document["client_instance_id"])
        text = text[end:].lstrip()
    assert found == [uuid_to_text(instance_id(number)) for number in range(2, 7)]
    assert "orders stands for more than 5 client instances" in shown.stderr


def test_every_metric_is_one_word_everywhere(run: Run, here: Sidecar) -> None:
    run("subscriptions", "put", "s", "-m", "*", "--interval", "1000")
    ask(here.telemetry, 2, 1000.0)
    text = uuid_to_text(instance_id(2))
    for command, row in (("show", "requested_metrics all metrics"), ("explain", "metrics all metrics (s)")):
        rows = [" ".join(line.split()) for line in run("clients", command, text).stdout.splitlines()]
        assert row in rows


def test_watch_writes_what_changes(run: Run, here: Sidecar) -> None:
    ask(here.telemetry, 2, 1000.0, client_id="a\x1bb")
    text = uuid_to_text(instance_id(2))
    watched = run("clients", "watch", "--looks", "2", "--every", "0.1")
    at, line = watched.stdout.split(" ", 1)
    assert abs((time_from_text(at) - datetime.now(UTC)).total_seconds()) < 600
    assert (watched.exit_code, line) == (0, f"+ {text} a\N{REPLACEMENT CHARACTER}b unsubscribed\n")


def test_completion_is_there(run: Run) -> None:
    script = run("--show-completion", "bash", SHELL="/bin/bash")
    assert "_KAFKA_TELEMETRY_COMPLETE" in script.stdout + run(_KAFKA_TELEMETRY_COMPLETE="source_bash").stdout


def completed(run: Run, line: str) -> list[str]:
    found = run(
        _KAFKA_TELEMETRY_COMPLETE="complete_fish",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
        _TYPER_COMPLETE_ARGS=f"kafka-telemetry {line}",
    )
    return found.stdout.splitlines()


def test_names_are_completed(run: Run, here: Sidecar, monkeypatch: pytest.MonkeyPatch) -> None:
    # A person waits two seconds; a busy machine may need more.
    monkeypatch.setattr("receiver.cli.completion._TIMEOUT_S", 60.0)
    for name in ("producers", "pro/2", "-p", "p$(a)", "p q"):
        assert run("subscriptions", "put", "-m", METRICS, "--", name).exit_code == 0
    ask(here.telemetry, 2, 1000.0, client_id="orders")
    ask(here.telemetry, 3, 1000.0, client_id="orders")
    ask(here.telemetry, 4, 1000.0, client_id="or`x`")
    for command in ("show", "put", "patch", "delete", "explain", "match"):
        assert completed(run, f"subscriptions {command} p") == ["pro/2", "producers"]
    assert completed(run, "subscriptions put a --match client_source_") == [
        "client_source_address=",
        "client_source_port=",
    ]
    assert completed(run, "clients list --client-id or") == ["orders"]
    assert completed(run, "connections --state s") == ["silent"]
    ids = {
        uuid_to_text(instance_id(number)): name for number, name in ((2, "orders"), (3, "orders"), (4, ""))
    }
    shown = completed(run, "clients show ")
    assert [line.partition("\t")[::2] for line in shown] == sorted(
        (item, name) for item, name in ids.items() if item[0] != "-"
    )
