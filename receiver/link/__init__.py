"""The link between a relay process and the core process.

Owns the messages and their stream over a Unix socket. A relay sends the identities of its
connections, telemetry calls and reports; the core sends answers and what the limits of the whole
receiver demand.
"""
