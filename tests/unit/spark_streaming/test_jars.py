"""Where the jars for Spark come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_streaming.jars import JarsError, jars


def test_the_decoder_is_there_by_itself_and_the_others_where_they_are_needed() -> None:
    [decoder] = jars(kafka=False)
    assert decoder.name == "decoder.jar"
    found = jars(kafka=True, delta=True)
    assert found[0] == decoder
    names = " ".join(jar.name for jar in found)
    for name in ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2"):
        assert name in names
    assert "delta-spark" in names
    assert "delta-storage" in names


def test_a_folder_that_is_named_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_TELEMETRY_JARS", str(tmp_path))
    (tmp_path / "decoder").mkdir()
    jar = tmp_path / "decoder" / "a.jar"
    jar.touch()
    assert jars(kafka=False) == (jar,)
    with pytest.raises(JarsError, match=r"has no jars: run `python -m spark_streaming.jars"):
        jars(kafka=True)


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JarsError, match=r"javac is missing.*openjdk-17-jdk-headless"):
        jars(kafka=False)
    assert not list((tmp_path / "kafka-client-telemetry").glob("spark-*")), "something was left behind"


def test_a_cache_that_cant_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(JarsError, match="can't be put into"):
        jars(kafka=False)
