"""Reads and writes the Kafka messages that the receiver needs.

It uses the standard library only, and no I/O, clock or logger. Each message has a file named by its
API key (`k72_push_telemetry`), which begins with the history of its versions.

The ``decode_*`` functions take a reader at the message's body and the request's API version. All
that read bytes of a peer raise :class:`receiver.wire.errors.WireError` if these are malformed, as
far as they read. ``decode_*`` and ``encode_*`` raise ``ValueError`` for a version that is not in
the module's ``SUPPORTED_VERSIONS``. Unknown tagged fields, error codes and API keys are kept or
skipped.
"""
