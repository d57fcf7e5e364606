"""Runs the test kit against real clients: ``python -m benchmarks.testkit`` writes clients.md."""
