"""The demo: clients in three languages, broker, sidecar, collector and roll-up on one machine."""
