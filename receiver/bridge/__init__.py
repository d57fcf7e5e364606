"""The way in for plugins that run in brokers: docs/bridge-protocol.md.

Frames and conversation are pure: bytes in, values and bytes out. The listener does the I/O. It
knows no telemetry: the core decides what becomes of a push.
"""
