"""Writes INVALID_REQUEST answers to requests that KIP-1313 refuses.

Knows every RPC whose response has one error code for the whole response. All other fields get their
defaults. A response with error codes only for topics, partitions or groups is written by
:mod:`~receiver.session.exchanges.refused_entries`, which reads the request.

Owns the layouts for the latest version in Kafka 4.4 and the version that KIP-1313 adds after it.
Which requests are refused is decided in :mod:`receiver.session.kip1313.instance_binding`.
"""

from __future__ import annotations

from typing import Final

from receiver.session.effects import ClientInstanceRefused
from receiver.session.exchange import Connection, Exchange
from receiver.session.exchanges.refused_entries import error_entries, has_entries
from receiver.session.messages import answer_frame, unknown_version_request
from receiver.wire import api_keys, k18_api_versions
from receiver.wire.error_codes import ErrorCode
from receiver.wire.errors import WireError
from receiver.wire.frame_rewriter import frame
from receiver.wire.header_versions import FIRST_WITH_HEADER_V3, LATEST
from receiver.wire.headers import RequestHeader
from receiver.wire.k18_api_versions import ApiVersionsResponse
from receiver.wire.primitives import Reader

# The body in KIP-1313's version, by API key; eeee is the error code. Kafka 4.4's message classes
# write the same bytes for the same layout with defaults in all other fields.
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

#: The two bodies that KIP-1313 changes, in the version before it.
_LAYOUTS_BEFORE: Final = {
    47: "eeee 0000000000000000",  # OffsetDelete
    71: "00000000 eeee 0000000000000000000000000000000000000000010000000000000000000100",
}


class _Refused(Exchange):
    """A refused request; the broker gets one in a version that it lacks."""

    __slots__ = ("_answer", "_header")

    def __init__(self, header: RequestHeader, body: Reader | None) -> None:
        self._header = header
        self._answer = refusal(header, body)

    def responded(self, response: bytes, connection: Connection) -> bytes:
        """See the base class."""
        connection.emit(ClientInstanceRefused(self._header))
        return self._answer


def must_be_read(header: RequestHeader) -> bool:
    """Return whether a refused request's body is needed for its answer."""
    return has_entries(header.api_key) and _is_known(header.api_key, header.api_version)


def refuse(header: RequestHeader, connection: Connection, body: Reader | None = None) -> bytes:
    """Answer a request with INVALID_REQUEST, in its order.

    Return the frame for the broker.

    Args:
        header: The refused request's header, without tagged fields.
        connection: Its connection.
        body: The request's body, if it :func:`must_be_read`.

    Raises:
        WireError: The answer has no place for an error code. The connection has to be closed.
    """
    return frame(unknown_version_request(header, connection.expect(_Refused(header, body))))


def refusal(header: RequestHeader, request_body: Reader | None = None) -> bytes:
    """Write the frame that answers a request with INVALID_REQUEST.

    Args:
        header: The refused request's header.
        request_body: The request's body, if it :func:`must_be_read`.

    Raises:
        WireError: The answer has no place for an error code. The connection has to be closed.
    """
    version, error_code = header.api_version, ErrorCode.INVALID_REQUEST
    body: bytes | None
    if header.api_key == api_keys.API_VERSIONS and version in k18_api_versions.SUPPORTED_VERSIONS:
        body = k18_api_versions.encode_response(ApiVersionsResponse(error_code=error_code), version)
    elif request_body is not None and must_be_read(header):
        body = error_entries(header.api_key, request_body, error_code)
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
        the latest of Kafka 4.4 nor KIP-1313's.

    Source: KIP-1313, "Client Instance ID", for INVALID_REQUEST; the Kafka protocol guide for the
        layouts.
    """
    if not _is_known(api_key, api_version):
        layout = None
    elif api_version == LATEST[api_key]:
        layout = _LAYOUTS_BEFORE.get(api_key, _LAYOUTS.get(api_key))
    else:
        layout = _LAYOUTS.get(api_key)
    return None if layout is None else bytes.fromhex(layout.replace("eeee", f"{error_code & 0xFFFF:04x}"))


def _is_known(api_key: int, api_version: int) -> bool:
    return api_version in {LATEST.get(api_key), FIRST_WITH_HEADER_V3.get(api_key)}
