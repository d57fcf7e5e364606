"""The configuration: models, and loading from YAML and the environment."""

__all__ = ["PREFIX"]

#: Prefix of the environment variables that are settings.
PREFIX = "KAFKA_TELEMETRY_"
