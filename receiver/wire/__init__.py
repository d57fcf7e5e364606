"""Reads and writes the Kafka messages that the receiver needs.

It uses the standard library only, and no I/O, clock or logger. Each message has a file named by its
API key (`k72_push_telemetry`), which begins with the history of its versions. Unknown tagged
fields, error codes and API keys are kept or skipped. Malformed bytes raise
:class:`receiver.wire.errors.WireError`.
"""
