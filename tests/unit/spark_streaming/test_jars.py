"""The jars for Spark are found, built, fetched and verified."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

import spark_streaming.jars
from spark_streaming.jars import JarsError, jars

#: Stands in for Maven. Copies the jars in the folder of the profile.
MAVEN = """#!/bin/sh
for word; do
    case "$before" in --activate-profiles) profile=$word ;; esac
    case "$word" in -DoutputDirectory=*) folder=${word#*=} ;; esac
    before=$word
done
cp SERVED/"$profile"/* "$folder"
"""


def test_kafka_and_delta_jars_are_included_only_on_request() -> None:
    [decoder] = jars(kafka=False)
    assert decoder.name == "decoder.jar"
    found = jars(kafka=True, delta=True)
    assert found[0] == decoder
    names = " ".join(jar.name for jar in found)
    for name in ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2"):
        assert name in names
    assert "delta-spark" in names
    assert "delta-storage" in names


def test_the_folder_in_the_variable_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_TELEMETRY_JARS", str(tmp_path))
    (tmp_path / "decoder").mkdir()
    jar = tmp_path / "decoder" / "a.jar"
    jar.touch()
    assert jars(kafka=False) == (jar,)
    with pytest.raises(JarsError, match=r"has no jars: run `python -m spark_streaming.jars"):
        jars(kafka=True)


def test_a_missing_compiler_is_reported_with_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JarsError, match=r"javac is needed.*openjdk-17-jdk-headless"):
        jars(kafka=False)
    assert not list((tmp_path / "kafka-client-telemetry").glob("spark-*")), "something was left behind"


def test_an_unwritable_cache_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(JarsError, match="can't write the jars to"):
        jars(kafka=False)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Jars that Maven fetches, in a folder for each profile. The cache is empty."""
    served = tmp_path / "served"
    for jar in jars(kafka=True, delta=True)[1:]:
        folder = served / ("delta" if jar.name.startswith("delta-") else "kafka")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(jar, folder)
    (tmp_path / "bin").mkdir()
    maven = tmp_path / "bin" / "mvn"
    maven.write_text(MAVEN.replace("SERVED", str(served)))
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return served


@pytest.mark.full
def test_fetched_jars_are_cached_and_an_incomplete_build_is_removed(served: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "kafka-client-telemetry"
    left_over = cache / ".building-spark-kafka-0123456789abcdef-abcd"
    left_over.mkdir(parents=True)
    (left_over / "half.jar").touch()
    assert {jar.name for jar in jars(kafka=True)[1:]} == {jar.name for jar in (served / "kafka").iterdir()}
    assert not left_over.exists()


@pytest.mark.full
@pytest.mark.parametrize("change", ["changed", "added", "missing"])
def test_a_jar_that_is_not_the_locked_one_is_refused(served: Path, tmp_path: Path, change: str) -> None:
    (jar,) = served.glob("kafka/kafka-clients-*.jar")
    if change == "changed":
        jar.write_bytes(jar.read_bytes() + b"\0")
    elif change == "added":
        jar = jar.with_name("another-1.jar")
        jar.touch()
    else:
        jar.unlink()
    found = "none" if change == "missing" else "[0-9a-f]{64}"
    locked = "none" if change == "added" else "[0-9a-f]{64}"
    message = rf"^kafka/{jar.name} was .* SHA-256 {found}, but .*jars\.sha256 has {locked}\. .*--lock"
    with pytest.raises(JarsError, match=message):
        jars(kafka=True)
    assert not list((tmp_path / "cache" / "kafka-client-telemetry").glob("*spark-kafka-*"))


@pytest.mark.usefixtures("served")
def test_the_committed_checksums_are_those_that_the_command_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = spark_streaming.jars._CHECKSUMS.read_text()
    monkeypatch.setattr(spark_streaming.jars, "_CHECKSUMS", tmp_path / "jars.sha256")
    monkeypatch.setattr(sys, "argv", ["jars", "--lock"])
    spark_streaming.jars._main()
    assert (tmp_path / "jars.sha256").read_text() == committed
