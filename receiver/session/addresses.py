"""Replaces the addresses of brokers in the responses of one connection.

Owns the answer to each request whose response names brokers. The session matches requests and
responses, by correlation ids that no client can guess.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import Final

from receiver.session.messages import with_correlation_id
from receiver.wire import api_keys, k00_produce, k01_fetch, node_endpoints
from receiver.wire.addressed_framing import LongResponse, names_brokers
from receiver.wire.broker_addresses import ReplaceAddress
from receiver.wire.errors import WireError
from receiver.wire.field_walk import TAGGED_FIELDS, FieldWalk
from receiver.wire.framing import frame
from receiver.wire.headers import RequestHeader, decode_response_header, response_header_version
from receiver.wire.named_addresses import NAMED_AT_END, replace_addresses
from receiver.wire.primitives import Reader

__all__ = ["MAX_KEPT_BYTES", "Addresses", "is_plain", "needs_look"]

#: The longest Produce, Fetch, ShareFetch and ShareAcknowledge response that is kept as a whole. A
#: longer one passes as it comes, and its end keeps its size.
MAX_KEPT_BYTES: Final = 16_384

#: The end of a response without tagged fields.
_NO_TAGGED_FIELDS: Final = b"\0"

_CORRELATION_ID = Struct(">i")

#: A response header v1 without tagged fields.
_HEADER_BYTES: Final = _CORRELATION_ID.size + 1


def needs_look(header: RequestHeader, reader: Reader) -> bool:
    """Return whether the response to a request may name brokers.

    Args:
        header: The request's header.
        reader: At the beginning of the body, which for Produce includes the acknowledgements.

    Raises:
        WireError: The request is not one that the gateway offers.
    """
    if not names_brokers(header.api_key, header.api_version):
        return False
    # Produce without acknowledgements has no response.
    return header.api_key != api_keys.PRODUCE or k00_produce.decode_acks(reader) != 0


def is_plain(api_key: int, data: bytes | memoryview, begin: int, end: int) -> bool:
    """Return whether a quick look shows that a response names no broker.

    Args:
        api_key: The request's API key, of a version whose response may have addresses at its end.
        data: Holds the response.
        begin: Where the response begins, without its length.
        end: Where it ends.
    """
    if api_key != api_keys.FETCH:
        return False
    body = begin + _HEADER_BYTES
    # The byte before the body is the number of the response header's tagged fields.
    return body < end and not data[body - 1] and k01_fetch.has_no_endpoints(data, body, end)


class Addresses:
    """Makes the answers of one listener's connections, with the gateway's addresses.

    Args:
        replace: Gives the host and port of each broker.
    """

    __slots__ = ("_replace",)

    def __init__(self, replace: ReplaceAddress) -> None:
        self._replace = replace

    def answer(self, api_key: int, version: int, correlation_id: int, response: bytes) -> bytes:
        """Return the client's answer, as a frame.

        Args:
            api_key: The request's API key.
            version: The request's API version.
            correlation_id: The correlation id for the client.
            response: The broker's response without its length.

        Raises:
            WireError: The response is malformed, up to its last address.
        """
        if (api_key, version) in NAMED_AT_END:
            if is_plain(api_key, response, 0, len(response)):
                return frame(_CORRELATION_ID.pack(correlation_id), response[_CORRELATION_ID.size :])
            at = self._end_of_fields(api_key, version, response)
            end = response[at:]
            if end != _NO_TAGGED_FIELDS:
                end = node_endpoints.replace_addresses(end, api_key, self._replace, same_size=False)
            return frame(_CORRELATION_ID.pack(correlation_id), response[_CORRELATION_ID.size : at], end)
        reader = Reader(response)
        decode_response_header(reader, response_header_version(api_key, version))
        header = with_correlation_id(correlation_id, response[: reader.offset], at=0)
        body = replace_addresses(response[reader.offset :], api_key, version, self._replace)
        return frame(header, body)

    def long_response(self, api_key: int, version: int, correlation_id: int) -> LongResponse:
        """Return how to rewrite a response that is too long to be kept; see :meth:`answer`."""
        replace_end = partial(
            node_endpoints.replace_addresses, api_key=api_key, replace=self._replace, same_size=True
        )
        return LongResponse(
            correlation_id=correlation_id,
            fields=node_endpoints.fields_before(api_key, version),
            plain_end=node_endpoints.PLAIN_ENDS[api_key],
            replace_end=replace_end,
        )

    @staticmethod
    def _end_of_fields(api_key: int, version: int, response: bytes) -> int:
        size = len(response) - _CORRELATION_ID.size
        walk = FieldWalk((TAGGED_FIELDS, *node_endpoints.fields_before(api_key, version)), size)
        at = walk.feed(response, _CORRELATION_ID.size)
        if not walk.done:
            raise WireError(expected="the fields of a response", offset=at, found="its end")
        return at
