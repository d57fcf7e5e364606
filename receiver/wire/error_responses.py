"""Responses that say an error and nothing else, of every RPC whose response has an error code of its own.

Whoever refuses a request in a broker's place has to answer in the layout of its RPC. Where the error code is
one of the response as a whole, everything else has its default; a response that has error codes for topics or
partitions alone cannot be said without reading the request, and is not known here.

This module owns these bodies, for the latest version in Kafka 4.4 and the one that KIP-1313 adds after it.
It must not decide who is refused.
"""

from __future__ import annotations

from typing import Final

from receiver.wire.header_versions import LATEST, V3_SINCE

__all__ = ["error_body"]

# By API key: the body in KIP-1313's version, as Kafka 4.4's message classes write the same layout with every
# field but the error code at its default; eeee is the error code.
_LAYOUTS: Final = {
    1: "00000000 eeee 000000000100",  # Fetch
    3: "000000000100ffffffff01 eeee 00",  # Metadata
    11: "00000000 eeee ffffffff00010100010100",  # JoinGroup
    12: "00000000 eeee 00",  # Heartbeat
    13: "00000000 eeee 0100",  # LeaveGroup
    14: "00000000 eeee 00000100",  # SyncGroup
    16: "00000000 eeee 0100",  # ListGroups
    18: "eeee 010000000000",  # ApiVersions
    22: "00000000 eeee ffffffffffffffff000000",  # InitProducerId
    24: "00000000 eeee 0100",  # AddPartitionsToTxn
    25: "00000000 eeee 00",  # AddOffsetsToTxn
    26: "00000000 eeee ffffffffffffffffffff00",  # EndTxn
    29: "00000000 eeee 010100",  # DescribeAcls
    35: "00000000 eeee 0100",  # DescribeLogDirs
    36: "eeee 0101000000000000000000",  # SaslAuthenticate
    # CreateDelegationToken
    38: "eeee 0101010100000000000000000000000000000000000000000000000001010000000000",
    39: "eeee 00000000000000000000000000",  # RenewDelegationToken
    40: "eeee 00000000000000000000000000",  # ExpireDelegationToken
    41: "eeee 010000000000",  # DescribeDelegationToken
    43: "00000000 eeee 0100",  # ElectLeaders
    45: "0000000001 eeee 010100",  # AlterPartitionReassignments
    46: "00000000 eeee 010100",  # ListPartitionReassignments
    47: "eeee 000000000100",  # OffsetDelete
    48: "00000000 eeee 010100",  # DescribeClientQuotas
    50: "00000000 eeee 010100",  # DescribeUserScramCredentials
    52: "eeee 0100",  # Vote
    53: "eeee 0100",  # BeginQuorumEpoch
    54: "eeee 0100",  # EndQuorumEpoch
    55: "eeee 01010100",  # DescribeQuorum
    56: "00000000 eeee 0100",  # AlterPartition
    57: "00000000 eeee 0100",  # UpdateFeatures
    58: "00 eeee 00",  # Envelope
    59: "00000000 eeee 0100",  # FetchSnapshot
    60: "00000000 eeee 000101ffffffff018000000000",  # DescribeCluster
    62: "00000000 eeee ffffffffffffffff00",  # BrokerRegistration
    63: "00000000 eeee 00010000",  # BrokerHeartbeat
    64: "00000000 eeee 0100",  # UnregisterBroker
    66: "00000000 eeee 010100",  # ListTransactions
    67: "00000000 eeee 00000000000000000000000000",  # AllocateProducerIds
    68: "00000000 eeee 00000000000000000000ff00",  # ConsumerGroupHeartbeat
    70: "00000000 eeee 0100",  # ControllerRegistration
    71: "00000000 eeee 00000000010000000000000000000100",  # GetTelemetrySubscriptions
    72: "00000000 eeee 00",  # PushTelemetry
    73: "00000000 eeee 0100",  # AssignReplicasToDirs
    74: "00000000 eeee 0100",  # ListConfigResources
    76: "00000000 eeee 00000000000000000000ff00",  # ShareGroupHeartbeat
    78: "00000000 eeee 0000000000010100",  # ShareFetch
    79: "00000000 eeee 0000000000010100",  # ShareAcknowledge
    80: "00000000 eeee 0100",  # AddRaftVoter
    81: "00000000 eeee 0100",  # RemoveRaftVoter
    82: "00000000 eeee 00",  # UpdateRaftVoter
    # StreamsGroupHeartbeat
    88: "00000000 eeee 0001000000000000000000000000ffffffffffffffff0100000000000000000000",
    91: "00000000 eeee 000100",  # AlterShareGroupOffsets
    92: "00000000 eeee 000100",  # DeleteShareGroupOffsets
    93: "00000000 eeee 0000",  # StreamsGroupTopologyDescriptionUpdate
    94: "00000000 eeee 0100",  # UnregisterController
}

#: The two bodies that KIP-1313 changes, as they are in the version before.
_LAYOUTS_BEFORE: Final = {
    47: "eeee 0000000000000000",  # OffsetDelete
    71: "00000000 eeee 0000000000000000000000000000000000000000010000000000000000000100",
}


def error_body(api_key: int, api_version: int, error_code: int) -> bytes | None:
    """Write the body of a response that refuses a request.

    Args:
        api_key: The request's API key.
        api_version: The request's API version.
        error_code: What to say (int16).

    Returns:
        The body; None where the response has no error code for the whole, or the version is neither the
        latest of Kafka 4.4 nor KIP-1313's: such a request can only be refused by closing its connection.

    Source: KIP-1313, "Client Instance ID", for INVALID_REQUEST; the Kafka protocol guide for the layouts.
    """
    if api_version == V3_SINCE.get(api_key):
        layout = _LAYOUTS.get(api_key)
    elif api_version == LATEST.get(api_key):
        layout = _LAYOUTS_BEFORE.get(api_key, _LAYOUTS.get(api_key))
    else:
        layout = None
    return None if layout is None else bytes.fromhex(layout.replace("eeee", f"{error_code & 0xFFFF:04x}"))
