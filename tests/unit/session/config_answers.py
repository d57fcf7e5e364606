"""A broker without client metrics resources, and a receiver with one, for sessions in tests."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from receiver.session.call import OpenCall
from receiver.session.messages import answer_frame
from receiver.wire import (
    altered_configs,
    api_keys,
    k32_describe_configs,
    k74_list_config_resources,
)
from receiver.wire.altered_configs import AlterConfigsRequest, AlteredConfig, AlteredResource
from receiver.wire.config_resources import BROKER, Resource, Result
from receiver.wire.headers import (
    RequestHeader,
    decode_request_header,
    encode_response_header,
    response_header_version,
)
from receiver.wire.headers import ResponseHeader as Header
from receiver.wire.k32_describe_configs import DescribeConfigsRequest, DescribedConfig, DescribedResource
from receiver.wire.primitives import Reader
from tests.testbed.scripted_broker import RANGES, Answers, parse, request_frame

#: A broker of Kafka 3.6, as far as it matters.
OLD_RANGES: Final[Mapping[int, tuple[int, int]]] = {**RANGES, 32: (0, 4), 33: (0, 2), 44: (0, 1)}

_UNAUTHORIZED, _UNKNOWN_TYPE = 31, 42

#: What the receiver lists in these tests.
NAMES: Final = ("a", "b")


def _config(name: str) -> DescribedConfig:
    return DescribedConfig(name=name, value="1", source=7, type=3, documentation="about it")


@dataclass(frozen=True, slots=True)
class ConfigCall:
    """A call about client metrics resources, as the core reads it."""

    header: RequestHeader
    body: bytes

    @classmethod
    def read(cls, call: OpenCall) -> ConfigCall:
        """Read the request of a call."""
        return cls(call.header, call.body)

    def answer(self) -> bytes:
        """Answer as a receiver does that has every resource, and does every change."""
        key, version = self.header.api_key, self.header.api_version
        if key == api_keys.LIST_CONFIG_RESOURCES:
            body = k74_list_config_resources.encode_response(NAMES, error_code=0)
        elif key == api_keys.DESCRIBE_CONFIGS:
            request = k32_describe_configs.decode_request(self.body, version)
            described = [
                DescribedResource(Result(resource, 0, None), (_config("metrics"),))
                for resource, _ in request.resources
            ]
            body = k32_describe_configs.encode_response(described, version, request)
        else:
            altered = altered_configs.decode_request(self.body, key, version)
            body = altered_configs.encode_response(
                [Result(change.resource, 0, "done here") for change in altered.resources], key, version
            )
        return answer_frame(self.header, body)


def body_of(key: int, version: int, *resources: Resource, validate_only: bool = False) -> bytes:
    """Write the body of a request that describes these resources, or sets a config of each."""
    if key == api_keys.DESCRIBE_CONFIGS:
        request = DescribeConfigsRequest(
            resources=tuple((resource, None) for resource in resources), include_synonyms=version > 0
        )
        return k32_describe_configs.encode_request(request, version)
    configs = (AlteredConfig("metrics", "x."),)
    altered = AlterConfigsRequest(
        resources=tuple(AlteredResource(resource, configs) for resource in resources),
        validate_only=validate_only,
    )
    return altered_configs.encode_request(altered, key, version)


def config_request(
    key: int, version: int, *resources: Resource, correlation_id: int = 5, validate_only: bool = False
) -> bytes:
    """Write a request about these resources, or one that lists them."""
    body = (
        b"\0"
        if key == api_keys.LIST_CONFIG_RESOURCES
        else body_of(key, version, *resources, validate_only=validate_only)
    )
    flexible = response_header_version(key, version) > 0
    return request_frame(key, version, correlation_id, b"\0" * flexible + body)


class ConfigAnswers(Answers):
    """A broker that knows no client metrics resources.

    Attributes:
        refuses: The error code for who has no right on the cluster; 0: everybody has it.
        padding: Bytes in the value of each described config.
        throttled_ms: For how long it throttles clients, in these responses.
    """

    def __init__(self, ranges: Mapping[int, tuple[int, int]] = OLD_RANGES) -> None:
        super().__init__(ranges=ranges)
        self.refuses = 0
        self.padding = 0
        self.throttled_ms = 0

    def to(self, data: bytes) -> bytes | None:
        """See the base class."""
        (key,) = struct.unpack_from(">h", data)
        if key not in {api_keys.DESCRIBE_CONFIGS, *altered_configs.SUPPORTED_VERSIONS}:
            return super().to(data)
        self.seen.append(parse(data))
        reader = Reader(data)
        header = decode_request_header(reader)
        key, version, body = header.api_key, header.api_version, data[reader.offset :]
        if key == api_keys.DESCRIBE_CONFIGS:
            request = k32_describe_configs.decode_request(body, version)
            config = DescribedConfig(
                name="x", value="v" * self.padding, source=5, type=2, documentation="of the broker"
            )
            described = [
                DescribedResource(self._result(resource), (config,) if resource.type != BROKER else ())
                for resource, _ in request.resources
            ]
            # Not in the order of the request, as brokers do with what they refuse.
            answer = k32_describe_configs.encode_response(described[::-1], version, request)
        else:
            altered = altered_configs.decode_request(body, key, version)
            results = [self._result(change.resource) for change in altered.resources]
            answer = altered_configs.encode_response(results[::-1], key, version)
        answer = struct.pack(">i", self.throttled_ms) + answer[4:]
        response = Header(correlation_id=header.correlation_id)
        return encode_response_header(response, response_header_version(key, version)) + answer

    def _result(self, resource: Resource) -> Result:
        if resource.type == 16:
            return Result(resource, _UNKNOWN_TYPE, "unknown type")
        if resource.type == BROKER and self.refuses:
            return Result(resource, self.refuses, "Cluster authorization failed.")
        return Result(resource, 0, None)
