"""The peers of a connection, and fair shares among peers.

A peer is a party that pays for what its connections use: a source address, its address block, or a
principal. Pure. Plugins may import it too, so that a peer is the same everywhere.
"""
