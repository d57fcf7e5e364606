"""The proxied connection without I/O: decides what happens to each request and response.

It takes bytes and returns bytes. The gateway reads and writes sockets, and the telemetry core decides
about subscriptions and pushes.
"""
