"""The latest and the first flexible version of every RPC in Kafka 4.4, as a table.

Kafka's schemas tie a header's version to the request's version. From an RPC's first flexible
version on, requests have header v2 and responses have header v1 (KIP-482). KIP-1313 adds one
version to every RPC but SaslHandshake, right after the latest of Kafka 4.4, with request header v3.

A broker may be older or newer than this table, so it does not decide which versions are offered.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from receiver.wire import api_keys

#: A version that no RPC ever reaches.
_NEVER = 1 << 15

# By API key: the latest stable version in Kafka 4.4, and the first flexible version.
# OffsetDelete becomes flexible in KIP-1313's version. Kafka 4.0 removed keys 4 to 7.
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

#: By API key: the version that KIP-1313 adds, the first with request header v3. SaslHandshake has
#: none, because clients do not negotiate its versions.
FIRST_WITH_HEADER_V3: Final[Mapping[int, int]] = MappingProxyType(
    {key: latest + 1 for key, latest in LATEST.items() if key != api_keys.SASL_HANDSHAKE}
)
