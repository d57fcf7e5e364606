"""Entry point ``python -m spark_streaming``, for ``spark-submit``."""

from spark_streaming.cli import app

app(prog_name="kafka-telemetry rollup")
