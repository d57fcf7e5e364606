"""Spark Structured Streaming job that rolls client telemetry up into PostgreSQL."""
