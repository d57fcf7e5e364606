"""The link between relays and the core."""
