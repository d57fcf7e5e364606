"""Checks of the roll-up's tables after each round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import psycopg
import pyarrow.parquet as pq

from spark_streaming.postgres import MAX_ROWS, IdKey
from tests.fuzz.pipeline.flood import Flood
from tests.fuzz.pipeline.identities import BROKER_IDS, IDENTITIES, SERIES_LABELS, Identity
from tests.fuzz.pipeline.innocents import LATENCY, SERIES, Ledger
from tests.unit.spark_streaming.identities import storable

#: Metrics that the roll-up adds to every client.
_ADDED: Final = ("kafka.client.telemetry.clients", "kafka.client.telemetry.pushes")
_PUSHES: Final = _ADDED[1]
_MOST_SHOWN: Final = 5
_INNOCENT: Final = [identity.client_id for identity in IDENTITIES if identity.innocent]

_INNOCENT_TOTALS: Final = """
SELECT client_id, metric, coalesce(topic, ''), sum(points)::float8, sum(sum)
FROM metric_1m WHERE client_id = ANY(%s) GROUP BY 1, 2, 3
"""
_BUCKETS: Final = """
SELECT client_id, upper, sum(count)::float8 FROM histogram_1m WHERE client_id = ANY(%s) AND metric = %s
GROUP BY 1, 2
"""
_CLIENT_PUSHES: Final = """
SELECT client_id, sum(pushes)::float8 FROM client_1m WHERE client_id = ANY(%s) GROUP BY 1
"""
_CLIENTS: Final = """
SELECT client_instance_id, client_id, client_software_name, client_software_version, principal, cluster_id,
    client_source_address, broker_id
FROM client_state
"""
_ADDRESSES: Final = """
SELECT DISTINCT client_instance_id, r.client_source_address, r.broker_id
FROM client_rollup_1m r JOIN client_state USING (client_key)
"""
_LEDGER: Final = """
SELECT coalesce(sum(pushes), 0)::bigint, coalesce(sum(repeats), 0)::bigint,
    coalesce(sum(dead_letters), 0)::bigint, coalesce(sum(least(dead_letters, %s)), 0)::bigint
FROM ledger
"""


@dataclass(slots=True)
class Truth:
    """Expected state after all rounds so far.

    Attributes:
        ledger: Values pushed by innocent clients.
        owners: Identity of each client instance, by id.
        written: Pushes in the spool, with repeats.
        distinct: Pushes in the spool, without repeats.
    """

    ledger: Ledger = field(default_factory=Ledger)
    owners: dict[str, Identity] = field(default_factory=dict)
    written: int = 0
    distinct: int = 0

    def add(self, flood: Flood) -> None:
        """Add a round."""
        self.ledger.add(flood.ledger)
        self.owners |= flood.owners
        self.written += flood.written
        self.distinct += flood.distinct


def check(connection: psycopg.Connection[Any], truth: Truth) -> list[str]:
    """Compare the tables with the expected state.

    Args:
        connection: The database, with its search path set.
        truth: The expected state.

    Returns:
        One line for each difference.
    """
    return [
        *_counts(connection, truth),
        *_labels(connection, truth),
        *_totals(connection, truth.ledger),
        *_dead_letters(connection, truth),
    ]


def _counts(connection: psycopg.Connection[Any], truth: Truth) -> Iterable[str]:
    # What hostile pushes repeat, and their sums below 0, are left out. Innocent totals are exact.
    pushes, repeats, dead, kept_at_most = connection.execute(_LEDGER, [MAX_ROWS]).fetchall()[0]
    if (pushes, repeats) != (truth.distinct, truth.written - truth.distinct):
        yield (
            f"pushes: the ledger has {pushes} and {repeats} repeats, not {truth.distinct} and "
            f"{truth.written - truth.distinct}"
        )
    kept = connection.execute("SELECT count(*) FROM dead_letter").fetchall()[0][0]
    if kept != kept_at_most:
        yield f"dead letters: the ledger counts {dead}, and {kept} are kept, not {kept_at_most}"


def _labels(connection: psycopg.Connection[Any], truth: Truth) -> Iterable[str]:
    key = _key(connection)
    true_series = {_stored(identity.series_labels, key) for identity in IDENTITIES}
    columns = ", ".join(SERIES_LABELS)
    found = set(connection.execute(f"SELECT DISTINCT {columns} FROM series").fetchall())
    yield from _listed("forged labels of a series", found - true_series)
    true_fleets = {labels[:3] for labels in true_series}
    fleets = set(connection.execute(f"SELECT DISTINCT {', '.join(SERIES_LABELS[:3])} FROM fleet_series"))
    yield from _listed("forged labels of a series of the fleet", fleets - true_fleets)
    wrong = [row for row in connection.execute(_CLIENTS) if not _is_true(row, truth.owners, key)]
    yield from _listed("forged clients", wrong)
    addresses = [
        row
        for row in connection.execute(_ADDRESSES)
        if row[0] not in truth.owners
        or (row[1:] != (None, None) and row[1:] not in _places_of(truth.owners[row[0]]))
    ]
    yield from _listed("forged addresses or brokers of a client's minute", addresses)


def _key(connection: psycopg.Connection[Any]) -> IdKey:
    """Return the key of the hashes in texts that were cut."""
    ((key_id, secret),) = connection.execute("SELECT key_id::text, secret FROM id_key").fetchall()
    return IdKey(key_id=key_id, secret=secret)


def _stored(labels: Iterable[str | None], key: IdKey) -> tuple[str | None, ...]:
    """Return labels in their stored form."""
    return tuple(storable(label, key) for label in labels)


def _is_true(row: tuple[Any, ...], owners: Mapping[str, Identity], key: IdKey) -> bool:
    instance, client_id, software, version, principal, cluster_id, *place = row
    owner = owners.get(instance)
    if owner is None:
        return False
    if not any(row[1:]):  # its pushes had metrics and no data points: nobody's name, not another's
        return not owner.innocent
    labels = (cluster_id, software, version, client_id, principal)
    return labels == _stored(owner.series_labels, key) and tuple(place) in _places_of(owner)


def _places_of(owner: Identity) -> Iterable[tuple[str, str]]:
    """Return the addresses and brokers of a client's pushes."""
    return [(owner.address, str(broker)) for broker in BROKER_IDS]


def _totals(connection: psycopg.Connection[Any], ledger: Ledger) -> Iterable[str]:
    sums: dict[tuple[str, str, str], float] = {}
    points: dict[str, float] = {}
    for client_id, metric, topic, counted, total in connection.execute(_INNOCENT_TOTALS, [_INNOCENT]):
        sums[client_id, metric, topic] = total
        if metric == LATENCY:
            points[client_id] = counted
    wrong_series = {key for key in sums if key[1] not in _ADDED and (key[1], key[2]) not in SERIES}
    yield from _listed("series of innocent clients that they never sent", wrong_series)
    expected = dict(ledger.sums) | {
        (client_id, _PUSHES, ""): pushes for client_id, pushes in ledger.pushes.items()
    }
    yield from _differences("sums of innocent clients", sums, expected)
    counts = {(row[0], row[1]): row[2] for row in connection.execute(_BUCKETS, [_INNOCENT, LATENCY])}
    expected_counts = {key: count for key, count in ledger.counts.items() if count}
    yield from _differences("histograms of innocent clients", counts, expected_counts)
    values: dict[str, float] = {}
    for (client_id, _), count in ledger.counts.items():
        values[client_id] = values.get(client_id, 0) + count
    yield from _differences("values of innocent clients", points, values)
    pushes = dict(connection.execute(_CLIENT_PUSHES, [_INNOCENT]).fetchall())
    yield from _differences("pushes of innocent clients", pushes, dict(ledger.pushes))


def _differences(what: str, found: Mapping[Any, float], expected: Mapping[Any, float]) -> Iterable[str]:
    wrong = [
        f"{key}: {found.get(key)}, not {value}" for key, value in expected.items() if found.get(key) != value
    ]
    yield from _listed(what, wrong)


def _dead_letters(connection: psycopg.Connection[Any], truth: Truth) -> Iterable[str]:
    by_file: dict[str, list[tuple[int, str]]] = {}
    for position, reason in connection.execute("SELECT position, reason FROM dead_letter"):
        file, _, row = position.rpartition("#")
        by_file.setdefault(file, []).append((int(row or 0), reason))
    innocent = []
    for file, letters in by_file.items():
        path = Path(unquote(urlsplit(file).path))
        if not path.exists():  # of an earlier round, after which it was checked
            continue
        ids = pq.read_table(path, columns=["client_instance_id"], partitioning=None).column(0)
        for row, reason in letters:
            owner = truth.owners[ids[row].as_py()]
            if owner.innocent:
                innocent.append(f"{owner.client_id}: {reason}")
    yield from _listed("dead letters of innocent clients", innocent)


def _listed(what: str, found: Iterable[Any]) -> Iterable[str]:
    shown = list(map(str, found))
    if shown:
        more = f" and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
        yield f"{what}: {len(shown)}: {'; '.join(sorted(shown)[:_MOST_SHOWN])}{more}"


def size_of(connection: psycopg.Connection[Any]) -> dict[str, int]:
    """Return the estimated rows and bytes of each table, and of all under ``""``."""
    query = (
        "SELECT coalesce(root.relname, c.relname), sum(pg_total_relation_size(c.oid))::bigint "
        "FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid "
        "LEFT JOIN pg_class root ON root.oid = i.inhparent "
        "WHERE c.relnamespace = 'telemetry'::regnamespace AND c.relkind = 'r' GROUP BY 1"
    )
    sizes = dict(connection.execute(query).fetchall())
    return sizes | {"": sum(sizes.values())}
