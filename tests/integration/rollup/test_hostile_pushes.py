"""Hostile pushes among good ones, from the telemetry core to the tables: a short round of `make fuzz-pipeline`."""

from __future__ import annotations

import time
from pathlib import Path

import psycopg
import pytest

from tests.fuzz.pipeline.checks import Truth, check
from tests.fuzz.pipeline.flood import Plan, write_round
from tests.fuzz.pipeline.grammar import FEATURES
from tests.integration.rollup.conftest import Roll

_HOUR_NS = 3_600_000_000_000


def test_no_good_push_is_lost_among_hostile_ones(roll: Roll, folder: Path, database: str) -> None:
    plan = Plan(seed="gate", number=0, pushes=2_000, starts_ns=time.time_ns() - _HOUR_NS)
    flood = write_round(plan, folder)
    roll()
    truth = Truth()
    truth.add(flood)
    assert flood.refused_innocents == []
    with psycopg.connect(database) as connection:
        connection.execute("SET search_path = telemetry")
        assert check(connection, truth) == []


@pytest.mark.parametrize("feature", FEATURES)
def test_x(roll: Roll, folder: Path, database: str, feature: str) -> None:
    plan = Plan(seed="gate", number=0, pushes=2_000, starts_ns=time.time_ns() - _HOUR_NS, features=(feature,))
    flood = write_round(plan, folder)
    roll()
    truth = Truth()
    truth.add(flood)
    assert flood.refused_innocents == []
    with psycopg.connect(database) as connection:
        connection.execute("SET search_path = telemetry")
        assert check(connection, truth) == []
