"""What clients move and use, on the command line, against a real REST server."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path

from receiver.traffic.traffic import ClosedConnection
from receiver.traffic.usage_store import Amounts, Key, Settlement
from tests.unit.api.conftest import connection
from tests.unit.cli.conftest import Run, Sidecar


def settle(sidecar: Sidecar) -> str:
    """Add usage of today, and return the day."""
    day = datetime.now(UTC).date().isoformat()
    settlement = Settlement(1, day, time.time_ns() // 1_000_000)
    settlement.add(Key("User:ann", "orders"), Amounts(1_500, 2_000_000, 3, 1))
    settlement.apis["User:ann", "orders", "sarama", "1.20"] = {0: (2, 2)}
    sidecar.traffic.store.commit(settlement)
    return day


def test_connections_with_what_they_move(run: Run, sidecar: Sidecar) -> None:
    sidecar.connections += [connection(1), connection(2, principal="User:ann")]
    url = {"KAFKA_TELEMETRY_URL": sidecar.url}
    table = run("connections", "--by", "principal", "--order-by", "connections", **url)
    head, *rows = table.stdout.splitlines()
    assert head.split()[:4] == ["PRINCIPAL", "CONNECTIONS", "IN", "OUT"]
    assert [row.split()[0] for row in rows] == ["User:ANONYMOUS", "User:ann"]
    groups = json.loads(
        run("connections", "--by", "principal", "--order-by", "bytes_in", "-o", "json", **url).stdout
    )
    assert {group["principal"]: group["connections"] for group in groups} == {
        "User:ANONYMOUS": 1,
        "User:ann": 1,
    }
    watched = run("connections", "--watch", "--looks", "1", "--order-by", "last_minute", **url)
    assert "LAST MINUTE" in watched.stdout
    assert run("connections", "--closed", **url).stderr == "no connection has closed\n"
    filtered = run("connections", "--closed", "--principal", "User:bob", **url)
    assert filtered.stderr == "no connections pass the filters\n"
    wrong = run("connections", "--order-by", "closed_at", **url)
    assert wrong.exit_code == 1
    assert "closed_at is no field of what is listed" in wrong.stderr


def test_the_time_of_a_closed_connection_is_whole(run: Run, sidecar: Sidecar) -> None:
    sidecar.traffic.closed.append(
        ClosedConnection(
            number=1,
            identity=connection(1, client_id="c" * 60, principal="User:" + "p" * 60),
            relay="relay-1",
            reason="client_closed",
            closed_ms=time.time_ns() // 1_000_000 - 90_000,
            counters=None,
        )
    )
    url = {"KAFKA_TELEMETRY_URL": sidecar.url}
    (row,) = run("connections", "--closed", **url).stdout.splitlines()[1:]
    # At any time of the day: the age of the connection takes 9 to 11 characters.
    assert re.search(r" \d+ d( \d+ h)? +\d+ min( \d+ s)? ago +client_closed$", row)
    groups = run("connections", "--closed", "--by", "principal", **url).stdout
    assert "User:" + "p" * 25 in groups


def test_usage(run: Run, sidecar: Sidecar) -> None:
    day = settle(sidecar)
    url = {"KAFKA_TELEMETRY_URL": sidecar.url}
    head, row = run("usage", **url).stdout.splitlines()
    assert head.split() == ["DAY", "PRINCIPAL", "IN", "OUT", "REQUESTS", "CONNECTIONS"]
    assert row.split() == [day, "User:ann", "1.5", "kB", "2.0", "MB", "3", "1"]
    found = json.loads(run("usage", "--by", "client_id", "-o", "json", **url).stdout)
    assert found[0]["client_id"] == "orders"


def test_an_upgrade_check_fails_if_a_client_would_break(run: Run, sidecar: Sidecar) -> None:
    settle(sidecar)
    url = {"KAFKA_TELEMETRY_URL": sidecar.url}
    broken = run("upgrade-check", "--to", "4.0", "-o", "wide", **url)
    assert broken.exit_code == 3
    assert "Produce v2 (needs v3)" in broken.stdout
    assert broken.stderr == "1 kind of clients would break\n"
    fine = run("upgrade-check", "--to", "3.9", **url)
    assert (fine.exit_code, fine.stderr) == (0, "Kafka 3.9 answers every client that was seen\n")
    assert "knows Kafka up to" in run("upgrade-check", "--to", "99.0", **url).stderr


def test_owners_are_put_listed_and_deleted(run: Run, sidecar: Sidecar, tmp_path: Path) -> None:
    url = {"KAFKA_TELEMETRY_URL": sidecar.url}
    sidecar.connections.append(connection(1))
    options = (
        "--match",
        "client_id=orders",
        "--principal",
        "User:a",
        "--topic",
        "bills",
        "--contact",
        "#pay",
    )
    assert run("owners", "put", "pay", *options, **url).stdout == "pay: created\n"
    _, row = run("owners", "list", "-o", "wide", **url).stdout.splitlines()
    assert row.split()[:5] == ["pay", "#pay", "1", "0", "User:a"]
    shown = json.loads(run("owners", "show", "pay", "-o", "json", **url).stdout)
    assert shown["expected"] == {"principals": ["User:a"], "topics": ["bills"]}
    file = tmp_path / "pay.yaml"
    file.write_text("match: {listener: L}")
    assert run("owners", "put", "pay", "--file", str(file), **url).stdout == "pay: replaced\n"
    assert "listener=L" in run("owners", "show", "pay", **url).stdout
    assert run("owners", "put", "pay", **url).exit_code == 2
    assert run("owners", "put", "pay", "--match", "none=1", **url).exit_code == 1
    assert run("owners", "delete", "pay", **url).stdout == "pay: deleted\n"
    assert run("owners", "list", **url).stderr.startswith("there are no owners")
