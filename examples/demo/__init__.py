"""The demo: real clients of three languages, broker, sidecar, collector and roll-up, on one machine."""
