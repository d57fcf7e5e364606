"""ApiVersions (API key 18): the API versions that a broker speaks (KIP-35).

Versions of the request:

- 0 to 2: an empty body.
- 3: flexible; has the client's software name and version (KIP-511).
- 4: the same (the response may then list features with a minimum version of 0).
- 5: has the cluster id and node id that the client wants to reach (KIP-1242).

Versions of the response: 1 adds the throttle time. 3 is flexible, with the broker's features as
tagged fields, which are not decoded here. A response with UNSUPPORTED_VERSION has the body of
version 0, so that a client can read it whatever version it asked for (KIP-511).

This module also edits a response without decoding all of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from receiver.wire.api_keys import API_VERSIONS, check_version
from receiver.wire.error_codes import ErrorCode
from receiver.wire.k18_entries import ENTRY, FIRST_FLEXIBLE, RANGE, EntryTable, body_version
from receiver.wire.primitives import Reader
from receiver.wire.writer import TaggedFields, Writer

#: The versions that this module reads and writes, and that the receiver offers.
SUPPORTED_VERSIONS: Final = range(6)

#: Pattern of a valid software name or version (KIP-511, "ApiVersions Request/Response Handling").
#: Kafka 4.4 is stricter: ``[a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*[a-zA-Z0-9])?`` also refuses a value that
#: begins or ends with a dot or a dash. The receiver follows the KIP, and such a broker answers
#: INVALID_REQUEST itself to version 3 and later.
SOFTWARE_NAME_VERSION: Final = re.compile(r"[\.\-a-zA-Z0-9]+")

_FIRST_WITH_NODE = 5
_NO_ERROR = bytes(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest:
    """A client's question for the broker's versions."""

    client_software_name: str = ""
    """Name of the client library; empty before version 3."""
    client_software_version: str = ""
    """Version of the client library; empty before version 3."""
    cluster_id: str | None = None
    """The cluster that the client wants to reach, or None; None before version 5 (KIP-1242)."""
    node_id: int = -1
    """The broker that the client wants to reach, or -1; -1 before version 5 (KIP-1242)."""
    tagged_fields: TaggedFields = ()
    """Unknown tagged fields; empty before version 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersion:
    """The range of versions of one API key that a broker speaks (int16 each)."""

    api_key: int
    min_version: int
    max_version: int
    """The highest version, included."""
    tagged_fields: TaggedFields = ()
    """Unknown tagged fields; empty before version 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse:
    """The versions that a broker speaks."""

    error_code: int
    """Error code (int16), also one that is not in ``ErrorCode``."""
    api_keys: tuple[ApiVersion, ...] = ()
    """The ranges by API key, in the broker's order."""
    throttle_time_ms: int = 0
    """Milliseconds for which the client should send nothing; 0 before version 1."""
    tagged_fields: TaggedFields = ()
    """Tagged fields, the broker's features among them; empty before version 3."""


def is_valid_client_information(name: str, version: str) -> bool:
    """Return whether a client's software name and version are valid.

    If they are not, Kafka answers INVALID_REQUEST and closes the connection.

    Source: KIP-511, "ApiVersions Request/Response Handling".
    """
    return bool(SOFTWARE_NAME_VERSION.fullmatch(name) and SOFTWARE_NAME_VERSION.fullmatch(version))


def decode_request(reader: Reader, version: int) -> ApiVersionsRequest:
    """Read a request body (KIP-511, KIP-1242)."""
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
    """Write a request body; fields that the version lacks are left out."""
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
    """Read a response body (KIP-35, KIP-511).

    A body with UNSUPPORTED_VERSION is read as version 0.
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
    """Write a response body; fields that the version lacks are left out.

    A body with UNSUPPORTED_VERSION is written as version 0.
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
    """Write the body that answers an unknown version of ApiVersions.

    It has UNSUPPORTED_VERSION and the range of ApiVersions, in version 0. A response header of
    version 0 goes before it, whatever the request's version was.

    Source: KIP-511, "ApiVersions Request/Response Handling".
    """
    own = ApiVersion(api_key=API_VERSIONS, min_version=versions[0], max_version=versions[-1])
    return encode_response(
        ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(own,)), version=0
    )


def without_api_keys(body: bytes, version: int, keys: Collection[int]) -> bytes:
    """Remove API keys from a response; the body itself if it lists none of them."""
    response = decode_response(Reader(body), version)
    if not any(key.api_key in keys for key in response.api_keys):
        return body
    kept = tuple(key for key in response.api_keys if key.api_key not in keys)
    return encode_response(replace(response, api_keys=kept), version)


def read_error_code(body: bytes) -> int:
    """Read only the error code, which is first in every response body (KIP-35)."""
    return Reader(body).int16("ErrorCode")


def read_ranges(body: bytes, version: int, keys: Iterable[int]) -> dict[int, tuple[int, int]]:
    """Return the lowest and highest version of those API keys that are listed."""
    check_version(API_VERSIONS, version, SUPPORTED_VERSIONS)
    table = EntryTable(body, version)
    ranges = {}
    for key in keys:
        position = table.find(key)
        if position is not None:
            lowest, highest = RANGE.unpack_from(body, table.start(position) + 2)
            ranges[key] = (lowest, highest)
    return ranges


def cap_api_keys(body: bytes, version: int, ranges: Mapping[int, tuple[int, int]]) -> bytes:
    """Leave only certain versions of API keys in a response.

    Args:
        ranges: The lowest and highest version that may stay, by API key. Other keys are removed.
    """
    response = decode_response(Reader(body), version)
    kept = []
    for entry in response.api_keys:
        lowest, highest = ranges.get(entry.api_key, (0, -1))
        lowest, highest = max(lowest, entry.min_version), min(highest, entry.max_version)
        if lowest <= highest:
            kept.append(replace(entry, min_version=lowest, max_version=highest))
    return encode_response(replace(response, api_keys=tuple(kept)), version)


def splice_api_keys(body: bytes, version: int, ranges: Mapping[int, tuple[int, int]]) -> bytes:
    """Insert or replace API keys in a response without decoding the rest of it.

    An existing entry gets the new range and keeps its tagged fields. A new entry is inserted in
    order if the entries ascend, else at the end. Everything after the entries is kept.

    Args:
        ranges: The lowest and highest version to list, by API key.

    Returns:
        The edited body; the body itself if it has an error or no API keys.

    Source: KIP-35; KIP-714 for the meaning of keys 71 and 72 to a client.
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
        while position is not None:  # if a key is listed twice, all its entries get the same range
            RANGE.pack_into(edited, table.start(position) + 2, lowest, highest)
            position = table.find(key, position + 1)
    if not missing:
        return bytes(edited)
    table.insert(edited, {key: ranges[key] for key in missing})
    return bytes(edited)
