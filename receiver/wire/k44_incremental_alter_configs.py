"""IncrementalAlterConfigs (API key 44): changes single configs of resources.

Version 1 is flexible.

Source: the schemas of the request and the response; KIP-339.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from receiver.wire import altered_configs
from receiver.wire.altered_configs import AlterConfigsRequest
from receiver.wire.api_keys import INCREMENTAL_ALTER_CONFIGS, check_version
from receiver.wire.config_resources import Result

#: The versions that this module reads and writes.
SUPPORTED_VERSIONS: Final = range(2)


def decode_request(body: bytes, version: int) -> AlterConfigsRequest:
    """Read a request body; raises WireError."""
    check_version(INCREMENTAL_ALTER_CONFIGS, version, SUPPORTED_VERSIONS)
    return altered_configs.decode_request(body, INCREMENTAL_ALTER_CONFIGS, version)


def encode_request(value: AlterConfigsRequest, version: int) -> bytes:
    """Write a request body."""
    check_version(INCREMENTAL_ALTER_CONFIGS, version, SUPPORTED_VERSIONS)
    return altered_configs.encode_request(value, INCREMENTAL_ALTER_CONFIGS, version)


def encode_response(results: Sequence[Result], version: int) -> bytes:
    """Write a response body."""
    check_version(INCREMENTAL_ALTER_CONFIGS, version, SUPPORTED_VERSIONS)
    return altered_configs.encode_response(results, INCREMENTAL_ALTER_CONFIGS, version)
