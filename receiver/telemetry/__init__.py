"""The telemetry core (KIP-714): answers its RPCs and labels pushes.

Pure: no socket, no clock, no logger. ``now`` and randomness are arguments; results are values.
"""
