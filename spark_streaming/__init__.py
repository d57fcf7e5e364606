"""The roll-up: from pushes to tables that Grafana draws, by a Spark Structured Streaming job."""
