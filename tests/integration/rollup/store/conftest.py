"""The store's own fixtures: no Spark here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_streaming.postgres import Store
from spark_streaming.settings import RetentionSettings


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    """A store in a fresh database, migrated."""
    with Store(database, retention=RetentionSettings()) as store:
        store.migrate()
        yield store
