"""One proxied connection, as values: what happens to each frame in each direction.

Pure: bytes in, bytes out. The gateway moves them; the telemetry core decides about telemetry.
"""
