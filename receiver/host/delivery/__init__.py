"""Delivery to one plugin: its queue, its sender thread, retries, statistics."""
