"""What is said of a source before the first batch."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from plugins.spool_files.config import SpoolFilesConfig
from spark_streaming.job import done_percent
from spark_streaming.load import load
from spark_streaming.settings import RollupSettings
from spark_streaming.sources import check_reachable, first_batch


def of_kafka(*addresses: str) -> RollupSettings:
    return load(None, {"source": "kafka", "kafka": {"bootstrap_servers": ",".join(addresses), "topic": "t"}})


def test_one_of_kafkas_addresses_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        there = f"127.0.0.1:{listening.getsockname()[1]}"
        check_reachable(of_kafka("127.0.0.1:1", there))
    check_reachable(load(None, {}))


def test_each_address_that_does_not_accept_is_named_with_the_reason() -> None:
    with pytest.raises(
        ConnectionError,
        match=r"kafka\.bootstrap_servers: none can be reached: 127\.0\.0\.1:1: .+refused; \[::1\]:1",
    ):
        check_reachable(of_kafka("127.0.0.1:1", "[::1]:1"))


def test_what_is_no_address_is_left_to_kafkas_client() -> None:
    check_reachable(of_kafka("broker"))


def test_the_first_batch_is_announced(tmp_path: Path) -> None:
    files = load(None, {"spool_files": {"path": str(tmp_path)}, "trigger_seconds": 5})
    waits = SpoolFilesConfig.model_fields["roll_seconds"].default
    assert first_batch(files) == (
        "within 5 s of the first file, of which there is none yet: the receiver writes one "
        f"spool_files.roll_seconds ({waits}) after a push"
    )
    (tmp_path / "hour").mkdir()
    (tmp_path / "hour" / "_new.parquet").touch()
    assert "none yet" in first_batch(files)
    (tmp_path / "hour" / "one.parquet").touch()
    assert first_batch(files) == "within 5 s of the first new file"
    assert first_batch(of_kafka("127.0.0.1:1")) == "within 10 s of the first new record"


@pytest.mark.parametrize(
    ("reached", "percent"), [(0, 0), (100, 0), (149, 49), (200, 100), (250, 100), (10**19, 100)]
)
def test_a_rebuild_is_done_when_it_reaches_the_newest_push(reached: int, percent: int) -> None:
    assert done_percent(100, reached, 200) == percent
    assert done_percent(200, reached, 200) == 100
