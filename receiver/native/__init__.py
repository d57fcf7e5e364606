"""The data path in C, an optional extension; :mod:`receiver.wire.walk` loads it."""
