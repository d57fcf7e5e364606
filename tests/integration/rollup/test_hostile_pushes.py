"""A short run of `make fuzz-pipeline`: hostile pushes among good ones."""

from __future__ import annotations

import time
from pathlib import Path

import psycopg
import pytest

from tests.fuzz.pipeline.checks import Truth, check
from tests.fuzz.pipeline.flood import Plan, write_round
from tests.integration.rollup.conftest import Roll

_PUSHES = 1_000
_HOUR_NS = 3_600_000_000_000

#: What a failure would do to the tables, and what the checks say then.
_TAMPERINGS = {
    "UPDATE series SET principal = 'User:forged' WHERE client_id = 'hostile-02'": "forged labels of a series",
    "UPDATE fleet_series SET client_software_name = 'forged'": "forged labels of a series of the fleet",
    "UPDATE client_state SET client_id = 'innocent-01' WHERE client_id = 'hostile-02'": "forged clients",
    "UPDATE client_rollup_1m SET client_source_address = '10.1.0.9'": "forged addresses",
    "UPDATE rollup_1m SET sum = sum + 1": "sums of innocent clients",
    "UPDATE rollup_histogram_1m SET count = count + 1": "histograms of innocent clients",
    "UPDATE client_rollup_1m SET pushes = pushes + 1": "pushes of innocent clients",
    "UPDATE ledger SET pushes = pushes - 1": "pushes: the ledger has",
    "DELETE FROM ledger": "pushes: the ledger has 0",
}


@pytest.mark.full
def test_no_good_push_is_lost_among_hostile_ones(roll: Roll, folder: Path, database: str) -> None:
    plan = Plan(seed="gate", number=0, pushes=_PUSHES, starts_ns=time.time_ns() - _HOUR_NS, bombs=0.0)
    flood = write_round(plan, folder)
    assert flood.refused_innocents == []
    roll()
    truth = Truth()
    truth.add(flood)
    with psycopg.connect(database) as connection:
        connection.execute("SET search_path = telemetry")
        connection.commit()
        assert check(connection, truth) == []
        for tampering, problem in _TAMPERINGS.items():
            connection.execute(tampering)
            assert any(found.startswith(problem) for found in check(connection, truth)), tampering
            connection.rollback()
