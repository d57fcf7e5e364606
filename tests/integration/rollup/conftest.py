"""Runs of the roll-up in this process, over a spool and a database of each test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from spark_streaming.job import Job
from spark_streaming.load import load
from spark_streaming.postgres import Store
from spark_streaming.settings import RetentionSettings, RollupSettings
from tests.integration.rollup import fleet

Query = Callable[..., list[tuple[Any, ...]]]
Roll = Callable[..., None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The spool's folder, not made yet."""
    return tmp_path / "telemetry"


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    """The store in the test's database."""
    with Store(database, retention=RetentionSettings()) as opened:
        yield opened


@pytest.fixture
def settings(folder: Path, tmp_path: Path) -> Callable[..., RollupSettings]:
    """Settings for the test's spool, with others over them."""

    def made(**other: Any) -> RollupSettings:
        return load(
            None, {"spool_files": {"path": str(folder)}, "checkpoint": str(tmp_path / "checkpoint"), **other}
        )

    return made


@pytest.fixture
def roll(spark: SparkSession, store: Store, settings: Callable[..., RollupSettings]) -> Roll:
    """Take in everything there is."""

    def once(**other: Any) -> None:
        Job(spark, store, settings(**other), threading.Event()).run_once()

    return once


@pytest.fixture
def query(database: str) -> Iterator[Query]:
    """Ask the database."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET search_path = telemetry; SET timezone = 'UTC'")

        def ask(text: str, *values: Any) -> list[tuple[Any, ...]]:
            cursor = connection.execute(text, values)
            return cursor.fetchall() if cursor.description else []

        yield ask


@pytest.fixture(scope="session")
def rolled_up() -> Iterator[fleet.Fleet]:
    """Database filled by the real job from captured pushes of real clients."""
    with ExitStack() as stack:
        yield fleet.run(stack)
