from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_streaming.load import SettingsError, load
from spark_streaming.settings import RetentionSettings


def problem(tmp_path: Path, text: str, options: dict[str, Any] | None = None) -> str:
    file = tmp_path / "rollup.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(file, options or {})
    return str(caught.value)


def test_one_command_without_any_option_is_enough() -> None:
    settings = load(None, {})
    assert settings.embedded == Path("rollup/postgres")
    assert settings.checkpoint_path == str(Path("rollup/checkpoint").resolve())


def test_options_go_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "rollup.yaml"
    file.write_text("spool_files: {path: a, max_bytes: 5}\ntrigger_seconds: 2.5\n")
    settings = load(file, {"spool_files": {"path": "b"}, "checkpoint": None})
    assert (settings.spool_files.path, settings.spool_files.max_bytes) == (Path("b"), 5)
    assert settings.trigger_seconds == 2.5
    assert settings.checkpoint is None


def test_a_checkpoint_on_another_file_system_stays_as_it_is() -> None:
    settings = load(None, {"checkpoint": "s3a://bucket/checkpoint"})
    assert settings.checkpoint_path == "s3a://bucket/checkpoint"


def test_secrets_come_from_files_without_their_last_newline(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://someone:hidden@host/db\n")
    settings = load(None, {"postgres": {"file": str(tmp_path / "url")}, "checkpoint": "c"})
    assert settings.postgres.get_secret_value() == "postgresql://someone:hidden@host/db"
    assert "hidden" not in repr(settings)
    assert settings.embedded is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("triger_seconds: 5", "rollup.yaml: triger_seconds: unknown key; did you mean trigger_seconds?"),
        ("spool_files: {paths: x}", "rollup.yaml: spool_files.paths: unknown key; did you mean path?"),
        ("lake: {xyz: 1}", "rollup.yaml: lake.xyz: unknown key; known are path, format"),
        ("source: files", "rollup.yaml: source: \"files\": must be 'spool_files' or 'kafka'"),
        ("trigger_seconds: 0", "rollup.yaml: trigger_seconds: 0: must be greater than or equal to 0.1"),
        ("retention: {minute_days: 9, hour_days: 8}", "retention: minute_days, hour_days and day_days must"),
        (
            "source: kafka\nkafka: {topic: t}",
            "kafka.bootstrap_servers: required with source kafka",
        ),
        ("max_behind_s: 80000", "max_behind_s: 80000 is more than retention.contribution_hours (6) keep"),
        ("spark: {master: local}", "spark.master: expected a key of Spark's, which begins with spark."),
        ("- a", "rollup.yaml: expected a mapping of keys such as source and postgres"),
        ("a: [", "rollup.yaml: not YAML at line"),
    ],
)
def test_a_wrong_value_is_one_line_with_the_key_and_the_fix(tmp_path: Path, text: str, said: str) -> None:
    found = problem(tmp_path, text)
    assert said in found
    assert "\n" not in found


@pytest.mark.parametrize(
    "text",
    [
        "postgres: hunter2",
        "postgres: {fil: hunter2}",
        "postgres: [hunter2]",
        "kafka: {options: {sasl.jaas.config: [hunter2]}}",
        "postgres_password: hunter2",
    ],
)
def test_no_error_shows_a_secret(tmp_path: Path, text: str) -> None:
    assert "hunter2" not in problem(tmp_path, text)


def test_a_secret_s_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "cannot read the secret's file /nowhere/url: No such file" in problem(
        tmp_path, "postgres: {file: /nowhere/url}"
    )


def test_the_page_on_tables_says_how_long_each_is_kept() -> None:
    page = (Path(__file__).parents[3] / "docs" / "rollup-tables.md").read_text()
    said = {name: f"`{name}`, {field.default}" for name, field in RetentionSettings.model_fields.items()}
    assert [name for name, text in said.items() if text not in page] == []
