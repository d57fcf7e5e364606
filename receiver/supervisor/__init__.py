"""The process of ``serve``: sockets, child processes, signals, reloads.

Owns the listening sockets and the relay and core processes, and decides when each starts and ends.
It has one thread, no event loop, and no traffic, so that hardly anything can stop it.
"""
