"""Addresses in responses are replaced, whatever the bytes are and however they arrive."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from receiver.wire import api_keys, k01_fetch, node_endpoints
from receiver.wire.broker_addresses import BrokerAddress
from receiver.wire.errors import WireError
from receiver.wire.field_walk import DATA, TAGGED_FIELDS, Array, Field, Fields, FieldWalk
from receiver.wire.named_addresses import NAMED_AT_END, NAMED_INSIDE, replace_addresses
from receiver.wire.primitives import Reader
from receiver.wire.writer import Writer
from tests.property.wire.strategies import int32s, texts, unknown_tags

_scalars: st.SearchStrategy[Field] = st.integers(1, 40) | st.sampled_from([DATA, TAGGED_FIELDS])
_fields: st.SearchStrategy[Fields] = st.recursive(
    st.lists(_scalars, min_size=1, max_size=4).map(tuple),
    lambda inner: st.lists(_scalars | inner.map(Array), min_size=1, max_size=4).map(tuple),
    max_leaves=6,
)
_endpoints = st.lists(st.tuples(st.integers(0, 2**31 - 1), texts, int32s, st.none() | texts), max_size=5)
_hosts = st.text("abc.", max_size=60)


def _write(writer: Writer, fields: Fields, data: st.DataObject) -> None:
    """Write a message of these fields."""
    for field in fields:
        if isinstance(field, Array):
            count = data.draw(st.none() | st.integers(0, 3))
            writer.compact_array_length(count)
            for _ in range(count or 0):
                _write(writer, field.item, data)
        elif field == DATA:
            writer.compact_nullable_string(data.draw(st.none() | st.text(max_size=200)))
        elif field == TAGGED_FIELDS:
            writer.tagged_fields(data.draw(unknown_tags))
        else:
            writer.raw(bytes(field))


@given(fields=_fields, data=st.data(), after=st.binary(max_size=5), piece=st.integers(1, 50))
def test_a_walk_ends_after_the_fields(fields: Fields, data: st.DataObject, after: bytes, piece: int) -> None:
    writer = Writer()
    _write(writer, fields, data)
    message = writer.take() + after
    walk = FieldWalk(fields, len(message))
    assert walk.feed(message) == walk.offset == len(message) - len(after)
    in_pieces = FieldWalk(fields, len(message))
    for begin in range(0, len(message), piece):
        in_pieces.feed(message[begin : begin + piece])
    assert in_pieces.offset == walk.offset


@given(at=st.sampled_from(sorted(NAMED_AT_END)), message=st.binary(max_size=300), piece=st.integers(1, 50))
def test_a_walk_over_any_bytes_stays_inside(at: tuple[int, int], message: bytes, piece: int) -> None:
    walk = FieldWalk(node_endpoints.fields_before(*at), len(message))
    with suppress(WireError):
        for begin in range(0, len(message), piece):
            walk.feed(message[begin : begin + piece])
    assert walk.offset <= len(message)


@given(
    key=st.sampled_from([api_keys.PRODUCE, api_keys.SHARE_FETCH]),
    endpoints=_endpoints,
    others=unknown_tags,
    host=_hosts,
)
def test_an_end_of_the_same_size_has_the_new_addresses_or_none(
    key: int,
    endpoints: list[tuple[int, str, int, str | None]],
    others: tuple[tuple[int, bytes], ...],
    host: str,
) -> None:
    writer = Writer()
    writer.compact_array_length(len(endpoints))
    for node_id, old_host, port, rack in endpoints:
        writer.int32(node_id)
        writer.compact_string(old_host)
        writer.int32(port)
        writer.compact_nullable_string(rack)
        writer.tagged_fields(())
    array = writer.take()
    writer = Writer()
    if key == api_keys.PRODUCE:
        writer.tagged_fields(((0, array), *others))
    else:
        writer.raw(array)
        writer.tagged_fields(others)
    end = writer.take()
    found: list[BrokerAddress] = []

    def replace(broker: BrokerAddress) -> tuple[str, int]:
        found.append(broker)
        return host, 7

    written = node_endpoints.replace_addresses(end, key, replace, same_size=True)
    assert len(written) == len(end)
    assert found == [BrokerAddress(node_id, host, port) for node_id, host, port, _ in endpoints]
    reader = Reader(written)
    array_reader = reader
    if key == api_keys.PRODUCE:
        tags = dict(reader.tagged_fields())
        array_reader = Reader(tags.get(0, b"\x01"))
    addresses = []
    for _ in range(array_reader.compact_array_length("Brokers")):
        node_id, new_host, port = array_reader.int32(), array_reader.compact_string(), array_reader.int32()
        array_reader.compact_nullable_string()
        array_reader.tagged_fields()
        addresses.append((node_id, new_host, port))
    if key != api_keys.PRODUCE:
        tags = dict(reader.tagged_fields())
    reader.expect_end()
    assert addresses in ([], [(node_id, host, 7) for node_id, *_ in endpoints])
    if len(host) <= min((len(old_host) for _, old_host, *_ in endpoints), default=0) - 2:
        assert len(addresses) == len(endpoints)
        assert tags.items() >= dict(others).items()


@given(
    topics=st.lists(st.lists(st.tuples(st.binary(max_size=300), st.booleans()), max_size=3), max_size=3),
    endpoints=_endpoints,
    change=st.none() | st.tuples(st.integers(0, 400), st.integers(0, 255)),
)
def test_a_quick_look_at_a_fetch_response_is_right(
    topics: list[list[tuple[bytes, bool]]],
    endpoints: list[tuple[int, str, int, str | None]],
    change: tuple[int, int] | None,
) -> None:
    writer = Writer()
    writer.raw(bytes(10))
    writer.compact_array_length(len(topics))
    for partitions in topics:
        writer.raw(bytes(16))
        writer.compact_array_length(len(partitions))
        for records, has_aborted in partitions:
            writer.raw(bytes(30))
            writer.compact_array_length(1 if has_aborted else 0)
            writer.raw(bytes(17 if has_aborted else 0))
            writer.raw(bytes(4))
            writer.compact_bytes_field(records)
            writer.tagged_fields(())
        writer.tagged_fields(())
    inner = Writer()
    inner.compact_array_length(len(endpoints))
    for node_id, host, port, rack in endpoints:
        inner.int32(node_id)
        inner.compact_string(host)
        inner.int32(port)
        inner.compact_nullable_string(rack)
        inner.tagged_fields(())
    writer.tagged_fields(((0, inner.take()),) if endpoints else ())
    body = bytearray(writer.take())
    usual = not endpoints and not any(aborted for partitions in topics for _, aborted in partitions)
    if change is None:
        assert k01_fetch.has_no_endpoints(bytes(body), 0, len(body)) == usual
        return
    body[change[0] % len(body)] = change[1]
    if k01_fetch.has_no_endpoints(bytes(body), 0, len(body)):
        walk = FieldWalk(k01_fetch.fields_before_endpoints(16), len(body))
        assert body[walk.feed(bytes(body)) :] == b"\0"
        assert walk.done


@given(at=st.sampled_from(sorted(NAMED_INSIDE)), body=st.binary(max_size=300))
def test_any_body_is_edited_or_malformed(at: tuple[int, int], body: bytes) -> None:
    with suppress(WireError):
        assert len(replace_addresses(body, *at, lambda _: ("h", 1))) <= 4 * len(body) + 16
