"""The telemetry core (KIP-714): answers both telemetry RPCs, and validates and labels pushes.

Pure: no socket, no clock, no logger. ``now`` and randomness are arguments; results are values.
"""
