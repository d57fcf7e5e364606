"""The sidecar: receives what Kafka clients push (KIP-714) beside any Kafka-compatible broker.

The folders are the architecture, and imports point one way (enforced by import-linter, see pyproject.toml)::

    wire <- telemetry <- session <- metrics <- {gateway, host, store} <- api <- app <- cli
    plugin: the public contract of a plugin; imports nothing of the receiver
"""
