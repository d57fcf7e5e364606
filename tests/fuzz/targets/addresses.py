"""Fuzzes the replacing of brokers' addresses in responses.

An input's first byte chooses API key and version, and the rest is a response body. A response that
was rewritten must name nothing but the gateway, and read again it must not change.
"""

from __future__ import annotations

from receiver.session.exchanges.addresses import ReplacedAddresses
from receiver.wire import api_keys, k01_fetch, node_endpoints
from receiver.wire.broker_addresses import BrokerAddress
from receiver.wire.errors import WireError
from receiver.wire.field_walk import FieldWalk
from receiver.wire.frame_rewriter import LENGTH_BYTES
from receiver.wire.headers import response_header_version
from receiver.wire.named_addresses import NAMED_AT_END, NAMED_INSIDE
from receiver.wire.primitives import Reader
from tests.fuzz.target import Target, require
from tests.unit.wire.corpus import decode_header, load

_HOST = "gateway.example"
_PORT = 29_100

#: The longest text of an error, whatever the bytes are.
_MAX_ERROR_CHARACTERS = 300

_KINDS = sorted(NAMED_INSIDE | NAMED_AT_END)


def _replace(broker: BrokerAddress) -> tuple[str, int]:
    require(broker.node_id >= 0, "no broker has a negative id")
    return _HOST, _PORT


def _is_the_gateway(broker: BrokerAddress) -> tuple[str, int]:
    require((broker.host, broker.port) == (_HOST, _PORT), f"the answer still names {broker}")
    return _HOST, _PORT


def _in_pieces(kind: tuple[int, int], body: bytes, piece: int) -> None:
    """Check the rewriting of a response that is too long to be kept."""
    walk = FieldWalk(node_endpoints.fields_before(*kind), len(body))
    for begin in range(0, len(body), piece):
        if walk.done:
            break
        walk.feed(body[begin : begin + piece])
    if not walk.done:
        return
    end = body[walk.offset :]
    written = node_endpoints.replace_addresses(end, kind[0], _replace, same_size=True)
    require(len(written) == len(end), "the end has another size")
    node_endpoints.replace_addresses(written, kind[0], _is_the_gateway, same_size=True)


def _run(data: bytes) -> None:
    if len(data) < 2:
        return
    kind, piece, body = _KINDS[data[0] % len(_KINDS)], 1 + data[1], data[2:]
    header = bytes(4 + response_header_version(*kind))
    try:
        answer = ReplacedAddresses(_replace).answer(*kind, 7, header + body)
        require(len(answer) <= 4 * len(body) + 64, "an answer much longer than the response")
        again = ReplacedAddresses(_is_the_gateway).answer(*kind, 7, answer[LENGTH_BYTES:])
        require(again == answer, "rewritten again it differs")
        if kind[0] == api_keys.FETCH and k01_fetch.has_no_endpoints(body, 0, len(body)):
            walk = FieldWalk(node_endpoints.fields_before(*kind), len(body))
            require(body[walk.feed(body) :] == b"\0" and walk.done, "a quick look missed the end")
        if kind in NAMED_AT_END:
            _in_pieces(kind, body, piece)
    except WireError as error:
        require(len(str(error)) <= _MAX_ERROR_CHARACTERS, "an error as long as the bytes allow")


def _seeds() -> list[bytes]:
    seeds = []
    for frame in load():
        if not frame.is_request and (frame.key, frame.version) in _KINDS:
            reader = Reader(frame.data)
            decode_header(reader, frame)
            seeds.append(bytes([_KINDS.index((frame.key, frame.version)), 9]) + frame.data[reader.offset :])
    for index in range(len(_KINDS)):
        seeds += [bytes([index, 3]) + bytes(40), bytes([index, 3]) + bytes(range(1, 60))]
    return sorted(set(seeds), key=len)


TARGET = Target(name="addresses", run=_run, seeds=_seeds, max_bytes=2048, max_memory=8 << 20, brief=20_000)
