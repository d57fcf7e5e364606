"""Requests whose responses name brokers, and the addresses that clients get.

A listener either keeps addresses (:class:`KeptAddresses`), or its clients get the gateway's
(:class:`ReplacedAddresses`). Where they are replaced, each request whose response names brokers is
an exchange of its own (:class:`NamingRequest`). The session matches requests and responses, by
correlation ids that no client can guess.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from receiver.session.exchange import GREATEST_INT32, Connection
from receiver.session.messages import with_correlation_id
from receiver.wire import api_keys, k00_produce, k01_fetch, k10_find_coordinator, node_endpoints
from receiver.wire.addressed_framing import (
    AddressedRequests,
    AddressedResponses,
    LongResponse,
    names_brokers,
)
from receiver.wire.broker_addresses import ReplaceAddress
from receiver.wire.errors import WireError
from receiver.wire.field_walk import TAGGED_FIELDS, FieldWalk
from receiver.wire.frame_rewriter import frame
from receiver.wire.framing import RequestRewriter, ResponseRewriter
from receiver.wire.headers import RequestHeader, decode_response_header, response_header_version
from receiver.wire.k10_find_coordinator import CoordinatorsEdit
from receiver.wire.named_addresses import NAMED_AT_END, replace_addresses
from receiver.wire.primitives import Reader
from receiver.wire.walk import compiled

#: The work for a response that is decoded or written anew. The unit is a short response that is
#: only looked at; it takes about five microseconds.
COSTLY: Final = 8

#: Coordinators that a response can name in a unit.
_COORDINATORS_IN_A_UNIT: Final = 4

#: The longest Produce, Fetch, ShareFetch and ShareAcknowledge response that is kept as a whole. A
#: longer one passes as it comes, and its end keeps its size.
MAX_KEPT_BYTES: Final = 16_384

#: The end of a response without tagged fields.
_NO_TAGGED_FIELDS: Final = b"\0"

_CORRELATION_ID = Struct(">i")

#: A response header v1 without tagged fields.
_HEADER_BYTES: Final = _CORRELATION_ID.size + 1

#: Longest response that is replaced: ApiVersions, or Metadata for no topics of a large cluster.
_MAX_RESPONSE_BYTES: Final = 4_194_304

#: The same where addresses are replaced: Metadata of half a million partitions.
_MAX_ADDRESSED_BYTES: Final = 33_554_432

#: Gives an awaited response, or its beginning, to the session.
_Replace: TypeAlias = Callable[[bytes, int], bytes]


class NamingRequest(NamedTuple):
    """A request whose response names brokers, until that response.

    A connection on which addresses are replaced makes one for each fetch. So it is a tuple, and
    what its response needs is prepared when the response comes.
    """

    correlation_id: int
    """The correlation id that the broker's response will have."""
    api_key: int
    version: int
    """The API version that the broker got."""
    client_correlation_id: int
    max_read_bytes: int
    """A longer response is not kept as a whole."""
    work: int
    """The work for its response; see :data:`COSTLY`."""
    addresses: ReplacedAddresses
    held_bytes: int = 256
    """What this tuple takes, rounded up."""
    decides: bool = False
    """As of :class:`~receiver.session.pending.PendingRequest`."""

    def responded(self, response: bytes, _: Connection) -> bytes:
        """Return the client's answer as a frame; see :meth:`ReplacedAddresses.answer`."""
        return self.addresses.answer(self.api_key, self.version, self.client_correlation_id, response)

    def edit(self, response: memoryview) -> CoordinatorsEdit | None:
        """Return what edits a response with this beginning as it arrives; None: nothing."""
        return self.addresses.edit(self.api_key, self.version, response)

    def edited(self, edit: CoordinatorsEdit, response: bytes) -> bytes:
        """Return the client's answer of a response that was edited on arrival, as a frame."""
        header = _CORRELATION_ID.pack(self.client_correlation_id) + b"\0"
        return frame(header, edit.finish(response))

    def is_plain(self, chunk: memoryview, begin: int, end: int) -> bool:
        """Return whether a quick look shows that the response in a chunk names no broker."""
        return _is_plain(self.api_key, self.version, chunk, begin, end)

    def long_response(self) -> LongResponse:
        """Return how to rewrite a response that is too long to be kept."""
        return self.addresses.long_response(self.api_key, self.version, self.client_correlation_id)


class KeptAddresses:
    """The addresses of a connection on which they pass as they are."""

    __slots__ = ()

    def requests(
        self, replace: _Replace, *, track: Callable[[int, int, int], int | None], **arguments: Any
    ) -> RequestRewriter:
        """Return the rewriter of requests; see there for the arguments."""
        return RequestRewriter(replace, **arguments)

    def responses(
        self,
        replace: _Replace,
        *,
        take_plain: Callable[[memoryview, int, int], int | None],
        take_long: Callable[[], LongResponse | int],
        edit: Callable[[memoryview], bool],
    ) -> ResponseRewriter:
        """Return the rewriter of responses; see there for the arguments."""

        def replace_correlation_id() -> int:
            correlation_id = take_long()
            if not isinstance(correlation_id, int):
                raise AssertionError("addresses are kept")
            return correlation_id

        return ResponseRewriter(
            replace,
            replace_correlation_id=replace_correlation_id,
            max_frame_bytes=GREATEST_INT32,
            max_watched_bytes=_MAX_RESPONSE_BYTES,
        )

    def share(self, pending: object, requests: RequestRewriter, responses: ResponseRewriter) -> None:
        """Let C pass requests and responses that need nothing but correlation ids."""

    def stop_tracking(self, requests: RequestRewriter) -> None:
        """Pass requests whose responses name brokers like any other."""

    def check(self, header: RequestHeader) -> None:
        """Refuse a request whose response may hold an unknown address."""

    def work(self, api_key: int, version: int, body: Reader) -> int:
        """Return the work for a request's response; 0 if it names no brokers.

        Args:
            version: The API version that the broker gets.
            body: At the body, which includes the acknowledgements of Produce and the number of keys
                of FindCoordinator.

        Raises:
            WireError: The request is not one that the gateway offers.
        """
        return 0

    def naming(
        self, correlation_id: int, api_key: int, version: int, client_correlation_id: int, work: int = 0
    ) -> NamingRequest:
        """Return the exchange of a request for which :meth:`work` is not 0.

        Args:
            correlation_id: See :class:`NamingRequest`; the same holds for the others.
            version: The API version that the broker gets.
            work: As :meth:`work` returned it; 0 if that follows from the API key alone.
        """
        raise AssertionError("addresses are kept")


class ReplacedAddresses(KeptAddresses):
    """The addresses of clients that get the gateway's host and port for each broker."""

    __slots__ = ("_replace",)

    def __init__(self, replace: ReplaceAddress) -> None:
        self._replace = replace

    def requests(
        self, replace: _Replace, *, track: Callable[[int, int, int], int | None], **arguments: Any
    ) -> RequestRewriter:
        """See the base class."""
        return AddressedRequests(replace, track=track, **arguments)

    def responses(
        self,
        replace: _Replace,
        *,
        take_plain: Callable[[memoryview, int, int], int | None],
        take_long: Callable[[], LongResponse | int],
        edit: Callable[[memoryview], bool],
    ) -> ResponseRewriter:
        """See the base class."""
        return AddressedResponses(
            replace,
            take_plain=take_plain,
            long_response=take_long,
            edit=edit,
            max_frame_bytes=GREATEST_INT32,
            max_watched_bytes=_MAX_ADDRESSED_BYTES,
        )

    def share(self, pending: object, requests: RequestRewriter, responses: ResponseRewriter) -> None:
        """See the base class."""
        if compiled is not None:
            requests.share(pending)
            responses.share(pending)

    def stop_tracking(self, requests: RequestRewriter) -> None:
        """See the base class."""
        if isinstance(requests, AddressedRequests):
            requests.stop_tracking()

    def check(self, header: RequestHeader) -> None:
        """See the base class."""
        names_brokers(header.api_key, header.api_version)
        if header.api_key == api_keys.SASL_HANDSHAKE and header.api_version == 0:
            raise WireError(
                expected="SaslHandshake version 1, because addresses are rewritten",
                offset=2,
                found="version 0",
            )

    def work(self, api_key: int, version: int, body: Reader) -> int:
        """See the base class.

        Of all these requests, only FindCoordinator chooses how many brokers its response names. The
        others name each broker of the cluster once, whatever topics they ask for.
        """
        if not names_brokers(api_key, version):
            return 0
        if api_key == api_keys.FIND_COORDINATOR and version in k10_find_coordinator.WITH_COORDINATORS:
            return COSTLY + k10_find_coordinator.decode_count(body) // _COORDINATORS_IN_A_UNIT
        if api_key == api_keys.PRODUCE and k00_produce.decode_acks(body) == 0:
            return 0  # it has no response
        return 1 if api_key in node_endpoints.VERSIONS else COSTLY

    def naming(
        self, correlation_id: int, api_key: int, version: int, client_correlation_id: int, work: int = 0
    ) -> NamingRequest:
        """See the base class."""
        most, least = (MAX_KEPT_BYTES, 1) if api_key in node_endpoints.VERSIONS else (GREATEST_INT32, COSTLY)
        return NamingRequest(
            correlation_id, api_key, version, client_correlation_id, most, work or least, self
        )

    def answer(self, api_key: int, version: int, correlation_id: int, response: bytes) -> bytes:
        """Return the client's answer, as a frame.

        Args:
            response: The broker's response without its length.

        Raises:
            WireError: The response is malformed, up to its last address.
        """
        if (api_key, version) in NAMED_AT_END:
            if _is_plain(api_key, version, response, 0, len(response)):
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

    def edit(self, api_key: int, version: int, response: memoryview) -> CoordinatorsEdit | None:
        """Return what edits a response while it arrives; see :meth:`NamingRequest.edit`."""
        if api_key != api_keys.FIND_COORDINATOR or version not in k10_find_coordinator.WITH_COORDINATORS:
            return None
        # A response header with tagged fields is unusual.
        has_header = len(response) >= _HEADER_BYTES and not response[_HEADER_BYTES - 1]
        return CoordinatorsEdit(_HEADER_BYTES, self._replace) if has_header else None

    def long_response(self, api_key: int, version: int, correlation_id: int) -> LongResponse:
        """Return how to rewrite a response that is too long to be kept.

        See :meth:`answer`.
        """
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


def _is_plain(api_key: int, version: int, data: bytes | memoryview, begin: int, end: int) -> bool:
    """Return whether a quick look shows that a response names no broker.

    Args:
        version: Its version, whose response may have addresses at its end.
        data: Holds the response, or its beginning.
        begin: Where the response begins, without its length.
    """
    body = begin + _HEADER_BYTES
    # The byte before the body is the number of the response header's tagged fields.
    if body >= min(end, len(data)) or data[body - 1]:
        return False
    if api_key == api_keys.FETCH:
        return k01_fetch.has_no_endpoints(data, body, end)
    return api_key == api_keys.PRODUCE and k00_produce.has_no_endpoints(data, body, end, version)
