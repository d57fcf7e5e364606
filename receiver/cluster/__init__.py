"""Asks the other receivers of the cluster, and makes one answer of theirs.

:mod:`receiver.cluster.merge` is pure: it makes one page of several. :mod:`receiver.cluster.members`
asks over REST.
"""
