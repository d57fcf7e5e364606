"""The damaged file of a checkpoint is found, and a whole one has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_streaming.checkpoint import damaged_file

WHOLE = {
    "metadata": '{"id":"5d"}',
    "offsets/9": 'v1\n{"batchWatermarkMs":0}\n-',
    "offsets/10": 'v1\n{"batchWatermarkMs":0}\n{"logOffset":0}',
    "commits/9": 'v1\n{"nextBatchWatermarkMs":0}',
    "sources/0/0": 'v1\n{"path":"file:/x","timestamp":1,"batchId":0}',
    "sources/0/.0.crc": "crc",
    # As Spark writes it for Kafka.
    "sources/1/0": '\0v1\n{"client-telemetry":{"0":12}}',
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for name, text in WHOLE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", [name for name in WHOLE if not name.endswith("crc")])
@pytest.mark.parametrize("text", ["", "v1\n{", "{"])
def test_a_file_that_was_cut_off_is_named(checkpoint: Path, name: str, text: str) -> None:
    assert damaged_file(str(checkpoint), "end of input") is None
    (checkpoint / name).write_text(text)
    assert damaged_file(str(checkpoint), "end of input") == str(checkpoint / name)
    assert damaged_file(checkpoint.as_uri(), "end of input") == str(checkpoint / name)


def test_sparks_own_word_comes_first(checkpoint: Path) -> None:
    failure = "Failed to read log file s3a://b/commits/1. Incomplete log file in the offset commit log"
    assert damaged_file("s3a://b", failure) == "s3a://b/commits/1"
    assert damaged_file("s3a://b", "no route") is None
    assert damaged_file(str(checkpoint / "absent"), "no route") is None
