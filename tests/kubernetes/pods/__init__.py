"""The chart in real pods: one node for all tests, and a cluster of three brokers with sidecars.

Tests may kill, hang and replace what they like, because each begins when all pods are ready again
(fixture ``cluster``).
"""
