"""The public import name of Kafka Client Telemetry; :mod:`kafka_client_telemetry.plugin` is its API.

The build installs this folder at the top level (``tool.hatch.build`` in pyproject.toml).
"""
