"""A record, a row or a file that can't be read costs itself alone, whatever is in it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from receiver.store.document import Mistake, from_document
from receiver.store.entries import read_entries
from receiver.store.files import FileSubscriptionStore
from receiver.store.kafka_format import Entry, join
from receiver.store.local_copy import LocalCopy
from receiver.store.sqlite import SqliteSubscriptionStore
from receiver.telemetry.subscription import Subscription, SubscriptionSet, within_bounds
from receiver.telemetry.subscription_checks import MAX_PREFIXES, MAX_SUBSCRIPTIONS
from receiver.telemetry.subscription_document import to_document
from tests.unit.hostile_values import NUMBERS, TEXTS, TIMES, VALUES, nested

GOOD = Subscription(name="good", metrics=("a.",))
FIELDS = tuple(to_document(GOOD))

#: What only Python or YAML can hold.
DEEP = (*VALUES, nested(900), 1 << 20_000, float("nan"), float("inf"))

YAML = (
    "expires_at: 9999-12-31T23:59:59-23:59",
    "expires_at: 0001-01-01T00:00:00+23:59",
    "expires_at: !!timestamp 9999-12-31T23:59:59-23:59",
    "interval_ms: !!int ''",
    "interval_ms: !!float ''",
    "interval_ms: 0x" + "f" * 5000,
    "interval_ms: " + "9" * 5000,
    "interval_ms: 1" + ":59" * 300 + ".5",
    "enabled: !!bool maybe",
    "labels: !!set {a}",
    "labels: !!omap [a]",
    "labels: !!binary '²'",
    "labels: !!timestamp nonsense",
    "'metrics[" + "9" * 5000 + "]': 1",
    "'metrics[²]': 1",
    "match: {client_id: '" + "(" * 1000 + "'}",
    'description: "\\ud800"',
    "? [a]\n: b",
    "labels: " + "[" * 5000,
)


def usable(read: Subscription | list[Mistake]) -> bool:
    """Whether it was read; then it can be shown. Otherwise each mistake has a text."""
    if isinstance(read, Subscription):
        json.dumps(to_document(read))
        _ = SubscriptionSet.prepared([read]).version
        return True
    assert read
    assert all(map(str, read))
    return False


@pytest.mark.parametrize("field", FIELDS)
def test_any_value_of_a_record_is_read_or_is_a_mistake(field: str) -> None:
    for value in DEEP:
        for item in (value, [value], {"client_id": value}):
            document = {**to_document(GOOD), field: item}
            usable(from_document(document, is_stored=True))
            if field not in ("name", "metrics"):
                usable(join("good", Entry(configs={"metrics": "a."}, beside={field: item})))
                usable(join("good", Entry(beside={"metrics": ["a."], "complete": True, field: item})))


@pytest.mark.parametrize("text", [*TIMES, *NUMBERS, *TEXTS], ids=lambda text: ascii(text[:20]))
def test_any_text_of_a_resource_is_read_or_is_a_mistake(text: str) -> None:
    for key in ("metrics", "interval.ms", "match"):
        configs = {"metrics": "a.", key: text}
        usable(join("good", Entry(configs=configs)))
    usable(join(text, Entry(configs={"metrics": "a."})))
    usable(join("good", Entry(configs={"metrics": "a.", "match": f"client_id={text}"})))
    usable(from_document({**to_document(GOOD), text: [], "metrics": ["a."]}))


@pytest.mark.parametrize("line", YAML, ids=lambda line: ascii(line[:40]))
def test_a_file_with_any_value_is_a_mistake(tmp_path: Path, line: str) -> None:
    content = f"metrics: [a.]\n{line}\n".encode()
    entries, mistakes = read_entries("s.yaml", content, stem="s")
    assert (entries, bool(mistakes)) == ([], True)
    assert all(len(mistake) < 2000 for mistake in mistakes)
    # The store starts, says so, and follows the folder.
    (tmp_path / "s.yaml").write_bytes(content)
    store = FileSubscriptionStore(tmp_path)
    assert "1 mistake in its files" in str(store.status().problem)
    assert store.status().failures == 1


def test_a_row_that_cannot_be_read_is_named_and_costs_itself_alone(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.db"
    store = SqliteSubscriptionStore(path)
    bad = Subscription(name="bad", metrics=("b.",))
    store.put(GOOD)
    store.put(bad)
    meddler = sqlite3.connect(path)
    values: tuple[Any, ...] = (2**50, -(2**62), "nonsense", b"\xff", 1.5)
    for value in values:
        meddler.execute("UPDATE subscription SET expires_at = ? WHERE name = 'bad'", (value,))
        meddler.commit()
        found = store.load_all()
        assert GOOD in found
    assert found == (GOOD,) or {item.name for item in found} == {"good", "bad"}
    meddler.execute("UPDATE subscription SET labels = ? WHERE name = 'bad'", ("[" * 100_000,))
    meddler.commit()
    meddler.close()
    assert store.load_all() == (GOOD,)
    status = store.status()
    assert f"{path}: 1 subscription can't be used; the log has them: 'bad'" == status.problem
    assert status.failures > 0
    store.put(bad)
    assert store.load_all() == (bad, GOOD)
    assert store.status().problem is None
    store.close()


def test_a_local_copy_of_too_much_is_read_up_to_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "copy.json"
    LocalCopy(path).write([Subscription(name=f"{n:04}", metrics=()) for n in range(MAX_SUBSCRIPTIONS)])
    document = json.loads(path.read_text())
    document["subscriptions"].append({"name": "zz", "metrics": []})
    document["subscriptions"].append({"name": "0000", "metrics": []})
    document["subscriptions"][0]["expires_at"] = TIMES[0]
    path.write_text(json.dumps(document))
    found = {item.name for item in LocalCopy(path).read() or ()}
    assert len(found) == MAX_SUBSCRIPTIONS
    assert "zz" in found


def test_what_is_first_in_a_set_stays_in_it() -> None:
    first = [Subscription(name=f"{n}", metrics=tuple(f"p{n}.{i}" for i in range(250))) for n in range(3)]
    wide = Subscription(name="wide", metrics=tuple(f"w.{i}" for i in range(256)))
    small = Subscription(name="small", metrics=("p0.1", "s."))
    kept, others = within_bounds([*first, wide, small, first[0]])
    assert kept == [*first, small]
    assert [(other.name, error.field) for other, error in others] == [("wide", "metrics"), ("0", "name")]
    assert str(MAX_PREFIXES) in others[0][1].fix
    assert SubscriptionSet(kept)
