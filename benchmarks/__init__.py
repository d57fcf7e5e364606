"""Measures the sidecar beside HAProxy, a direct connection and a broker with a telemetry plugin.

Run with ``python -m benchmarks``; see its README.md. Nothing here is imported by the
receiver.
"""
