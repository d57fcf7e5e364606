"""Plugins in child processes: proxy, child and the channel between them."""
