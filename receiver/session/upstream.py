"""What the broker behind a listener said that it speaks.

Owns nothing but what was learned; every answer to ApiVersions that passes through teaches it anew, so a
broker that was upgraded or rolled back is known at its first answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from receiver.wire import api_keys, k03_metadata, k18_api_versions

__all__ = ["LEARNED_KEYS", "Upstream"]

#: The API keys whose version ranges matter to a session.
LEARNED_KEYS: Final[Iterable[int]] = (api_keys.METADATA, api_keys.API_VERSIONS)

#: The first version of Metadata whose answer tells the cluster id; every broker since 0.10.1 has it.
_FIRST_WITH_CLUSTER_ID: Final = 2


@dataclass(slots=True)
class Upstream:
    """The version ranges of one broker listener, as far as they are known.

    Attributes:
        ranges: Least and greatest version by API key; a key that is missing is not known.
    """

    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)

    def learn(self, ranges: dict[int, tuple[int, int]]) -> None:
        """Take over what an answer to ApiVersions said."""
        self.ranges.update(ranges)

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
