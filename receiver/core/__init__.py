"""Serves the telemetry core to sessions."""
