"""What Spark is configured with: the job's defaults, and what users set."""

from __future__ import annotations

import pytest

from spark_streaming.session import configuration
from spark_streaming.settings import RollupSettings

OWN = "kafkaclienttelemetry.rollup.OtlpFunctions"
DELTA = "io.delta.sql.DeltaSparkSessionExtension"
SETTINGS = RollupSettings.model_validate({"source": "spool_files", "spool_files": {"path": "spool"}})
WITH_DELTA = SETTINGS.model_validate({"source": "spool_files", "lake": {"path": "lake", "format": "delta"}})


@pytest.mark.parametrize(
    ("settings", "given", "loaded"),
    [
        (SETTINGS, "", OWN),
        (SETTINGS, "their.Extension", f"their.Extension,{OWN}"),
        (SETTINGS, f"{OWN}, their.Extension", f"{OWN},their.Extension"),
        (WITH_DELTA, f"their.Extension,{DELTA}", f"their.Extension,{DELTA},{OWN}"),
    ],
)
def test_extensions_of_users_are_loaded_beside_the_decoder(
    settings: RollupSettings, given: str, loaded: str
) -> None:
    found = configuration(settings, {"spark.sql.extensions": given}, submitted=True)
    assert found["spark.sql.extensions"] == loaded


def test_settings_of_users_override_defaults() -> None:
    given = {"spark.sql.parquet.columnarReaderBatchSize": "4096", "spark.executor.memory": "2g"}
    found = configuration(SETTINGS, given, submitted=True)
    assert given.items() <= found.items()
    assert found["spark.sql.session.timeZone"] == "UTC"


def test_jars_of_users_are_added() -> None:
    """Without the decoder's jar no push could be read."""
    without = configuration(SETTINGS, {}, submitted=False)["spark.jars"]
    assert without.endswith(".jar")
    found = configuration(SETTINGS, {"spark.jars": "s3://bucket/aws.jar"}, submitted=False)
    assert found["spark.jars"] == f"s3://bucket/aws.jar,{without}"


@pytest.mark.parametrize("submitted", [True, False])
def test_options_of_users_for_java_are_kept_beside_the_defaults(*, submitted: bool) -> None:
    """Spark puts its settings ``defaultJavaOptions`` before ``extraJavaOptions``."""
    options = "-Dtheir=1 -XX:+UseG1GC"
    found = configuration(SETTINGS, {"spark.driver.extraJavaOptions": options}, submitted=submitted)
    assert found["spark.driver.extraJavaOptions"] == options
    assert "-XX:Tier4" in found["spark.executor.defaultJavaOptions"]
    # Java does not start with two collectors.
    assert "GC" not in found.get("spark.driver.defaultJavaOptions", "")
