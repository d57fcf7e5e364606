"""Decides what happens to each request and response of a proxied connection.

It takes bytes and returns bytes. The gateway reads and writes sockets, and the telemetry core
decides about subscriptions and pushes.
"""
