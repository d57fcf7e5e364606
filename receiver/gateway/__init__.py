"""The proxy between Kafka clients and their broker.

Owns sockets and timers. :mod:`receiver.session` decides what happens to each Kafka frame.
"""
