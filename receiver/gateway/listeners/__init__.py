"""Accepts clients: ports, nodes, admission, TLS and PROXY headers."""
