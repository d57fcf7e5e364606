"""The demo: real clients of three languages, a real broker, the sidecar, a real collector, on one machine."""
