"""KIP-1313 for brokers that lack it: client instance ids in request headers.

A client that knows KIP-1313 sends its client instance id in request header v3, which each RPC but
SaslHandshake carries from one new version on. The translation has five rules, one module each:

1. :mod:`receiver.brokers.translated_versions`: which RPCs a client is offered with header v3.
   Clients always get it for the two telemetry RPCs, and for the others with the setting
   ``kip1313.translate_all``.
2. `request_headers`: how a header is read, and the older header that the broker gets in its place.
3. `instance_binding`: the id of the first request binds the connection. A later request with
   another id is refused.
4. `refusals`: INVALID_REQUEST in the layout of each RPC, for the requests that rule 3 refuses.
5. `offset_delete`: the one RPC whose body KIP-1313 changes, from v1 to v0 and back.

The numbers behind the rules (which version of which RPC has which header) are in
:mod:`receiver.wire.header_versions`. When an answer goes out is the session's decision.
"""
