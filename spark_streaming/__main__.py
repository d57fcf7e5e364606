"""``python -m spark_streaming run ...``: the commands of ``kafka-telemetry rollup``, for ``spark-submit``."""

from spark_streaming.cli import app

app(prog_name="kafka-telemetry rollup")
