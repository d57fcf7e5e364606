"""What the broker behind a listener said that it speaks.

Owns nothing but what was learned; every answer to ApiVersions that passes through teaches it anew, so a
broker that was upgraded or rolled back is known at its first answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from receiver.wire import api_keys, k03_metadata, k18_api_versions, k36_sasl_authenticate
from receiver.wire.header_versions import V3_SINCE, offered

__all__ = ["Upstream"]

_LEARNED_KEYS: Final = frozenset({api_keys.METADATA, api_keys.API_VERSIONS, api_keys.SASL_AUTHENTICATE})

_ANSWERED_HERE: Final = frozenset({api_keys.GET_TELEMETRY_SUBSCRIPTIONS, api_keys.PUSH_TELEMETRY})

#: The first version of Metadata whose answer tells the cluster id; every broker since 0.10.1 has it.
_FIRST_WITH_CLUSTER_ID: Final = 2


class Upstream:
    """The version ranges of one broker listener, as far as they are known.

    Args:
        translates: Whether KIP-1313's version of every RPC is offered on the broker's behalf.

    Attributes:
        translates: As given.
        learned_keys: The API keys whose ranges matter.
        ranges: Least and greatest version by API key; a key that is missing is not known.
        capped: By API key the versions to offer of an RPC that has to be read and that the broker speaks in
            versions that we can't: a login that nobody sees would be nobody's.
        translated: By API key the least version and KIP-1313's, of the RPCs that are translated.
        with_header_v3: The API keys of all RPCs that clients are offered with request header v3.
    """

    __slots__ = ("capped", "learned_keys", "ranges", "translated", "translates", "with_header_v3")

    def __init__(self, *, translates: bool = False) -> None:
        self.translates = translates
        self.learned_keys: Collection[int] = V3_SINCE.keys() if translates else _LEARNED_KEYS
        self.ranges: dict[int, tuple[int, int]] = {}
        self.capped: Mapping[int, tuple[int, int]] = {}
        self.translated: Mapping[int, tuple[int, int]] = {}
        self.with_header_v3: Collection[int] = _ANSWERED_HERE

    def learn(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Take over what an answer to ApiVersions said."""
        self.ranges.update(ranges)
        least, greatest = self.ranges.get(api_keys.SASL_AUTHENTICATE, (0, 0))
        readable = k36_sasl_authenticate.SUPPORTED_VERSIONS[-1]
        self.capped = {api_keys.SASL_AUTHENTICATE: (least, readable)} if least <= readable < greatest else {}
        if self.translates:
            self.translated = {
                key: versions for key, versions in offered(self.ranges).items() if key not in _ANSWERED_HERE
            }
            self.with_header_v3 = _ANSWERED_HERE | self.translated.keys()

    def api_versions_version(self, asked: int) -> int:
        """Return the version to ask this broker in on behalf of a client that asked in version ``asked``.

        Both must be known to us. Where the broker is not known yet, the client's own version is tried: the
        worst that can happen is the fallback of KIP-35, which the client knows how to live with.
        """
        _, greatest = self.ranges.get(api_keys.API_VERSIONS, (0, asked))
        return max(0, min(asked, greatest, k18_api_versions.SUPPORTED_VERSIONS[-1]))

    def metadata_version(self) -> int:
        """Return the version of the Metadata request that is sent in place of a telemetry request."""
        least, greatest = self.ranges.get(api_keys.METADATA, (0, _FIRST_WITH_CLUSTER_ID))
        return min(max(least, _FIRST_WITH_CLUSTER_ID), greatest, k03_metadata.SUPPORTED_VERSIONS[-1])
