"""Replaces the addresses in a list of brokers, and copies other fields.

Responses name brokers in lists of one form: a node id, a host, a port and further fields. The
modules of the messages (``k03_metadata`` and so on) know where the lists are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from receiver.wire.primitives import Reader
from receiver.wire.writer import Writer

#: The host and port of no broker, as in Kafka's ``Node.noNode``.
_NO_HOST: Final = ""
_NO_PORT: Final = -1

#: The fewest bytes of a node id, a host and a port.
_LEAST_ADDRESS: Final = 9


class BrokerAddress(NamedTuple):
    """A broker as a response names it."""

    node_id: int
    """The broker's id, 0 or more."""
    host: str
    port: int


#: Called with each broker that a response names; returns the host and port to write in its place.
ReplaceAddress: TypeAlias = Callable[[BrokerAddress], tuple[str, int]]


def copy_fields(reader: Reader, writer: Writer, read: Callable[[Reader], object]) -> None:
    """Copy the bytes of the fields that ``read`` reads."""
    start = reader.offset
    read(reader)
    writer.raw(reader.since(start))


def copy_address(reader: Reader, writer: Writer, replace: ReplaceAddress, *, flexible: bool) -> None:
    """Copy a node id, a host and a port, with another host and port.

    A negative node id means that there is no such broker. It gets an empty host and port -1.

    Args:
        reader: At the node id.
        writer: Gets the three fields.
        flexible: Whether the host is a compact string.
    """
    node_id = reader.int32("NodeId")
    host = reader.compact_string("Host") if flexible else reader.string("Host")
    port = reader.int32("Port")
    host, port = replace(BrokerAddress(node_id, host, port)) if node_id >= 0 else (_NO_HOST, _NO_PORT)
    writer.int32(node_id)
    if flexible:
        writer.compact_string(host)
    else:
        writer.string(host)
    writer.int32(port)


def copy_brokers(
    reader: Reader,
    writer: Writer,
    replace: ReplaceAddress,
    *,
    flexible: bool,
    rest: Callable[[Reader], object],
) -> None:
    """Copy an array of brokers, with other hosts and ports.

    Args:
        reader: At the array's length.
        flexible: Whether the array and the hosts have compact lengths.
        rest: Reads the fields after the port of one item; their bytes are copied.
    """
    if flexible:
        count = reader.compact_array_length("Brokers", item_size=_LEAST_ADDRESS)
        writer.compact_array_length(count)
    else:
        count = reader.array_length("Brokers", item_size=_LEAST_ADDRESS)
        writer.array_length(count)
    for _ in range(count):
        copy_address(reader, writer, replace, flexible=flexible)
        copy_fields(reader, writer, rest)
