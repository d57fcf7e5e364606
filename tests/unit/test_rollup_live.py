"""The live benchmark of the roll-up: how long files wait for their commit."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from benchmarks.rollup_live import Committed, Due, _since, vacuum_seconds, waits
from benchmarks.rollup_spool import Fleet


def due(at_s: float, pushes: int) -> Due:
    return Due(at_s=at_s, path=Path("file"), pushes=pushes)


def batch(at_s: float, pushes: int) -> Committed:
    return Committed(at_s=at_s, pushes=pushes, points=pushes, rows=pushes)


def test_a_file_waits_until_the_batch_that_has_all_of_it() -> None:
    assert waits([due(10, 5), due(20, 5)], [batch(12, 5), batch(25, 5)]) == [2, 5]


def test_a_batch_may_have_several_files() -> None:
    assert waits([due(10, 5), due(20, 5), due(30, 5)], [batch(31, 10), batch(33, 5)]) == [21, 11, 3]


def test_a_batch_without_pushes_commits_no_file() -> None:
    assert waits([due(10, 5)], [batch(11, 0), batch(12, 5)]) == [2]


def test_a_file_that_is_not_committed_has_no_wait() -> None:
    assert waits([due(10, 5), due(20, 5)], [batch(12, 5), batch(22, 4)]) == [2]


def test_pushes_of_earlier_files_are_left_out() -> None:
    files = [due(10, 5), due(20, 5)]
    assert _since([batch(11, 3), batch(12, 4), batch(21, 3)], files, begin_s=20) == [
        Committed(at_s=12, pushes=2, points=4, rows=4),
        batch(21, 3),
    ]


def test_vacuum_of_the_packed_hour_belongs_to_packing() -> None:
    # As PostgreSQL 18 writes it.
    log = "".join(
        f'2026-11-24 11:44:00 UTC [7] LOG:  automatic {what} of table "postgres.telemetry.{table}"{more}\n'
        f"\tsystem usage: CPU: user: {user} s, system: 0.01 s, elapsed: 3.00 s\n"
        for what, table, more, user in (
            ("vacuum", "rollup_1m_p2026112409", ": index scans: 0\n\tpages: 0 removed, 9 remain", 0.5),
            ("analyze", "client_rollup_1m_p2026112409", "", 0.2),
            ("vacuum", "rollup_1m_p2026112411", ": index scans: 0", 10.0),
            ("analyze", "rollup_1m_packed_p20261124", "", 0.1),
            ("analyze", "push_p20261124", "", 20.0),
        )
    )
    assert round(vacuum_seconds(log, datetime(2026, 11, 24, 9, tzinfo=UTC)), 6) == 0.83


def test_each_client_of_the_fleet_pushes_points(tmp_path: Path) -> None:
    """A core that asks for nothing would drop them."""
    fleet = Fleet(instances=20, client_ids=20)
    file = fleet.write_file(tmp_path, pushes=20, begin_ns=1_700_000_000_000_000_000)
    assert (file.pushes, file.points > 20 * 10) == (20, True)
