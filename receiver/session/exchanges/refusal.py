"""Writes INVALID_REQUEST answers to requests that KIP-1313 refuses.

Knows every response with one error code for the whole. All other fields get their defaults. A
response with error codes only for topics, partitions or groups is written by
:mod:`~receiver.session.exchanges.refused_entries`, which reads the request.

Owns the layouts for all versions in Kafka 4.4 and the version that KIP-1313 adds after the latest.
Which requests are refused is decided in :mod:`receiver.session.kip1313.instance_binding`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from receiver.session.effects import ClientInstanceRefused
from receiver.session.exchange import Connection, Exchange, held_memory
from receiver.session.exchanges.refused_entries import error_entries, has_entries
from receiver.session.messages import answer_frame, unknown_version_request
from receiver.wire import api_keys, k18_api_versions
from receiver.wire.error_codes import ErrorCode
from receiver.wire.errors import WireError
from receiver.wire.frame_rewriter import frame
from receiver.wire.header_versions import FIRST_WITH_HEADER_V3
from receiver.wire.headers import RequestHeader
from receiver.wire.k18_api_versions import ApiVersionsResponse
from receiver.wire.primitives import Reader

# The body by API key and the first version that has it; eeee is the error code. Kafka 4.4's message
# classes write the same bytes, with defaults in all other fields. The version of KIP-1313 has the
# body of the one before, unless it has its own. None: from here on entries have error codes.
_LAYOUTS: Final[Mapping[int, Mapping[int, str | None]]] = {
    1: {7: "00000000 eeee 0000000000000000", 12: "00000000 eeee 000000000100"},  # Fetch
    3: {13: "000000000100ffffffff01 eeee 00"},  # Metadata
    9: {2: "00000000 eeee", 3: "0000000000000000 eeee", 6: "0000000001 eeee 00", 8: None},  # OffsetFetch
    # FindCoordinator
    10: {
        0: "eeee 00000000000000000000",
        1: "00000000 eeee 000000000000000000000000",
        3: "00000000 eeee 0100000000010000000000",
        4: None,
    },
    # JoinGroup
    11: {
        0: "eeee ffffffff00000000000000000000",
        2: "00000000 eeee ffffffff00000000000000000000",
        6: "00000000 eeee ffffffff0101010100",
        7: "00000000 eeee ffffffff000101010100",
        9: "00000000 eeee ffffffff00010100010100",
    },
    12: {0: "eeee", 1: "00000000 eeee", 4: "00000000 eeee 00"},  # Heartbeat
    13: {0: "eeee", 1: "00000000 eeee", 3: "00000000 eeee 00000000", 4: "00000000 eeee 0100"},  # LeaveGroup
    # SyncGroup
    14: {
        0: "eeee 00000000",
        1: "00000000 eeee 00000000",
        4: "00000000 eeee 0100",
        5: "00000000 eeee 00000100",
    },
    16: {0: "eeee 00000000", 1: "00000000 eeee 00000000", 3: "00000000 eeee 0100"},  # ListGroups
    18: {0: "eeee 00000000", 1: "eeee 0000000000000000", 3: "eeee 010000000000"},  # ApiVersions
    # InitProducerId
    22: {
        0: "00000000 eeee ffffffffffffffff0000",
        2: "00000000 eeee ffffffffffffffff000000",
    },
    24: {4: "00000000 eeee 0100"},  # AddPartitionsToTxn
    25: {0: "00000000 eeee", 3: "00000000 eeee 00"},  # AddOffsetsToTxn
    26: {0: "00000000 eeee", 3: "00000000 eeee 00", 5: "00000000 eeee ffffffffffffffffffff00"},  # EndTxn
    29: {1: "00000000 eeee 000000000000", 2: "00000000 eeee 010100"},  # DescribeAcls
    35: {1: "0000000000000000", 2: "000000000100", 3: "00000000 eeee 0100"},  # DescribeLogDirs
    # SaslAuthenticate
    36: {
        0: "eeee 000000000000",
        1: "eeee 0000000000000000000000000000",
        2: "eeee 0101000000000000000000",
    },
    # CreateDelegationToken
    38: {
        1: "eeee 0000000000000000000000000000000000000000000000000000000000000000000000000000",
        2: "eeee 010100000000000000000000000000000000000000000000000001010000000000",
        3: "eeee 0101010100000000000000000000000000000000000000000000000001010000000000",
    },
    39: {1: "eeee 000000000000000000000000", 2: "eeee 00000000000000000000000000"},  # RenewDelegationToken
    40: {1: "eeee 000000000000000000000000", 2: "eeee 00000000000000000000000000"},  # ExpireDelegationToken
    41: {1: "eeee 0000000000000000", 2: "eeee 010000000000"},  # DescribeDelegationToken
    43: {1: "00000000 eeee 00000000", 2: "00000000 eeee 0100"},  # ElectLeaders
    45: {0: "00000000 eeee 010100", 1: "0000000001 eeee 010100"},  # AlterPartitionReassignments
    46: {0: "00000000 eeee 010100"},  # ListPartitionReassignments
    47: {0: "eeee 0000000000000000", 1: "eeee 000000000100"},  # OffsetDelete
    48: {0: "00000000 eeee 000000000000", 1: "00000000 eeee 010100"},  # DescribeClientQuotas
    50: {0: "00000000 eeee 010100"},  # DescribeUserScramCredentials
    52: {0: "eeee 0100"},  # Vote
    53: {0: "eeee 00000000", 1: "eeee 0100"},  # BeginQuorumEpoch
    54: {0: "eeee 00000000", 1: "eeee 0100"},  # EndQuorumEpoch
    55: {0: "eeee 0100", 2: "eeee 01010100"},  # DescribeQuorum
    56: {2: "00000000 eeee 0100"},  # AlterPartition
    57: {0: "00000000 eeee 010100", 2: "00000000 eeee 0100"},  # UpdateFeatures
    58: {0: "00 eeee 00"},  # Envelope
    59: {0: "00000000 eeee 0100"},  # FetchSnapshot
    # DescribeCluster
    60: {
        0: "00000000 eeee 0001ffffffff018000000000",
        1: "00000000 eeee 000101ffffffff018000000000",
    },
    62: {0: "00000000 eeee ffffffffffffffff00"},  # BrokerRegistration
    63: {0: "00000000 eeee 00010000"},  # BrokerHeartbeat
    64: {0: "00000000 eeee 0100"},  # UnregisterBroker
    66: {0: "00000000 eeee 010100"},  # ListTransactions
    67: {0: "00000000 eeee 00000000000000000000000000"},  # AllocateProducerIds
    68: {0: "00000000 eeee 00000000000000000000ff00"},  # ConsumerGroupHeartbeat
    70: {0: "00000000 eeee 0100"},  # ControllerRegistration
    # GetTelemetrySubscriptions
    71: {
        0: "00000000 eeee 0000000000000000000000000000000000000000010000000000000000000100",
        1: "00000000 eeee 00000000010000000000000000000100",
    },
    72: {0: "00000000 eeee 00"},  # PushTelemetry
    73: {0: "00000000 eeee 0100"},  # AssignReplicasToDirs
    74: {0: "00000000 eeee 0100"},  # ListConfigResources
    76: {1: "00000000 eeee 00000000000000000000ff00"},  # ShareGroupHeartbeat
    78: {1: "00000000 eeee 0000000000010100"},  # ShareFetch
    79: {1: "00000000 eeee 00010100", 2: "00000000 eeee 0000000000010100"},  # ShareAcknowledge
    80: {0: "00000000 eeee 0100"},  # AddRaftVoter
    81: {0: "00000000 eeee 0100"},  # RemoveRaftVoter
    82: {0: "00000000 eeee 00"},  # UpdateRaftVoter
    # StreamsGroupHeartbeat
    88: {
        0: "00000000 eeee 00010000000000000000000000000000000001000000000000000000",
        1: "00000000 eeee 0001000000000000000000000000ffffffffffffffff0100000000000000000000",
    },
    91: {0: "00000000 eeee 000100"},  # AlterShareGroupOffsets
    92: {0: "00000000 eeee 000100"},  # DeleteShareGroupOffsets
    93: {0: "00000000 eeee 0000"},  # StreamsGroupTopologyDescriptionUpdate
    94: {0: "00000000 eeee 0100"},  # UnregisterController
}


class _Refused(Exchange):
    """A refused request; the broker gets one in a version that it lacks."""

    __slots__ = ("_answer", "_header", "held_bytes")

    def __init__(self, header: RequestHeader, body: Reader | None) -> None:
        self._header = header
        self._answer = refusal(header, body)
        self.held_bytes = held_memory(header, self._answer)

    def responded(self, response: bytes, connection: Connection) -> bytes:
        connection.emit(ClientInstanceRefused(self._header))
        return self._answer


def must_be_read(header: RequestHeader) -> bool:
    """Return whether a refused request's body is needed for its answer."""
    key, version = header.api_key, header.api_version
    return _layout(key, version) is None and has_entries(key, version)


def refuse(header: RequestHeader, connection: Connection, body: Reader | None = None) -> bytes:
    """Answer a request with INVALID_REQUEST, in its order.

    Return the frame for the broker.

    Args:
        header: The refused request's header, without tagged fields.

    Raises:
        WireError: The answer has no place for an error code. The connection has to be closed.
    """
    refused = _Refused(header, body)
    correlation_id = connection.expect(refused, held_bytes=refused.held_bytes)
    return frame(unknown_version_request(header, correlation_id))


def refusal(header: RequestHeader, request_body: Reader | None = None) -> bytes:
    """Write the frame that answers a request with INVALID_REQUEST.

    Raises:
        WireError: The answer has no place for an error code. The connection has to be closed.
    """
    version, error_code = header.api_version, ErrorCode.INVALID_REQUEST
    body: bytes | None
    if header.api_key == api_keys.API_VERSIONS and version in k18_api_versions.SUPPORTED_VERSIONS:
        body = k18_api_versions.encode_response(ApiVersionsResponse(error_code=error_code), version)
    elif request_body is not None and must_be_read(header):
        body = error_entries(header.api_key, version, request_body, error_code)
    else:
        body = error_body(header.api_key, version, error_code)
    if body is None:
        raise WireError(
            expected="the client instance id of the connection's first request (KIP-1313)",
            offset=0,
            found="another one, or none",
        )
    return answer_frame(header, body)


def error_body(api_key: int, api_version: int, error_code: int) -> bytes | None:
    """Write the body of a response that consists of an error code and defaults.

    Returns:
        The body. None if the response has no error code for the whole, or the version is neither
        one of Kafka 4.4's nor KIP-1313's.

    Source: KIP-1313, "Client Instance ID", for INVALID_REQUEST; the Kafka protocol guide for the
        layouts.
    """
    layout = _layout(api_key, api_version)
    return None if layout is None else bytes.fromhex(layout.replace("eeee", f"{error_code & 0xFFFF:04x}"))


def _layout(api_key: int, api_version: int) -> str | None:
    layouts = _LAYOUTS.get(api_key, {})
    first = max((first for first in layouts if first <= api_version), default=None)
    if first is None or api_version > FIRST_WITH_HEADER_V3[api_key]:
        return None
    return layouts[first]
