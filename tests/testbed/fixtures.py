"""The testbed's pytest fixtures, which tests/conftest.py loads for all tests.

Brokers and the collector start when the first test asks for them and live as long as the session.
Tests share them, so each uses topics, client ids and groups of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.testbed.broker import KafkaBroker, Listener
from tests.testbed.collector import Collector
from tests.testbed.ports import free_port
from tests.testbed.postgres import Postgres
from tests.testbed.sidecar import Sidecar, config_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    """A broker without telemetry; CLIENT and SASL advertise ports kept for a sidecar."""
    sasl = Listener(name="SASL", security_protocol="SASL_PLAINTEXT", advertised_port=free_port())
    with KafkaBroker(advertised_client_port=free_port(), listeners=[sasl]) as started:
        yield started


@pytest.fixture(scope="session")
def plugin_broker() -> Iterator[KafkaBroker]:
    """A broker that advertises itself and takes telemetry with a counting plugin."""
    sasl = Listener(name="SASL", security_protocol="SASL_PLAINTEXT")
    with KafkaBroker(telemetry_plugin=True, listeners=[sasl]) as started:
        yield started


@pytest.fixture(scope="session")
def shared_collector() -> Iterator[Collector]:
    """The collector, with what arrived in earlier tests still in it."""
    with Collector() as started:
        yield started


@pytest.fixture
def collector(shared_collector: Collector) -> Collector:
    """The collector, without what arrived in earlier tests."""
    shared_collector.forget()
    return shared_collector


@pytest.fixture
def sidecar(broker: KafkaBroker, collector: Collector) -> Iterator[Sidecar]:
    """A fresh sidecar where ``broker`` sends its clients, exporting to ``collector``."""
    with Sidecar(config_for(broker, collector=collector)) as started:
        yield started


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server, to be stopped and started only by who starts it again."""
    with Postgres() as started:
        yield started


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """A fresh, empty database of ``postgres``: its URL."""
    with postgres.database() as url:
        yield url


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the process, with the decoder, Kafka and Delta."""
    # Not before it is needed: Spark takes a second to load.
    from spark_streaming.session import end, spark_session
    from spark_streaming.settings import RollupSettings

    session = spark_session(
        RollupSettings.model_validate(
            {
                "source": "kafka",
                "kafka": {"bootstrap_servers": "127.0.0.1:1", "topic": "none"},
                "lake": {"path": "none", "format": "delta"},
            }
        )
    )
    yield session
    end(session)
