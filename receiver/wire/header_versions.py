"""The versions of every RPC, as data: which have flexible headers, and which carry the client instance id.

Kafka's schemas tie the header to the version of the request: request header 2 and response header 1 from the
RPC's first flexible version on (KIP-482). KIP-1313 adds one version to every RPC but SaslHandshake, right
after the latest, with request header 3. So two numbers for each RPC say it all.

This module owns these numbers as of Kafka 4.4, the last release before KIP-1313. It must not say which
versions a connection is offered: a broker may be older or newer than this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from receiver.wire import api_keys

__all__ = ["FIRST_FLEXIBLE", "LATEST", "V3_SINCE", "offered"]

#: A version that no RPC ever reaches.
_NEVER = 1 << 15

# By API key: the latest stable version of Kafka 4.4, and the first flexible one, be it still in 4.4 or not.
# OffsetDelete becomes flexible with KIP-1313's version. Keys 4 to 7 are gone since Kafka 4.0.
_VERSIONS: Final = {
    0: (13, 9),  # Produce
    1: (18, 12),  # Fetch
    2: (11, 6),  # ListOffsets
    3: (13, 9),  # Metadata
    8: (10, 8),  # OffsetCommit
    9: (10, 6),  # OffsetFetch
    10: (6, 3),  # FindCoordinator
    11: (9, 6),  # JoinGroup
    12: (4, 4),  # Heartbeat
    13: (5, 4),  # LeaveGroup
    14: (5, 4),  # SyncGroup
    15: (6, 5),  # DescribeGroups
    16: (5, 3),  # ListGroups
    17: (1, _NEVER),  # SaslHandshake
    18: (5, 3),  # ApiVersions
    19: (7, 5),  # CreateTopics
    20: (6, 4),  # DeleteTopics
    21: (2, 2),  # DeleteRecords
    22: (5, 2),  # InitProducerId
    23: (4, 4),  # OffsetForLeaderEpoch
    24: (5, 3),  # AddPartitionsToTxn
    25: (4, 3),  # AddOffsetsToTxn
    26: (5, 3),  # EndTxn
    27: (2, 1),  # WriteTxnMarkers
    28: (6, 3),  # TxnOffsetCommit
    29: (3, 2),  # DescribeAcls
    30: (3, 2),  # CreateAcls
    31: (3, 2),  # DeleteAcls
    32: (4, 4),  # DescribeConfigs
    33: (2, 2),  # AlterConfigs
    34: (2, 2),  # AlterReplicaLogDirs
    35: (5, 2),  # DescribeLogDirs
    36: (2, 2),  # SaslAuthenticate
    37: (3, 2),  # CreatePartitions
    38: (3, 2),  # CreateDelegationToken
    39: (2, 2),  # RenewDelegationToken
    40: (2, 2),  # ExpireDelegationToken
    41: (3, 2),  # DescribeDelegationToken
    42: (3, 2),  # DeleteGroups
    43: (2, 2),  # ElectLeaders
    44: (1, 1),  # IncrementalAlterConfigs
    45: (1, 0),  # AlterPartitionReassignments
    46: (0, 0),  # ListPartitionReassignments
    47: (0, 1),  # OffsetDelete
    48: (1, 1),  # DescribeClientQuotas
    49: (1, 1),  # AlterClientQuotas
    50: (0, 0),  # DescribeUserScramCredentials
    51: (0, 0),  # AlterUserScramCredentials
    52: (2, 0),  # Vote
    53: (1, 1),  # BeginQuorumEpoch
    54: (1, 1),  # EndQuorumEpoch
    55: (2, 0),  # DescribeQuorum
    56: (3, 0),  # AlterPartition
    57: (2, 0),  # UpdateFeatures
    58: (0, 0),  # Envelope
    59: (1, 0),  # FetchSnapshot
    60: (2, 0),  # DescribeCluster
    61: (0, 0),  # DescribeProducers
    62: (4, 0),  # BrokerRegistration
    63: (2, 0),  # BrokerHeartbeat
    64: (0, 0),  # UnregisterBroker
    65: (0, 0),  # DescribeTransactions
    66: (2, 0),  # ListTransactions
    67: (0, 0),  # AllocateProducerIds
    68: (1, 0),  # ConsumerGroupHeartbeat
    69: (1, 0),  # ConsumerGroupDescribe
    70: (0, 0),  # ControllerRegistration
    71: (0, 0),  # GetTelemetrySubscriptions
    72: (0, 0),  # PushTelemetry
    73: (0, 0),  # AssignReplicasToDirs
    74: (1, 0),  # ListConfigResources
    75: (0, 0),  # DescribeTopicPartitions
    76: (1, 0),  # ShareGroupHeartbeat
    77: (1, 0),  # ShareGroupDescribe
    78: (2, 0),  # ShareFetch
    79: (2, 0),  # ShareAcknowledge
    80: (1, 0),  # AddRaftVoter
    81: (0, 0),  # RemoveRaftVoter
    82: (0, 0),  # UpdateRaftVoter
    83: (0, 0),  # InitializeShareGroupState
    84: (0, 0),  # ReadShareGroupState
    85: (1, 0),  # WriteShareGroupState
    86: (0, 0),  # DeleteShareGroupState
    87: (1, 0),  # ReadShareGroupStateSummary
    88: (1, 0),  # StreamsGroupHeartbeat
    89: (1, 0),  # StreamsGroupDescribe
    90: (1, 0),  # DescribeShareGroupOffsets
    91: (0, 0),  # AlterShareGroupOffsets
    92: (0, 0),  # DeleteShareGroupOffsets
    93: (0, 0),  # StreamsGroupTopologyDescriptionUpdate
    94: (0, 0),  # UnregisterController
}

#: By API key: the latest stable version in Kafka 4.4.
LATEST: Final[Mapping[int, int]] = MappingProxyType({key: latest for key, (latest, _) in _VERSIONS.items()})

#: By API key: the first version with compact types and tagged fields (KIP-482).
FIRST_FLEXIBLE: Final[Mapping[int, int]] = MappingProxyType(
    {key: first for key, (_, first) in _VERSIONS.items()}
)

#: By API key: the version that KIP-1313 adds, the first with request header 3; none of SaslHandshake, whose
#: versions clients do not negotiate.
V3_SINCE: Final[Mapping[int, int]] = MappingProxyType(
    {key: latest + 1 for key, latest in LATEST.items() if key != api_keys.SASL_HANDSHAKE}
)


def offered(ranges: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Tell which RPCs can be offered in KIP-1313's version on behalf of a broker that lacks it, and how.

    Args:
        ranges: By API key the lowest and the greatest version that the broker speaks.

    Returns:
        By API key the lowest version and KIP-1313's, for each RPC of which the broker's greatest version is
        the one right before that. Other RPCs are left out: a broker that stops earlier cannot be asked what
        KIP-1313's version asks, and one that goes further gives that number a meaning of its own.

    Source: KIP-1313, "Proposed Changes".
    """
    return {
        key: (lowest, greatest + 1)
        for key, (lowest, greatest) in ranges.items()
        if V3_SINCE.get(key) == greatest + 1
    }
