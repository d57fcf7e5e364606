"""Reaches the broker behind a listener, watches it, and asks who it is."""
