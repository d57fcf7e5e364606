"""Ids of older versions, and the downgrade of a database to them.

The ids were XXH64 of 64 bits by a public seed. For texts of 8 bytes the function can be run
backwards: who knows two series' labels can compute a topic that makes one the other.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
import psycopg

from spark_streaming.contributions.codec import (
    COMBINED_ROW,
    COUNT_ROW,
    CUMULATIVE_ROW,
    NO_COUNTS,
    decode_contribution,
    decode_cumulative,
    encode_contribution,
)
from spark_streaming.postgres.partitions import PACKED
from spark_streaming.postgres.tables import GRAINS, MINUTES, TOTALS

__all__ = [
    "client_key",
    "downgrade",
    "downgrade_to_0003",
    "fleet_id",
    "forged_instance",
    "forged_topic",
    "series_id",
]

_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_SEED = 42
#: SQL that merges the rows of one key and minute.
_MERGED = {
    "add": "sum({0})",
    "least": "min({0})",
    "greatest": "max({0})",
    "any": "bool_or({0})",
    "newest": "max({0})",
}
_OLD_MIGRATIONS = ("0001_tables", "0002_views")


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> (64 - by)) & _MASK


def _lane(word: int) -> int:
    return _rotated(word * _P2 & _MASK, 31) * _P1 & _MASK


def _mixed(hashed: int) -> int:
    hashed = (hashed ^ hashed >> 33) * _P2 & _MASK
    hashed = (hashed ^ hashed >> 29) * _P3 & _MASK
    return hashed ^ hashed >> 32


def xxh64(data: bytes, seed: int) -> int:
    """XXH64, unsigned."""
    seed &= _MASK
    at = len(data) // 32 * 32
    hashed = seed + _P5
    if at:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        for index, (word,) in enumerate(struct.iter_unpack("<Q", data[:at])):
            lanes[index % 4] = _rotated((lanes[index % 4] + word * _P2) & _MASK, 31) * _P1 & _MASK
        hashed = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            hashed = ((hashed ^ _lane(lane)) * _P1 + _P4) & _MASK
    hashed = (hashed + len(data)) & _MASK
    while len(data) - at >= 8:
        hashed = (
            _rotated(hashed ^ _lane(int.from_bytes(data[at : at + 8], "little")), 27) * _P1 + _P4
        ) & _MASK
        at += 8
    if len(data) - at >= 4:
        word = int.from_bytes(data[at : at + 4], "little")
        hashed = (_rotated(hashed ^ word * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        hashed = _rotated(hashed ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    return _mixed(hashed)


def _long(word: int, seed: int) -> int:
    return xxh64(struct.pack("<Q", word & _MASK), seed)


def _all(seed: int, *texts: str | None) -> int:
    present = 0
    for text in texts:
        present = present << 1 | (text is not None)
    hashed = _long(present, seed)
    for text in texts:
        hashed = hashed if text is None else xxh64(text.encode(), hashed)
    return hashed


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def client_key(instance: str) -> int:
    """The key of a client instance."""
    return _signed(xxh64(instance.encode(), _SEED))


def _fleet_seed(labels: Mapping[str, str | None]) -> int:
    names = ("cluster_id", "client_software_name", "client_software_version")
    return _all(_SEED, *(labels.get(name) for name in names))


def fleet_id(metric: str, labels: Mapping[str, str | None]) -> int:
    """The id of a fleet series."""
    return _signed(_long(xxh64(metric.encode(), _SEED), _fleet_seed(labels)))


def _series_seed(metric: str, labels: Mapping[str, str | None]) -> int:
    label_hash = _all(
        _fleet_seed(labels), *(labels.get(name) for name in ("client_id", "principal", "group_id"))
    )
    return _long(xxh64(metric.encode(), _SEED), label_hash)


def series_id(metric: str, labels: Mapping[str, str | None], *, breakdown: bool = False) -> int:
    """The id of a series."""
    texts = [labels.get(name) for name in ("topic", "node_id", "node_role")]
    which = sum(1 << bit for bit, text in enumerate(texts) if text is not None) | 8 * breakdown
    hashed = _long(which, _series_seed(metric, labels))
    for text in texts:
        hashed = hashed if text is None else xxh64(text.encode(), hashed)
    return _signed(hashed)


def _unshifted(word: int, by: int) -> int:
    found = word
    for _ in range(64 // by):
        found = word ^ found >> by
    return found


def _last_word(hashed: int, before: int) -> int:
    """Return the 8 bytes that lead from the state ``before`` to a hash."""
    word = _unshifted(hashed & _MASK, 32) * pow(_P3, -1, 1 << 64) & _MASK
    word = _unshifted(word, 29) * pow(_P2, -1, 1 << 64) & _MASK
    word = _unshifted(word, 33)
    word = _rotated((word - _P4) * pow(_P1, -1, 1 << 64) & _MASK, 37) ^ before
    return _rotated(word * pow(_P1, -1, 1 << 64) & _MASK, 33) * pow(_P2, -1, 1 << 64) & _MASK


def _preimage(hashed: int, seed: int) -> tuple[str, int]:
    """A text of 16 bytes with this hash, and how many were tried until one was text."""
    for tries in itertools.count(1):
        begin = f"{tries:08d}".encode()
        state = (seed + _P5 + 16) & _MASK
        state = (_rotated(state ^ _lane(int.from_bytes(begin, "little")), 27) * _P1 + _P4) & _MASK
        try:
            text = (begin + struct.pack("<Q", _last_word(hashed, state))).decode()
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text, tries
    raise AssertionError("count() has no end")


def forged_topic(
    metric: str, mine: Mapping[str, str | None], theirs: Mapping[str, str | None]
) -> tuple[str, int]:
    """Return a topic that gives a series another's id, and the number of tries."""
    return _preimage(series_id(metric, theirs), _long(1, _series_seed(metric, mine)))


def forged_instance(instance: str) -> tuple[str, int]:
    """Another client instance id with the same key, and how many were tried."""
    return _preimage(client_key(instance), _SEED)


def downgrade_to_0003(connection: psycopg.Connection[Any]) -> None:
    """Downgrade a database to migration 0003, before further dimensions."""
    connection.execute("SET search_path = telemetry")
    views = [
        name for (name,) in connection.execute("SELECT viewname FROM pg_views WHERE schemaname = 'telemetry'")
    ]
    connection.execute(
        f"DROP VIEW {', '.join(views)} CASCADE; DROP FUNCTION whole_until, hours_until, days_until".encode()
    )
    connection.execute(
        "ALTER TABLE horizon DROP hours_computed_until, DROP days_computed_until, DROP minutes_covered_until"
    )
    connection.execute("ALTER TABLE coarse DROP changed_from, DROP computed_until")
    connection.execute(
        "ALTER TABLE client_state DROP to_carry, ADD carry_to bigint "
        "GENERATED ALWAYS AS ((last_ns / 1000000 + 3 * push_interval_ms) / 60000) STORED"
    )
    connection.execute(
        "CREATE INDEX client_state_to_carry ON client_state (covered_until) "
        "WHERE NOT terminated AND covered_until < carry_to"
    )
    _without_merged(connection)
    _without_packed(connection)
    _without_loads(connection)
    _without_ranges(connection)
    for kind in ("rollup", "fleet_rollup"):
        for grain in ("1m", "1h", "1d"):
            connection.execute(f"ALTER TABLE {kind}_{grain} DROP pushed_sum".encode())
    connection.execute("DROP INDEX series_reasons")
    connection.execute("ALTER TABLE horizon DROP read_until")
    for grain in ("1m", "1h"):
        connection.execute(f"ALTER TABLE client_rollup_{grain} DROP push_interval_ms_sum".encode())
    connection.execute("ALTER TABLE series DROP reason, DROP error, DROP acks, DROP partition")
    connection.execute(
        "CREATE INDEX series_without_hash ON series (texts_digest("
        "metric, cluster_id, client_software_name, client_software_version, client_id, principal, "
        "group_id, topic, node_id, node_role, breakdown::text)) WHERE series_high IS NULL"
    )
    connection.execute((files("spark_streaming.postgres") / "schema" / "0002_views.sql").read_bytes())
    connection.execute("DELETE FROM migration WHERE name >= '0004'")


def _without_merged(connection: psycopg.Connection[Any]) -> None:
    """Downgrade from migration 0016."""
    connection.execute("ALTER TABLE horizon DROP minutes_merged_until")
    for totals in TOTALS:
        connection.execute(f"DROP INDEX {totals.table(MINUTES)}_minute".encode())


def _without_packed(connection: psycopg.Connection[Any]) -> None:
    """Downgrade from migration 0014. No row may be packed."""
    connection.execute(
        "ALTER TABLE horizon DROP minutes_packed_until, DROP hours_packed_until, DROP days_packed_until; "
        "DROP TABLE repack, slot_1m, slot_1h, slot_1d"
    )
    for table in PACKED:
        connection.execute(f"DROP TABLE {table}".encode())


def _without_loads(connection: psycopg.Connection[Any]) -> None:
    """Downgrade from migration 0013: one row for each key and minute."""
    for totals in TOTALS:
        table, key = totals.table(MINUTES), ", ".join(totals.key)
        values = ", ".join(f"{_MERGED[how].format(name)} AS {name}" for name, how in totals.values.items())
        columns = f"bucket, {key}, {', '.join(totals.values)}"
        waiting = [totals.waiting(grain) for grain in GRAINS[1:] if grain.name in totals.grains]
        for statement in (
            f"CREATE TEMPORARY TABLE merged ON COMMIT DROP AS SELECT bucket, {key}, {values} "
            f"FROM {table} GROUP BY bucket, {key}",
            f"TRUNCATE {table}",
            f"ALTER TABLE {table} DROP load_id",
            f"DROP INDEX {table}_key",
            f"INSERT INTO {table} ({columns}) SELECT {columns} FROM merged",
            f"ALTER TABLE {table} ADD PRIMARY KEY ({totals.key[0]}, bucket"
            f"{''.join(f', {name}' for name in totals.key[1:])})",
            f"CREATE INDEX {table}_bucket ON {table} USING brin (bucket)",
            "DROP TABLE merged",
            f"DROP TABLE {', '.join(waiting)}",
        ):
            connection.execute(statement.encode())
    connection.execute(
        "DROP TABLE pending_load, client_load, dead_letter_load; DROP SEQUENCE load_id; "
        "ALTER TABLE push DROP load_id; ALTER TABLE contribution DROP load_id; "
        "ALTER TABLE horizon ADD newest_minute timestamptz NOT NULL DEFAULT 'epoch'"
    )


def _without_ranges(connection: psycopg.Connection[Any]) -> None:
    """Downgrade from migration 0010: one contribution for each minute."""
    columns = "client_key, minute, entries, last_ns, packed"
    connection.execute(
        f"INSERT INTO contribution ({columns}) SELECT client_key, at, entries, last_ns, packed "
        "FROM contribution, generate_series(minute + 1, until) AS at".encode()
    )
    connection.execute(
        f"INSERT INTO contribution ({columns}) SELECT client_key, at, 0, last_ns, counts "
        "FROM client_state, generate_series(carried_from, covered_until) AS at WHERE counts <> %s".encode(),
        [NO_COUNTS],
    )
    connection.execute("ALTER TABLE contribution DROP until; ALTER TABLE client_state DROP carried_from")


def downgrade(connection: psycopg.Connection[Any]) -> None:
    """Downgrade a database to migration 0002, where ids are hashes."""
    connection.execute("SET search_path = telemetry")
    names = (
        "cluster_id client_software_name client_software_version client_id principal group_id topic node_id"
    )
    columns = ["series_id", "fleet_id", "metric", "breakdown", *names.split(), "node_role"]
    series, fleets = {}, {}
    for one, fleet, metric, breakdown, *texts in connection.execute(
        f"SELECT {', '.join(columns)} FROM series".encode()
    ).fetchall():
        labels = dict(zip(columns[4:], texts, strict=True))
        series[one] = series_id(metric, labels, breakdown=breakdown)
        fleets[fleet] = fleet_id(metric, labels)
    keys = {
        key: client_key(instance)
        for instance, key in connection.execute("SELECT client_instance_id, client_key FROM client_state")
    }
    for table, column in (("contribution", "packed"), ("client_state", "counts")):
        for ctid, blob in connection.execute(
            f"SELECT ctid, {column} FROM {table} WHERE {column} IS NOT NULL".encode()
        ).fetchall():
            connection.execute(
                f"UPDATE {table} SET {column} = %s WHERE ctid = %s AND {column} = %s".encode(),
                (_old_contribution(blob, series, fleets), ctid, blob),
            )
    for key, blob in connection.execute(
        "SELECT client_key, cumulative FROM client_state WHERE length(cumulative) > 1"
    ).fetchall():
        connection.execute(
            "UPDATE client_state SET cumulative = %s WHERE client_key = %s", (_old_cumulative(blob), key)
        )
    for mapping, column, kinds in (
        (series, "series_id", ("series", "rollup", "rollup_histogram")),
        (fleets, "fleet_id", ("series", "fleet_series", "fleet_rollup", "fleet_spread")),
        (keys, "client_key", ("client_state", "client_rollup", "contribution")),
    ):
        for table in _tables(connection, kinds):
            connection.execute(
                f"UPDATE {table} SET {column} = new FROM unnest(%s::bigint[], %s::bigint[]) AS m (old, new) "
                f"WHERE {column} = old".encode(),
                (list(mapping), list(mapping.values())),
            )
    downgrade_to_0003(connection)
    connection.execute(
        "DROP TABLE id_key; "
        "ALTER TABLE series DROP series_high, DROP series_low; "
        "DROP INDEX fleet_series_dimensions; DROP FUNCTION texts_digest; DROP INDEX client_state_instance; "
        "CREATE INDEX client_state_instance ON client_state (client_instance_id); "
        "ALTER TABLE series ALTER series_id DROP DEFAULT; "
        "ALTER TABLE fleet_series ALTER fleet_id DROP DEFAULT; "
        "ALTER TABLE client_state ALTER client_key DROP DEFAULT; "
        "DROP SEQUENCE series_id, fleet_series_id, client_state_id"
    )
    connection.execute("DELETE FROM migration WHERE NOT name = ANY (%s)", [list(_OLD_MIGRATIONS)])


def _tables(connection: psycopg.Connection[Any], kinds: Sequence[str]) -> Iterable[str]:
    for kind in kinds:
        for name in (kind, f"{kind}_1m", f"{kind}_1h", f"{kind}_1d"):
            if connection.execute("SELECT to_regclass(%s)", [name]).fetchone() != (None,):
                yield name


def _old_contribution(blob: bytes, series: Mapping[int, int], fleets: Mapping[int, int]) -> bytes:
    form, push_id, body = decode_contribution(blob)
    if form == "entry":
        points = len(body) // COUNT_ROW.itemsize
        ids = struct.unpack_from(f"<{2 * points}q", body)
        old = [series[one] for one in ids[:points]] + [fleets[one] for one in ids[points:]]
        return encode_contribution(form, push_id, struct.pack(f"<{2 * points}q", *old) + body[16 * points :])
    rows = np.frombuffer(body, COMBINED_ROW if form == "combined" else COUNT_ROW).copy()
    for name, mapping in (("series", series), ("fleet", fleets)):
        rows[name] = [mapping[one] for one in rows[name].tolist()]
    return encode_contribution(form, push_id, rows.tobytes())


def _old_cumulative(blob: bytes) -> bytes:
    """Return version 1 of one sum, whose point has no attributes."""
    (row,) = np.frombuffer(decode_cumulative(blob), CUMULATIVE_ROW)
    identity = _signed(_long(0, xxh64(OLD_SUM.encode(), _SEED)))
    return b"\x01" + struct.pack("<qqqd", identity, row["start_ns"], row["time_ns"], row["value"])


#: The only cumulative sum in a database that is downgraded.
OLD_SUM = "a.cumulative.total"
