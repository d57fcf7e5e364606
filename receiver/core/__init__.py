"""Serves the telemetry core to sessions: limits, decisions, delivery to plugins, answers."""
