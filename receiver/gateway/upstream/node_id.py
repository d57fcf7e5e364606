"""Asks a broker which node id is its own.

Metadata does not say who answered it. Two questions show it, each for one id at a time:

- ApiVersions v5 (KIP-1242, Kafka 4.4): a broker answers REBOOTSTRAP_REQUIRED to a client that wants
  to reach another node. It needs no right, and leaves nothing in the broker's log. A broker that
  says yes for an id that cannot be its own ignores the question, so such an id is asked for first.
- DescribeConfigs of resource BROKER: a broker describes its own node only, and what it describes
  names the node. It needs the right to describe the cluster's configuration.

Behind SASL both need a login (:mod:`receiver.gateway.upstream.broker_login`): before one, Kafka 4.4
answers ApiVersions v5 with NONE for any node.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from receiver.brokers.upstream import Upstream
from receiver.wire import api_keys, k18_api_versions, k32_describe_configs
from receiver.wire.error_codes import ErrorCode
from receiver.wire.k18_api_versions import ApiVersionsRequest

#: The client id, and the software name, of the sidecar's own requests.
CLIENT_ID: Final = "kafka-client-telemetry"

#: Sends a request of this API key, version and body, and returns the body of its response.
Ask = Callable[[int, int, bytes], Awaitable[bytes]]

_FIRST_WITH_NODE: Final = 5
_GREATEST_NODE_ID: Final = 2_147_483_647


async def ask_describe_configs(ask: Ask, upstream: Upstream, candidates: Sequence[int]) -> int | None:
    """Return the candidate that the broker's own configuration names.

    None if it does not say.

    A broker logs a stack trace for each id that is not its own (Kafka's ConfigHelper). So it is
    asked for one at a time, the likely ones first.
    """
    lowest, highest = upstream.ranges.get(api_keys.DESCRIBE_CONFIGS, (0, -1))
    spoken = range(lowest, highest + 1)
    versions = [version for version in k32_describe_configs.SUPPORTED_VERSIONS if version in spoken]
    for node_id in candidates if versions else ():
        body = k32_describe_configs.encode_broker_request(node_id, versions[-1])
        answer = await ask(api_keys.DESCRIBE_CONFIGS, versions[-1], body)
        error_code, stated = k32_describe_configs.decode_node_id(answer, versions[-1])
        if error_code != ErrorCode.INVALID_REQUEST:
            return stated if stated in candidates else None
    return None


async def ask_api_versions(
    ask: Ask, upstream: Upstream, cluster_id: str | None, candidates: Sequence[int]
) -> int | None:
    """Return the candidate that the broker answers to.

    None if it does not say (KIP-1242).
    """
    _, highest = upstream.ranges.get(api_keys.API_VERSIONS, (0, 0))
    if highest < _FIRST_WITH_NODE or cluster_id is None or not candidates:
        return None
    for node_id in (other := _no_id_of(candidates), *candidates):
        question = ApiVersionsRequest(
            client_software_name=CLIENT_ID,
            client_software_version="1",
            cluster_id=cluster_id,
            node_id=node_id,
        )
        body = k18_api_versions.encode_request(question, _FIRST_WITH_NODE)
        answer = await ask(api_keys.API_VERSIONS, _FIRST_WITH_NODE, body)
        error_code = k18_api_versions.read_error_code(answer)
        if error_code == ErrorCode.NONE:
            return None if node_id == other else node_id
        if error_code != ErrorCode.REBOOTSTRAP_REQUIRED:
            return None
    return None


def _no_id_of(candidates: Collection[int]) -> int:
    return next(
        candidate for candidate in itertools.count(_GREATEST_NODE_ID, -1) if candidate not in candidates
    )
