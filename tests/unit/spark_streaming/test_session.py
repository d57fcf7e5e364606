"""What Spark is configured with: the job's defaults, and what users set."""

from __future__ import annotations

import os

import pytest

from spark_streaming.session import SessionError, configuration, require_user
from spark_streaming.settings import RollupSettings

OWN = "kafkaclienttelemetry.rollup.OtlpFunctions"
DELTA = "io.delta.sql.DeltaSparkSessionExtension"
SETTINGS = RollupSettings.model_validate({"source": "spool_files", "spool_files": {"path": "spool"}})
WITH_DELTA = SETTINGS.model_validate({"source": "spool_files", "lake": {"path": "lake", "format": "delta"}})


def own(spark: dict[str, str]) -> RollupSettings:
    return SETTINGS.model_copy(update={"spark": spark})


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
    found = configuration(settings, {"spark.sql.extensions": given})
    assert found["spark.sql.extensions"] == loaded


def test_settings_of_users_override_defaults() -> None:
    given = {"spark.sql.parquet.columnarReaderBatchSize": "4096", "spark.executor.memory": "2g"}
    found = configuration(SETTINGS, given)
    assert given.items() <= found.items()
    assert found["spark.sql.session.timeZone"] == "UTC"


def test_jars_of_users_are_added() -> None:
    """Without the decoder's jar no push could be read."""
    without = configuration(SETTINGS, None)["spark.jars"]
    assert without.endswith(".jar")
    found = configuration(own({"spark.jars": "s3://bucket/aws.jar"}), None)
    assert found["spark.jars"] == f"s3://bucket/aws.jar,{without}"


def test_the_section_spark_adds_to_lists_of_spark_submit() -> None:
    """The decoder's jar is in the list of spark-submit."""
    found = configuration(own({"spark.jars": "aws.jar"}), {"spark.jars": "decoder.jar"})
    assert found["spark.jars"] == "aws.jar,decoder.jar"


@pytest.mark.parametrize("submitted", [True, False])
def test_options_of_users_for_java_are_kept_beside_the_defaults(*, submitted: bool) -> None:
    """Spark puts its settings ``defaultJavaOptions`` before ``extraJavaOptions``."""
    options = "-Dtheir=1 -XX:+UseG1GC"
    given = {"spark.driver.extraJavaOptions": options}
    found = configuration(SETTINGS, given) if submitted else configuration(own(given), None)
    assert found["spark.driver.extraJavaOptions"] == options
    assert "-XX:Tier4" in found["spark.executor.defaultJavaOptions"]
    # Java does not start with two collectors.
    assert "GC" not in found.get("spark.driver.defaultJavaOptions", "")


def test_a_uid_without_a_user_is_named() -> None:
    require_user(os.geteuid())
    with pytest.raises(SessionError, match=r"no user has the uid 3999999999, and Spark needs its name"):
        require_user(3_999_999_999)
