"""Chooses the RPCs to offer with request header v3 for an older broker."""

from __future__ import annotations

from collections.abc import Mapping

from receiver.wire import api_keys
from receiver.wire.header_versions import FIRST_WITH_HEADER_V3
from receiver.wire.headers import ALWAYS_WITH_HEADER_V3


def translated_versions(broker_ranges: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Return the lowest and highest version to offer of each translatable RPC.

    An RPC can be translated if the broker's highest version is the one right before KIP-1313's.
    With an older highest version, the broker cannot answer what KIP-1313's version asks. With a
    newer one, the broker itself gives KIP-1313's version number a meaning. ApiVersions can be
    translated for an older broker too, because the receiver answers what the broker lacks: so the
    first request of a connection can carry an id. The telemetry RPCs are never translated, because
    the receiver answers them. They are the broker's lowest version and KIP-1313's version, by API
    key.

    Args:
        broker_ranges: Lowest and highest version that the broker speaks, by API key.

    Source: KIP-1313, "Proposed Changes".
    """
    translated = {
        key: (lowest, highest + 1)
        for key, (lowest, highest) in broker_ranges.items()
        if FIRST_WITH_HEADER_V3.get(key) == highest + 1 and key not in ALWAYS_WITH_HEADER_V3
    }
    lowest, highest = broker_ranges.get(api_keys.API_VERSIONS, (0, 0))
    if highest < FIRST_WITH_HEADER_V3[api_keys.API_VERSIONS]:
        translated[api_keys.API_VERSIONS] = (lowest, FIRST_WITH_HEADER_V3[api_keys.API_VERSIONS])
    return translated
