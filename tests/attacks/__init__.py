"""Runs attacks on a receiver and on HAProxy, each beside an innocent client."""
