"""Owns the binary layouts: the decoder's columns of points, and what the store keeps for ``contributions``.

All little-endian. The decoder's are columns, one after another (series_high int64[k], series_low int64[k]
...). The first two are the hash of the series; the database's ids of the series and its fleet series replace
them. What is stored begins with a version, so that another version's bytes are refused instead of misread.
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
    "CUMULATIVE",
    "CUMULATIVE_ROW",
    "DISTRIBUTION",
    "HASHED_CUMULATIVE",
    "HASHED_POINT",
    "LAST",
    "LEGACY",
    "NO_COUNTS",
    "POINT",
    "RATE",
    "CodecError",
    "DecodedContribution",
    "EncodedPoints",
    "Form",
    "PointColumns",
    "decode_contribution",
    "decode_cumulative",
    "decode_points",
    "encode_contribution",
    "encode_cumulative",
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
    [
        ("identity_high", "<i8"),
        ("identity_low", "<i8"),
        ("start_ns", "<i8"),
        ("time_ns", "<i8"),
        ("value", "<f8"),
    ]
)
#: The same in version 1, whose identities have 64 bits.
_CUMULATIVE_ROW_1: Final = np.dtype(
    [("identity_low", "<i8"), ("start_ns", "<i8"), ("time_ns", "<i8"), ("value", "<f8")]
)
#: The int64 columns of points as the decoder packs them, and once their series are known.
HASHED_POINT: Final = ("series_high", "series_low")
POINT: Final = ("series", "fleet")
_CUMULATIVE_COLUMNS: Final = ("identity_high", "identity_low", "legacy_identity", "start_ns", "time_ns")
HASHED_CUMULATIVE: Final = (*HASHED_POINT, *_CUMULATIVE_COLUMNS)
CUMULATIVE: Final = (*POINT, *_CUMULATIVE_COLUMNS)

_VERSION: Final = 1
_CUMULATIVE_VERSION: Final = 2
#: In place of the first half of an identity, which it is by chance once in 2 ** 64.
LEGACY: Final = 0
_HEADER: Final = struct.Struct("<BBH")

Form = Literal["carried", "entry", "combined"]
_FORMS: Final[tuple[Form, ...]] = ("carried", "entry", "combined")

Integers = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


class CodecError(ValueError):
    """Bytes that are not laid out as this version lays them out; says whose and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointColumns:
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


def decode_points(blobs: Sequence[bytes], names: Sequence[str]) -> PointColumns:
    """Reads the decoder's columns of many entries at once.

    Args:
        blobs: The packed points of each entry.
        names: The int64 columns, in their order; they are followed by values (float64) and flags (int8).

    Raises:
        CodecError: A blob's length is no multiple of a point's.
    """
    integers = len(names)
    size = _point_size(names)
    lengths = _lengths(blobs, names)
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
    return PointColumns(
        entry=np.concatenate(entry),
        integers=dict(zip(names, (x.astype(np.int64, copy=False) for x in joined), strict=False)),
        value=joined[-2].astype(np.float64, copy=False),
        flags=joined[-1].astype(np.int8, copy=False),
    )


class EncodedPoints:
    """The packed points of many entries: their series' hashes, and the same bytes with ids in their place.

    Args:
        blobs: The packed points of each entry, as the decoder gives them.
        names: Their int64 columns; the first two are the hash.

    Raises:
        CodecError: A blob's length is no multiple of a point's.
    """

    def __init__(self, blobs: Sequence[bytes], names: Sequence[str]) -> None:
        self._size = len(blobs)
        self._parts: list[tuple[Integers, npt.NDArray[np.uint8], int]] = []
        lengths = _lengths(blobs, names)
        order = np.argsort(lengths, kind="stable")
        for alike in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
            if len(alike) and lengths[alike[0]]:
                joined = bytearray().join([blobs[i] for i in alike.tolist()])
                matrix = np.frombuffer(joined, np.uint8).reshape(len(alike), -1)
                self._parts.append((alike, matrix, matrix.shape[1] // _point_size(names)))

    def hashes(self) -> tuple[Integers, Integers]:
        """Gives the first and second halves of the hashes, in the order that :meth:`with_ids` takes."""
        return self._column(0), self._column(1)

    def with_ids(self, series: Integers, fleet: Integers) -> list[bytes]:
        """Gives the packed points of each entry with these in place of the hash.

        Args:
            series: The series of each point, in the order of :meth:`hashes`.
            fleet: The fleet series of each.
        """
        blobs = [b""] * self._size
        begin = 0
        for alike, matrix, points in self._parts:
            end = begin + len(alike) * points
            for position, ids in enumerate((series, fleet)):
                column = np.ascontiguousarray(ids[begin:end], "<i8").view(np.uint8)
                at = 8 * position * points
                matrix[:, at : at + 8 * points] = column.reshape(len(alike), 8 * points)
            begin = end
            packed, length = matrix.tobytes(), matrix.shape[1]
            for row, entry in enumerate(alike.tolist()):
                blobs[entry] = packed[row * length : (row + 1) * length]
        return blobs

    def _column(self, position: int) -> Integers:
        columns = [
            np.ascontiguousarray(matrix[:, 8 * position * points : 8 * (position + 1) * points])
            .reshape(-1)
            .view("<i8")
            for _, matrix, points in self._parts
        ]
        return np.concatenate([np.empty(0, np.int64), *columns]).astype(np.int64, copy=False)


def _point_size(names: Sequence[str]) -> int:
    return 8 * len(names) + 9


def _lengths(blobs: Sequence[bytes], names: Sequence[str]) -> Integers:
    size = _point_size(names)
    lengths = np.fromiter(map(len, blobs), np.int64, len(blobs))
    if (lengths % size).any():
        at = int(np.flatnonzero(lengths % size)[0])
        msg = (
            f"entry {at}: {lengths[at]} bytes of packed points are no multiple of the {size} bytes of a point"
            f" ({', '.join(names)}, value, flags): take the decoder's jar of this version"
        )
        raise CodecError(msg)
    return lengths


class DecodedContribution(NamedTuple):
    """What is in a contribution's packed bytes: how the body is laid out, the newest push, the body."""

    form: Form
    push_id: str
    body: bytes


def encode_contribution(form: Form, push_id: str, body: bytes) -> bytes:
    """Packs a contribution: ``body`` is rows of ``COUNT_ROW`` (carried), an entry's gauges as the decoder
    packed them, or rows of ``COMBINED_ROW``.
    """  # noqa: D205
    push = push_id.encode()
    return _HEADER.pack(_VERSION, _FORMS.index(form), len(push)) + push + body


#: Nothing to carry.
NO_COUNTS: Final = encode_contribution("carried", "", b"")


def decode_contribution(packed: bytes) -> DecodedContribution:
    """Reads what ``pack`` wrote.

    Raises:
        CodecError: They are of another version, or cut off.
    """
    if len(packed) < _HEADER.size or packed[0] != _VERSION or packed[1] >= len(_FORMS):
        raise _other_version("contribution.packed", packed)
    _, form, length = _HEADER.unpack_from(packed)
    body = _HEADER.size + length
    size = (COUNT_ROW.itemsize, COUNT_ROW.itemsize, COMBINED_ROW.itemsize)[form]
    if len(packed) < body or (len(packed) - body) % size:
        raise _other_version("contribution.packed", packed)
    return DecodedContribution(_FORMS[form], packed[_HEADER.size : body].decode(), packed[body:])


def encode_cumulative(rows: bytes) -> bytes:
    """Packs rows of ``CUMULATIVE_ROW``."""
    return bytes((_CUMULATIVE_VERSION,)) + rows


def decode_cumulative(packed: bytes) -> bytes:
    """Gives the rows of ``CUMULATIVE_ROW`` that ``encode_cumulative`` packed; no bytes are no rows.

    Rows of version 1 have ``LEGACY`` as ``identity_high``, and the identity of 64 bits as ``identity_low``.

    Raises:
        CodecError: They are of another version, or cut off.
    """
    if not packed:
        return b""
    row = {1: _CUMULATIVE_ROW_1, _CUMULATIVE_VERSION: CUMULATIVE_ROW}.get(packed[0])
    if row is None or (len(packed) - 1) % row.itemsize:
        raise _other_version("client.cumulative", packed, _CUMULATIVE_VERSION)
    if row is CUMULATIVE_ROW:
        return packed[1:]
    old = np.frombuffer(packed, row, offset=1)
    rows = np.empty(len(old), CUMULATIVE_ROW)
    rows["identity_high"] = LEGACY
    for name in _CUMULATIVE_ROW_1.names or ():
        rows[name] = old[name]
    return rows.tobytes()


def _other_version(field: str, packed: bytes, version: int = _VERSION) -> CodecError:
    begin = packed[:4].hex() or "nothing"
    return CodecError(
        f"{field}: {len(packed)} bytes that begin with {begin} are not of version {version}: run the version"
        " of the roll-up that wrote them, or `kafka-telemetry rollup rebuild`"
    )
