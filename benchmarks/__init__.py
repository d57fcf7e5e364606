"""What the sidecar costs, beside HAProxy, a direct connection, and a real broker with a telemetry plugin.

Run with ``python -m benchmarks``; see docs/results/benchmarks.md. Nothing here is imported by the receiver.
"""
