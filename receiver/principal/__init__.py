"""Names a client by its TLS certificate or by the SASL login that passes.

Names have the form that Kafka's own broker gives them. Nothing is verified here: TLS verifies
certificates, and the broker verifies logins. This is the lowest layer, without I/O, clock or
logger.
"""
