"""Plugins in child processes: the proxy in the receiver, the child, and the channel between them."""
