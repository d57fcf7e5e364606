"""The telemetry core (KIP-714): what is asked of a client, and what becomes of what it pushes.

Pure: no socket, no clock, no logger. ``now`` and randomness come in as arguments; decisions go out as values.
"""
