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


def test_every_setting_has_a_default() -> None:
    settings = load(None, {})
    assert settings.embedded == Path("rollup/postgres")
    assert settings.checkpoint_path == str(Path("rollup/checkpoint").resolve())


def test_options_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "rollup.yaml"
    file.write_text("spool_files: {path: a, max_bytes: 5}\ntrigger_seconds: 2.5\n")
    settings = load(file, {"spool_files": {"path": "b"}, "checkpoint": None})
    assert (settings.spool_files.path, settings.spool_files.max_bytes) == (Path("b"), 5)
    assert settings.trigger_seconds == 2.5
    assert settings.checkpoint is None


def test_sizes_and_times_take_units(tmp_path: Path) -> None:
    file = tmp_path / "rollup.yaml"
    file.write_text("spool_files: {max_bytes: 64MiB}\ntrigger_seconds: 2m\nretention: {push_days: 336h}\n")
    settings = load(file, {})
    assert (settings.spool_files.max_bytes, settings.trigger_seconds) == (67_108_864, 120)
    assert settings.retention.push_days == 14


def test_a_checkpoint_url_is_not_changed() -> None:
    settings = load(None, {"checkpoint": "s3a://bucket/checkpoint"})
    assert settings.checkpoint_path == "s3a://bucket/checkpoint"


def test_a_postgresql_of_ones_own_gives_no_checkpoint() -> None:
    settings = load(None, {"postgres": "postgresql://rollup@localhost/telemetry"})
    assert settings.checkpoint_path is None


def test_the_metrics_address_has_no_brackets() -> None:
    assert load(None, {}).metrics.address is None
    assert load(None, {"metrics": {"bind": "[::1]:8643"}}).metrics.address == ("::1", 8643)
    assert load(None, {"metrics": {"bind": "0.0.0.0:0"}}).metrics.address == ("0.0.0.0", 0)


def test_a_secret_file_is_read_without_its_last_newline(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://someone:hidden@host/db\n")
    settings = load(None, {"postgres": {"file": str(tmp_path / "url")}, "checkpoint": "c"})
    assert settings.postgres.get_secret_value() == "postgresql://someone:hidden@host/db"
    assert "hidden" not in repr(settings)
    assert settings.embedded is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("triger_seconds: 5", "rollup.yaml: triger_seconds: unknown key; did you mean trigger_seconds?"),
        ("spool_files: {paths: x}", "rollup.yaml: spool_files.paths: unknown key; did you mean path?"),
        ("lake: {xyz: 1}", "rollup.yaml: lake.xyz: unknown key; known keys: path, format"),
        ("source: files", "rollup.yaml: source: \"files\": must be 'spool_files' or 'kafka'"),
        ("trigger_seconds: 0", "rollup.yaml: trigger_seconds: 0: must be greater than or equal to 0.1"),
        ("max_trigger_seconds: 5", "max_trigger_seconds: 5 is less than trigger_seconds (10); raise it"),
        ("retention: {minute_days: 9, hour_days: 8}", "retention: minute_days, hour_days and day_days must"),
        (
            "source: kafka\nkafka: {topic: t}",
            "kafka.bootstrap_servers: required with source kafka",
        ),
        ("retention: {pack_connections: 0}", "retention.pack_connections: "),
        ("retention: {pack_connections: 17}", "retention.pack_connections: "),
        ("max_behind_s: 80000", "max_behind_s: 80000 is more than retention.contribution_hours (6); lower"),
        ("spark: {master: local}", "spark.master: expected a Spark key, which begins with spark."),
        (
            "metrics: {bind: '8643'}",
            "rollup.yaml: metrics.bind: '8643': expected host:port with a port up to",
        ),
        ("metrics: {bind: 'a:b'}", "rollup.yaml: metrics.bind: 'a:b': expected host:port"),
        ("metrics: {bind: '::1:8643'}", "such as 127.0.0.1:8643 or [::1]:8643"),
        ("metrics: {bind: '127.0.0.1:65536'}", "metrics.bind: '127.0.0.1:65536': expected host:port"),
        ("- a", "rollup.yaml: expected a mapping of keys such as source and postgres"),
        ("a: [", "rollup.yaml: line 1, column 5: "),
        (
            "postgres: postgresql://x@127.0.0.1:1/first\npostgres: postgresql://x@127.0.0.1:1/second",
            "rollup.yaml: line 2, column 1: postgres: the key is given twice",
        ),
        (
            "a0: &a0 x\n" + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 11)),
            "rollup.yaml: a10: more than 100000 values in the whole document",
        ),
    ],
)
def test_a_wrong_value_is_one_line_with_the_key_and_the_fix(tmp_path: Path, text: str, message: str) -> None:
    found = problem(tmp_path, text)
    assert message in found
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


def test_a_missing_secret_file_is_named(tmp_path: Path) -> None:
    assert "the secret's file /nowhere/url cannot be read: No such file" in problem(
        tmp_path, "postgres: {file: /nowhere/url}"
    )


def test_the_tables_page_has_every_retention_default() -> None:
    page = (Path(__file__).parents[3] / "docs" / "rollup-tables.md").read_text()
    expected = {name: f"`{name}`, {field.default}" for name, field in RetentionSettings.model_fields.items()}
    assert [name for name, text in expected.items() if text not in page] == []
