"""The model, numpy and PostgreSQL agree on random histories.

Pushes come late, again, without points, with points of several minutes, and as the last ones of
their clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from spark_streaming.postgres import Store
from spark_streaming.settings import RetentionSettings
from tests.exploration import SEED
from tests.property.spark_streaming import histories
from tests.property.spark_streaming.histories import Batch, Spread, Sums
from tests.property.spark_streaming.model import totals
from tests.testbed.postgres import Postgres
from tests.unit.spark_streaming.contributions.support import LAST, Entry, Point

_ROUNDS, _OF_A_ROUND = 40, 2_500


def require_equal(
    batches: Sequence[Batch], found: tuple[Sums, Spread], expected: tuple[Sums, Spread]
) -> None:
    """Compare totals; show the batches of a history that differs."""
    differing = histories.differing(found[0], expected[0])
    shown = [batch for number in sorted(differing)[:1] for batch in histories.of_history(batches, number)]
    assert not differing, shown
    assert found[1] == expected[1]


def compare(random: Random, count: int, postgres: Postgres) -> None:
    """Compare the model, numpy and PostgreSQL."""
    batches = histories.generate(random, count)
    by_numpy = histories.by_numpy(batches)
    entries = [entry for batch in batches for entry in batch.entries]
    require_equal(batches, by_numpy, totals(entries, histories.CLOSED))
    with postgres.database() as url, Store(url, retention=RetentionSettings()) as store:
        store.migrate()
        again = histories.repeated(random, batches)
        require_equal(again, histories.by_postgres(store, url, again), by_numpy)


def test_model_numpy_and_postgresql_agree(postgres: Postgres) -> None:
    compare(Random(1), 60, postgres)


def test_the_minute_of_a_last_push_without_points_has_the_gauges(postgres: Postgres) -> None:
    """It is complete after the push, so that maintenance fills it."""
    gauge = (Point(1, 9.0, LAST),)
    last = Entry(time_ns=90 * 10**9, push="b", terminating=True)
    batches = [
        Batch(pushes=[(Entry(time_ns=50 * 10**9, push="a", points=gauge),)], closed=0, carried=None),
        Batch(pushes=[(last,)], closed=0, carried=None),
    ]
    with postgres.database() as url, Store(url, retention=RetentionSettings()) as store:
        store.migrate()
        sums, _ = histories.by_postgres(store, url, batches)
    assert sums == {(0, 1): 9.0, (1, 1): 9.0} == histories.by_numpy(batches)[0]


@pytest.mark.full
@pytest.mark.explores
@pytest.mark.timeout(3600)
def test_they_agree_on_100_000_histories(postgres: Postgres) -> None:
    random = Random(SEED or "histories")
    for _ in range(_ROUNDS):
        compare(random, _OF_A_ROUND, postgres)
