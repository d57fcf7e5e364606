"""ApiVersions, API key 18: which versions of which requests a broker speaks (KIP-35).

What the versions of the request changed:

- 0 to 2: an empty body.
- 3: flexible; the client's software name and version (KIP-511).
- 4: nothing (it allows a minimum of 0 among the supported features of the response).
- 5: the cluster id and node id that the client means to reach (KIP-1242).

And of the response: 1 adds the throttle time; 3 is flexible, with the broker's features as tagged fields,
which are kept raw here. A response of error UNSUPPORTED_VERSION has the body of version 0 whatever version
was asked for, so that a client which asked for too new a version can read it (KIP-511).

This module owns the bytes of both, and the editing of a response by bytes. It must not decide what a broker
or the receiver supports.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from receiver.wire.api_keys import API_VERSIONS, check_version
from receiver.wire.error_codes import ErrorCode
from receiver.wire.k18_entries import ENTRY, FIRST_FLEXIBLE, RANGE, EntryTable, body_version
from receiver.wire.primitives import Reader, TaggedFields, Writer

__all__ = [
    "SOFTWARE_NAME_VERSION",
    "SUPPORTED_VERSIONS",
    "ApiVersion",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "is_valid_client_information",
    "read_error_code",
    "read_ranges",
    "splice_api_keys",
    "unsupported_version_body",
]

#: The versions that this module reads and writes, and that the receiver offers.
SUPPORTED_VERSIONS: Final = range(6)

#: What a client's software name and version may look like, whole (KIP-511, "ApiVersions Request/Response
#: Handling"). Kafka 4.4 itself is stricter: ``[a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*[a-zA-Z0-9])?``, so it also
#: refuses a value that begins or ends with a dot or a dash. The KIP's text is what is accepted here; a broker
#: that is asked in version 3 or later still says its own INVALID_REQUEST.
SOFTWARE_NAME_VERSION: Final = re.compile(r"[\.\-a-zA-Z0-9]+")

_FIRST_WITH_NODE = 5
_NO_ERROR = bytes(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest:
    """What a client says of itself when it asks for a broker's versions.

    Attributes:
        client_software_name: The client library's name; empty before version 3.
        client_software_version: Its version; empty before version 3.
        cluster_id: The cluster that the client means to reach, or None; None before version 5 (KIP-1242).
        node_id: The broker that the client means to reach, or -1; -1 before version 5 (KIP-1242).
        tagged_fields: Unknown tagged fields; empty before version 3.
    """

    client_software_name: str = ""
    client_software_version: str = ""
    cluster_id: str | None = None
    node_id: int = -1
    tagged_fields: TaggedFields = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersion:
    """The versions of one API that a broker speaks, both ends included (int16 each).

    Attributes:
        api_key: The API.
        min_version: The lowest version.
        max_version: The highest version.
        tagged_fields: Unknown tagged fields; empty before version 3.
    """

    api_key: int
    min_version: int
    max_version: int
    tagged_fields: TaggedFields = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse:
    """What a broker speaks.

    Attributes:
        error_code: Error code (int16), also one that is not in ``ErrorCode``.
        api_keys: What it speaks, in the broker's order.
        throttle_time_ms: For how long the client should stay quiet, in milliseconds; 0 before version 1.
        tagged_fields: The broker's features among others, kept raw; empty before version 3.
    """

    error_code: int
    api_keys: tuple[ApiVersion, ...] = ()
    throttle_time_ms: int = 0
    tagged_fields: TaggedFields = ()


def is_valid_client_information(name: str, version: str) -> bool:
    """Tell whether a client's software name and version may be taken over.

    Args:
        name: The request's client software name.
        version: The request's client software version.

    Returns:
        False where Kafka's answer is INVALID_REQUEST and the connection is closed after it.

    Source: KIP-511, "ApiVersions Request/Response Handling".
    """
    return bool(SOFTWARE_NAME_VERSION.fullmatch(name) and SOFTWARE_NAME_VERSION.fullmatch(version))


def decode_request(reader: Reader, version: int) -> ApiVersionsRequest:
    """Read a request's body.

    Args:
        reader: At the body.
        version: The request's API version, one of :data:`SUPPORTED_VERSIONS`.

    Returns:
        The request.

    Raises:
        WireError: The bytes are no such body.
        ValueError: The version is not supported.

    Source: KIP-511, KIP-1242.
    """
    check_version(API_VERSIONS, version, SUPPORTED_VERSIONS)
    if version < FIRST_FLEXIBLE:
        return ApiVersionsRequest()
    return ApiVersionsRequest(
        client_software_name=reader.compact_string("ClientSoftwareName"),
        client_software_version=reader.compact_string("ClientSoftwareVersion"),
        cluster_id=reader.compact_nullable_string("ClusterId") if version >= _FIRST_WITH_NODE else None,
        node_id=reader.int32("NodeId") if version >= _FIRST_WITH_NODE else -1,
        tagged_fields=reader.tagged_fields("ApiVersionsRequest's tagged fields"),
    )


def encode_request(value: ApiVersionsRequest, version: int) -> bytes:
    """Write a request's body; what the version does not carry is left out.

    Args:
        value: The request.
        version: One of :data:`SUPPORTED_VERSIONS`.

    Returns:
        The body.

    Raises:
        ValueError: The version is not supported, or a string is too long.

    Source: KIP-511, KIP-1242.
    """
    check_version(API_VERSIONS, version, SUPPORTED_VERSIONS)
    if version < FIRST_FLEXIBLE:
        return b""
    writer = Writer()
    writer.compact_string(value.client_software_name)
    writer.compact_string(value.client_software_version)
    if version >= _FIRST_WITH_NODE:
        writer.compact_nullable_string(value.cluster_id)
        writer.int32(value.node_id)
    writer.tagged_fields(value.tagged_fields)
    return writer.take()


def decode_response(reader: Reader, version: int) -> ApiVersionsResponse:
    """Read a response's body.

    Args:
        reader: At the body.
        version: The API version that was asked for, one of :data:`SUPPORTED_VERSIONS`. Where the error code
            is UNSUPPORTED_VERSION the body is read as version 0.

    Returns:
        The response.

    Raises:
        WireError: The bytes are no such body.
        ValueError: The version is not supported.

    Source: KIP-35, KIP-511.
    """
    check_version(API_VERSIONS, version, SUPPORTED_VERSIONS)
    error_code = reader.int16("ErrorCode")
    version = body_version(error_code, version)
    flexible = version >= FIRST_FLEXIBLE
    count = (
        reader.compact_array_length("ApiKeys", item_size=ENTRY.size + 1)
        if flexible
        else reader.array_length("ApiKeys", item_size=ENTRY.size)
    )
    api_keys = []
    for _ in range(count):
        api_key, min_version, max_version = reader.fixed(ENTRY, "ApiKey, MinVersion and MaxVersion")
        api_keys.append(
            ApiVersion(
                api_key=api_key,
                min_version=min_version,
                max_version=max_version,
                tagged_fields=reader.tagged_fields("ApiKey's tagged fields") if flexible else (),
            )
        )
    return ApiVersionsResponse(
        error_code=error_code,
        api_keys=tuple(api_keys),
        throttle_time_ms=reader.int32("ThrottleTimeMs") if version >= 1 else 0,
        tagged_fields=reader.tagged_fields("ApiVersionsResponse's tagged fields") if flexible else (),
    )


def encode_response(value: ApiVersionsResponse, version: int) -> bytes:
    """Write a response's body; what the version does not carry is left out.

    Args:
        value: The response.
        version: The API version that was asked for, one of :data:`SUPPORTED_VERSIONS`. Where the error code
            is UNSUPPORTED_VERSION the body is written as version 0.

    Returns:
        The body.

    Raises:
        ValueError: The version is not supported.

    Source: KIP-35, KIP-511.
    """
    check_version(API_VERSIONS, version, SUPPORTED_VERSIONS)
    version = body_version(value.error_code, version)
    flexible = version >= FIRST_FLEXIBLE
    writer = Writer()
    writer.int16(value.error_code)
    if flexible:
        writer.compact_array_length(len(value.api_keys))
    else:
        writer.array_length(len(value.api_keys))
    for entry in value.api_keys:
        writer.fixed(ENTRY, entry.api_key, entry.min_version, entry.max_version)
        if flexible:
            writer.tagged_fields(entry.tagged_fields)
    if version >= 1:
        writer.int32(value.throttle_time_ms)
    if flexible:
        writer.tagged_fields(value.tagged_fields)
    return writer.take()


def unsupported_version_body(versions: range = SUPPORTED_VERSIONS) -> bytes:
    """Write the body that answers an unknown version: UNSUPPORTED_VERSION and ApiVersions' own range alone.

    Args:
        versions: The versions of ApiVersions to list.

    Returns:
        A body of version 0, which goes after a response header of version 0 whatever was asked for.

    Source: KIP-511, "ApiVersions Request/Response Handling".
    """
    own = ApiVersion(api_key=API_VERSIONS, min_version=versions[0], max_version=versions[-1])
    return encode_response(
        ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(own,)), version=0
    )


def read_error_code(body: bytes) -> int:
    """Read the error code, which is first in every version, and nothing else.

    Args:
        body: A response's body.

    Returns:
        The error code.

    Raises:
        WireError: The body has less than two bytes.

    Source: KIP-35.
    """
    return Reader(body).int16("ErrorCode")


def read_ranges(body: bytes, version: int, keys: Iterable[int]) -> dict[int, tuple[int, int]]:
    """Read what a response lists for certain keys, and nothing else.

    Args:
        body: A response's body.
        version: The API version that was asked for, one of :data:`SUPPORTED_VERSIONS`.
        keys: The API keys of interest.

    Returns:
        By key the lowest and the highest version; a key that is not listed is left out.

    Raises:
        WireError: The body is none up to the end of its API keys.
        ValueError: The version is not supported.

    Source: KIP-35.
    """
    check_version(API_VERSIONS, version, SUPPORTED_VERSIONS)
    table = EntryTable(body, version)
    ranges = {}
    for key in keys:
        position = table.find(key)
        if position is not None:
            lowest, highest = RANGE.unpack_from(body, table.start(position) + 2)
            ranges[key] = (lowest, highest)
    return ranges


def splice_api_keys(body: bytes, version: int, ranges: Mapping[int, tuple[int, int]]) -> bytes:
    """Put API keys into a response without decoding the rest of it.

    An entry that is there gets the new range and keeps its tagged fields; a new one goes where its key
    belongs where the entries ascend, else to the end. Everything after the entries stays as it is.

    Args:
        body: A response's body.
        version: The API version that was asked for, one of :data:`SUPPORTED_VERSIONS`.
        ranges: By API key the lowest and the highest version to list.

    Returns:
        The edited body; the body itself where it holds an error or no API keys.

    Raises:
        WireError: The body is none up to the end of its API keys.
        ValueError: The version is not supported.

    Source: KIP-35; KIP-714 for what its presence tells a client.
    """
    check_version(API_VERSIONS, version, SUPPORTED_VERSIONS)
    if len(body) >= len(_NO_ERROR) and not body.startswith(_NO_ERROR):
        return body
    table = EntryTable(body, version)
    if not table.keys:
        return body
    edited = bytearray(body)
    missing = []
    for key, (lowest, highest) in ranges.items():
        position = table.find(key)
        if position is None:
            missing.append(key)
        while position is not None:  # nobody should list a key twice; if so, all entries have to agree
            RANGE.pack_into(edited, table.start(position) + 2, lowest, highest)
            position = table.find(key, position + 1)
    if not missing:
        return bytes(edited)
    table.insert(edited, {key: ranges[key] for key in missing})
    return bytes(edited)
