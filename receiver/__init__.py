"""The sidecar: receives KIP-714 metrics beside a Kafka-compatible broker.

The folders are the architecture. Imports point one way, which import-linter enforces
(pyproject.toml)::

    wire <- telemetry <- session <- metrics <- {core, host, store} <- gateway <- api <- app <- cli
    plugin: the public contract of plugins; it imports nothing else of the receiver
"""
