"""Compares the gateway with a real broker: equal requests, and every byte of the answers.

One round is one connection's script (:mod:`~tests.fuzz.differential.script`), made of requests that
are generated from Kafka's own message definitions. It is played directly to Apache Kafka, and
through two listeners of the gateway in front of the same broker: one that keeps the addresses of
brokers and one that rewrites them. ``make fuzz-differential`` runs it.
"""
