"""The responses that name brokers, and what a rewriting gateway does.

A response that is not in Kafka 4.4 may name a broker where nobody expects it. So a version that is
not in this table's range is neither offered nor forwarded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from receiver.wire import (
    api_keys,
    k03_metadata,
    k10_find_coordinator,
    k55_describe_quorum,
    k60_describe_cluster,
    node_endpoints,
)
from receiver.wire.broker_addresses import ReplaceAddress
from receiver.wire.header_versions import LATEST

#: API keys of requests to controllers, whose responses name controllers or, for Envelope (58), are
#: any response. No client sends them.
CONTROLLER_KEYS: Final = frozenset({52, 53, 54, 58, 59, 82})

#: By API key: the lowest and highest version that may be offered. Other keys may not be offered.
#: What follows SaslHandshake v0 has no request headers, so later requests would not be recognised.
OFFERED: Final[Mapping[int, tuple[int, int]]] = MappingProxyType(
    {
        key: (1 if key == api_keys.SASL_HANDSHAKE else 0, latest)
        for key, latest in LATEST.items()
        if key not in CONTROLLER_KEYS
    }
)


def _pairs(versions: Mapping[int, range]) -> frozenset[tuple[int, int]]:
    return frozenset((key, version) for key, supported in versions.items() for version in supported)


#: API key and version of the responses that :func:`replace_addresses` edits.
NAMED_INSIDE: Final = _pairs(
    {
        api_keys.METADATA: k03_metadata.REPLACED_VERSIONS,
        api_keys.FIND_COORDINATOR: k10_find_coordinator.SUPPORTED_VERSIONS,
        api_keys.DESCRIBE_QUORUM: k55_describe_quorum.SUPPORTED_VERSIONS[2:],
        api_keys.DESCRIBE_CLUSTER: k60_describe_cluster.SUPPORTED_VERSIONS,
    }
)

#: API key and version of the responses that :mod:`receiver.wire.node_endpoints` edits.
NAMED_AT_END: Final = _pairs(node_endpoints.VERSIONS)


def _metadata(body: bytes, version: int, replace: ReplaceAddress) -> bytes:
    beginning, end = k03_metadata.replace_addresses(body, version, replace)
    return b"".join((beginning, memoryview(body)[end:]))


def _quorum(body: bytes, version: int, _: ReplaceAddress) -> bytes:
    return k55_describe_quorum.remove_listeners(body, version)


_EDITS: Final[Mapping[int, Callable[[bytes, int, ReplaceAddress], bytes]]] = MappingProxyType(
    {
        api_keys.METADATA: _metadata,
        api_keys.FIND_COORDINATOR: k10_find_coordinator.replace_addresses,
        api_keys.DESCRIBE_QUORUM: _quorum,
        api_keys.DESCRIBE_CLUSTER: k60_describe_cluster.replace_addresses,
    }
)


def replace_addresses(body: bytes, api_key: int, version: int, replace: ReplaceAddress) -> bytes:
    """Replace the addresses in a whole response body that is in :data:`NAMED_INSIDE`.

    Args:
        version: The request's API version.
        replace: Gives the host and port of each broker.
    """
    return _EDITS[api_key](body, version, replace)
