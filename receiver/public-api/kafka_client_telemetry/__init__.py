"""The public import name: plugins import :mod:`kafka_client_telemetry.plugin`.

The build installs this folder at the top level (``tool.hatch.build`` in pyproject.toml).
"""
