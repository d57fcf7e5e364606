"""The store's own fixtures: no Spark here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_streaming.postgres import Store, packer
from spark_streaming.settings import RetentionSettings


@pytest.fixture(autouse=True)
def unhurried_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a call merge and pack all there is, however slow the machine is."""
    monkeypatch.setattr(packer, "_BUDGET_S", 3600.0)


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    """A store in a fresh database, migrated."""
    with Store(database, retention=RetentionSettings()) as store:
        store.migrate()
        yield store
