"""Who a client is: by its certificate, or by a SASL login that passes through.

Pure, and the lowest layer: no I/O, no clock, no logger, and nothing of the receiver is imported. Names come
out in the form that Kafka's own broker gives them. Nothing here verifies anybody: TLS does that for
certificates, the broker for logins.
"""
