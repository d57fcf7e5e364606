"""API versions of a listener's broker, learned from ApiVersions responses.

Every response that passes updates them, so a broker that was upgraded or rolled back is known from
its first response.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from receiver.brokers.translated_versions import translated_versions
from receiver.wire import api_keys, k03_metadata, k18_api_versions, k36_sasl_authenticate, named_addresses
from receiver.wire.header_versions import FIRST_WITH_HEADER_V3
from receiver.wire.headers import ALWAYS_WITH_HEADER_V3

_LEARNED_KEYS: Final = frozenset(
    {
        api_keys.METADATA,
        api_keys.API_VERSIONS,
        api_keys.DESCRIBE_CONFIGS,
        api_keys.INCREMENTAL_ALTER_CONFIGS,
        api_keys.SASL_AUTHENTICATE,
        api_keys.GET_TELEMETRY_SUBSCRIPTIONS,
        api_keys.LIST_CONFIG_RESOURCES,
    }
)

#: The requests that are about client metrics resources, where the sidecar answers them.
_CONFIG_KEYS: Final = frozenset(
    {
        api_keys.DESCRIBE_CONFIGS,
        api_keys.ALTER_CONFIGS,
        api_keys.INCREMENTAL_ALTER_CONFIGS,
        api_keys.LIST_CONFIG_RESOURCES,
    }
)


@dataclass(eq=False, kw_only=True, slots=True)
class Upstream:
    """The known version ranges of one broker listener."""

    translates: bool = False
    """Whether clients are offered KIP-1313's version of every RPC."""
    offers_telemetry: bool = True
    """Whether clients are offered the telemetry RPCs (KIP-714)."""
    rewrites: bool = False
    """Whether the addresses of brokers are replaced. Clients are then offered only versions whose
    addresses are known."""
    answers_config_requests: bool = False
    """Whether the receiver answers for client metrics resources in place of a broker that does not
    keep them."""
    reads_resources: bool = True
    """Whether the receiver's subscriptions are the brokers' client metrics resources."""
    learned_keys: Collection[int] = field(init=False)
    """The API keys whose ranges are learned."""
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict, init=False)
    """Lowest and highest version by API key, of the keys known so far."""
    capped: Mapping[int, tuple[int, int]] = field(default_factory=dict, init=False)
    """Ranges to offer in place of the broker's, by API key. SaslAuthenticate is capped to the
    versions that the session can read, because an unread login would have no principal."""
    translated: Mapping[int, tuple[int, int]] = field(default_factory=dict, init=False)
    """Lowest version and KIP-1313's version, by API key, of the translated RPCs."""
    offered_with_header_v3: Collection[int] = field(default=ALWAYS_WITH_HEADER_V3, init=False)
    """API keys of all RPCs that clients are offered with request header v3."""

    def __post_init__(self) -> None:
        self.learned_keys = FIRST_WITH_HEADER_V3.keys() if self.translates else _LEARNED_KEYS
        self._translate()

    def learn(self, ranges: Mapping[int, tuple[int, int]], *, all_keys: bool = True) -> None:
        """Record the version ranges of an ApiVersions response, by API key.

        Args:
            all_keys: Whether the broker lacks the :attr:`learned_keys` that are left out.
        """
        if all_keys:
            self.ranges.clear()
        self.ranges.update(ranges)
        lowest, highest = self.ranges.get(api_keys.SASL_AUTHENTICATE, (0, 0))
        readable = k36_sasl_authenticate.SUPPORTED_VERSIONS[-1]
        self.capped = {api_keys.SASL_AUTHENTICATE: (lowest, readable)} if lowest <= readable < highest else {}
        self._translate()

    def _translate(self) -> None:
        if self.translates:
            translated = translated_versions(self.ranges)
            if self.rewrites:
                translated = {key: span for key, span in translated.items() if key in named_addresses.OFFERED}
            self.translated = translated
            self.offered_with_header_v3 = ALWAYS_WITH_HEADER_V3 | self.translated.keys()

    @property
    def keeps_resources(self) -> bool | None:
        """Whether the broker keeps client metrics resources (Kafka 3.7).

        None: not known yet.
        """
        if api_keys.API_VERSIONS not in self.ranges:
            return None
        return api_keys.LIST_CONFIG_RESOURCES in self.ranges

    @property
    def answers_for_resources(self) -> bool:
        """Whether the receiver answers requests about client metrics resources."""
        return self.answers_config_requests and self.keeps_resources is False

    @property
    def hides_resources(self) -> bool:
        """Whether the broker has client metrics resources that the receiver doesn't read."""
        return not self.reads_resources and self.keeps_resources is True

    @property
    def watched_config_keys(self) -> frozenset[int]:
        """API keys of the requests about configs that a new session reads."""
        if self.answers_config_requests and not self.keeps_resources:
            return _CONFIG_KEYS
        # A request that only reads is looked at where it is about nothing else.
        return _CONFIG_KEYS - {api_keys.DESCRIBE_CONFIGS} if self.hides_resources else frozenset()

    def common_version(self, api_key: int, versions: range) -> int | None:
        """Return the highest of these versions that the broker has.

        None if it has none of them.

        The API key must be one of :attr:`learned_keys`.
        """
        lowest, highest = self.ranges.get(api_key, (0, -1))
        return next((version for version in reversed(versions) if lowest <= version <= highest), None)

    def api_versions_version(self, requested: int) -> int:
        """Return the version in which to forward an ApiVersions request.

        For an unknown broker this is the client's own version. At worst the broker answers with the
        fallback of KIP-35, which clients handle.

        Args:
            requested: The version of the client's request, one that the receiver supports.
        """
        _, highest = self.ranges.get(api_keys.API_VERSIONS, (0, requested))
        return max(0, min(requested, highest, k18_api_versions.SUPPORTED_VERSIONS[-1]))

    def metadata_version(self) -> int:
        """Return the version of the Metadata request that is used as a marker."""
        wanted = k03_metadata.FIRST_WITH_THROTTLE_TIME
        lowest, highest = self.ranges.get(api_keys.METADATA, (0, wanted))
        supported = k03_metadata.SUPPORTED_VERSIONS
        wanted = min(max(lowest, wanted), highest)
        return max(supported[0], min(wanted, supported[-1]))
