"""Owns the binary layouts: the decoder's columns of points, and what the store keeps for ``contributions``.

All little-endian. The decoder's are columns, one after another (series int64[k], fleet int64[k] ...); what is
stored begins with a version, so that another version's bytes are refused instead of misread.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "BREAKDOWN",
    "COMBINED_ROW",
    "COUNT_ROW",
    "CUMULATIVE_ROW",
    "DISTRIBUTION",
    "LAST",
    "NO_COUNTS",
    "RATE",
    "Columns",
    "Contents",
    "Form",
    "PackedError",
    "columns_of",
    "contents_of",
    "cumulative_of",
    "pack",
    "pack_cumulative",
]

RATE: Final = 1
LAST: Final = 2
DISTRIBUTION: Final = 5
#: A flag beside the rule.
BREAKDOWN: Final = 16

#: A value of rule ``last``, as it is carried.
COUNT_ROW: Final = np.dtype([("series", "<i8"), ("fleet", "<i8"), ("value", "<f8"), ("flags", "i1")])
#: Several entries combined: ``value`` is a sum (rule last: the last value), ``weight`` of how many entries
#: (rule rate) or points (rule distribution).
COMBINED_ROW: Final = np.dtype([*COUNT_ROW.descr, ("weight", "<i4")])
#: The last value of a cumulative sum.
CUMULATIVE_ROW: Final = np.dtype(
    [("identity", "<i8"), ("start_ns", "<i8"), ("time_ns", "<i8"), ("value", "<f8")]
)

_VERSION: Final = 1
_HEADER: Final = struct.Struct("<BBH")

Form = Literal["carried", "entry", "combined"]
_FORMS: Final[tuple[Form, ...]] = ("carried", "entry", "combined")

Integers = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


class PackedError(ValueError):
    """Bytes that are not laid out as this version lays them out; says whose and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Points of many entries; those of one entry in their order.

    Attributes:
        entry: The position of each point's entry.
        integers: The int64 columns by name.
        value: The values.
        flags: The rule, and ``BREAKDOWN``.
    """

    entry: Integers
    integers: dict[str, Integers]
    value: Values
    flags: npt.NDArray[np.int8]


def columns_of(blobs: Sequence[bytes], names: Sequence[str]) -> Columns:
    """Reads the decoder's columns of many entries at once.

    Args:
        blobs: The packed points of each entry.
        names: The int64 columns, in their order; they are followed by values (float64) and flags (int8).

    Raises:
        PackedError: A blob's length is no multiple of a point's.
    """
    integers = len(names)
    size = 8 * integers + 9
    lengths = np.fromiter(map(len, blobs), np.int64, len(blobs))
    if (lengths % size).any():
        at = int(np.flatnonzero(lengths % size)[0])
        msg = (
            f"entry {at}: {lengths[at]} bytes of packed points are no multiple of the {size} bytes of a point"
            f" ({', '.join(names)}, value, flags): take the decoder's jar of this version"
        )
        raise PackedError(msg)
    kinds = ["<i8"] * integers + ["<f8", "i1"]
    columns: list[list[npt.NDArray[np.generic]]] = [[] for _ in kinds]
    entry: list[Integers] = [np.empty(0, np.int64)]
    order = np.argsort(lengths, kind="stable")
    # Entries of one length are a matrix, from which a column is one copy: most clients of a kind are alike.
    for alike in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        points = int(lengths[alike[0]]) // size if len(alike) else 0
        matrix = np.frombuffer(b"".join([blobs[i] for i in alike.tolist()]), np.uint8)
        matrix = matrix.reshape(len(alike), size * points)
        entry.append(np.repeat(alike, points))
        for position, (column, kind) in enumerate(zip(columns, kinds, strict=True)):
            begin = 8 * position * points
            end = begin + np.dtype(kind).itemsize * points
            column.append(np.ascontiguousarray(matrix[:, begin:end]).reshape(-1).view(kind))
    joined = [np.concatenate(column) for column in columns]
    return Columns(
        entry=np.concatenate(entry),
        integers=dict(zip(names, (x.astype(np.int64, copy=False) for x in joined), strict=False)),
        value=joined[-2].astype(np.float64, copy=False),
        flags=joined[-1].astype(np.int8, copy=False),
    )


class Contents(NamedTuple):
    """What is in a contribution's packed bytes: how the body is laid out, the newest push, the body."""

    form: Form
    push_id: str
    body: bytes


def pack(form: Form, push_id: str, body: bytes) -> bytes:
    """Packs a contribution: ``body`` is rows of ``COUNT_ROW`` (carried), an entry's gauges as the decoder
    packed them, or rows of ``COMBINED_ROW``.
    """  # noqa: D205
    push = push_id.encode()
    return _HEADER.pack(_VERSION, _FORMS.index(form), len(push)) + push + body


#: Nothing to carry.
NO_COUNTS: Final = pack("carried", "", b"")


def contents_of(packed: bytes) -> Contents:
    """Reads what ``pack`` wrote.

    Raises:
        PackedError: They are of another version, or cut off.
    """
    if len(packed) < _HEADER.size or packed[0] != _VERSION or packed[1] >= len(_FORMS):
        raise _other_version("contribution.packed", packed)
    _, form, length = _HEADER.unpack_from(packed)
    body = _HEADER.size + length
    size = (COUNT_ROW.itemsize, COUNT_ROW.itemsize, COMBINED_ROW.itemsize)[form]
    if len(packed) < body or (len(packed) - body) % size:
        raise _other_version("contribution.packed", packed)
    return Contents(_FORMS[form], packed[_HEADER.size : body].decode(), packed[body:])


def pack_cumulative(rows: bytes) -> bytes:
    """Packs rows of ``CUMULATIVE_ROW``."""
    return bytes((_VERSION,)) + rows


def cumulative_of(packed: bytes) -> bytes:
    """Gives the rows of ``CUMULATIVE_ROW`` that ``pack_cumulative`` packed; no bytes are no rows.

    Raises:
        PackedError: They are of another version, or cut off.
    """
    if packed and (packed[0] != _VERSION or (len(packed) - 1) % CUMULATIVE_ROW.itemsize):
        raise _other_version("client.cumulative", packed)
    return packed[1:]


def _other_version(field: str, packed: bytes) -> PackedError:
    begin = packed[:4].hex() or "nothing"
    return PackedError(
        f"{field}: {len(packed)} bytes that begin with {begin} are not of version {_VERSION}: run the version"
        " of the roll-up that wrote them, or `kafka-telemetry rollup rebuild`"
    )
