"""Bytes to values and back, for the few Kafka messages that the receiver reads or writes.

Pure and standard library only: no I/O, no clock, no logger. One message is one file, numbered by its API key
and headed by what its versions changed. Unknown tagged fields, error codes and API keys are kept or skipped;
malformed bytes raise :class:`receiver.wire.errors.WireError`. What a message *means* is decided elsewhere.
"""
