"""Encodes and decodes points, contributions and cumulative sums.

All layouts are little-endian. The decoder writes the points of an entry as columns, one after the
other: series_high int64[k], series_low int64[k], and so on. Those two are the series hash, and are
replaced by the ids of the series and its fleet series. Stored bytes begin with a version, so that
bytes of another version are rejected.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

RATE: Final = 1
LAST: Final = 2
DISTRIBUTION: Final = 5
#: Flag in ``flags``, beside the rule.
BREAKDOWN: Final = 16
#: Bits of ``flags`` for the part of a cumulative histogram; 0: a sum of its own.
HISTOGRAM_PART: Final = 96
HISTOGRAM_COUNT: Final = 32
HISTOGRAM_SUM: Final = 64
HISTOGRAM_BUCKET: Final = 96

#: A value of rule ``last``, which is carried forward.
COUNT_ROW: Final = np.dtype([("series", "<i8"), ("fleet", "<i8"), ("value", "<f8"), ("flags", "i1")])
#: Combined entries: ``value`` is the sum (rule last: the last value), ``weight`` the number of
#: entries (rule rate) or points (rule distribution).
COMBINED_ROW: Final = np.dtype([*COUNT_ROW.descr, ("weight", "<i4")])
#: The newest value of a cumulative sum, or of a part of a cumulative histogram.
CUMULATIVE_ROW: Final = np.dtype(
    [
        ("identity_high", "<i8"),
        ("identity_low", "<i8"),
        ("start_ns", "<i8"),
        ("time_ns", "<i8"),
        ("value", "<f8"),
    ]
)
#: The int64 columns of points, with series hashes and with ids.
HASHED_POINT: Final = ("series_high", "series_low")
POINT: Final = ("series", "fleet")
_CUMULATIVE_COLUMNS: Final = ("identity_high", "identity_low", "start_ns", "time_ns")
HASHED_CUMULATIVE: Final = (*HASHED_POINT, *_CUMULATIVE_COLUMNS)
CUMULATIVE: Final = (*POINT, *_CUMULATIVE_COLUMNS)
#: The bounds of a histogram's bucket: doubles, as their bits.
_BOUNDS: Final = ("lower", "upper")
HASHED_CUMULATIVE_HISTOGRAM: Final = (*HASHED_CUMULATIVE, *_BOUNDS)
CUMULATIVE_HISTOGRAM: Final = (*CUMULATIVE, *_BOUNDS)

_VERSION: Final = 1
_HEADER: Final = struct.Struct("<BBH")

Form = Literal["carried", "entry", "combined"]
_FORMS: Final[tuple[Form, ...]] = ("carried", "entry", "combined")

Integers = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


class CodecError(ValueError):
    """Bytes of another version. The message says which and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointColumns:
    """Points of many entries. The points of one entry keep their order."""

    entry: Integers
    """Index of each point's entry."""
    integers: dict[str, Integers]
    """The int64 columns by name."""
    value: Values
    flags: npt.NDArray[np.int8]
    """Rule and ``BREAKDOWN``."""


def decode_points(blobs: Sequence[bytes], names: Sequence[str]) -> PointColumns:
    """Decode the points of many entries at once.

    Args:
        names: The int64 columns in order. Values (float64) and flags (int8) follow them.

    Raises:
        CodecError: A blob's length is not a multiple of a point's.
    """
    kinds = ["<i8"] * len(names) + ["<f8", "i1"]
    columns: list[list[npt.NDArray[np.generic]]] = [[np.empty(0, kind)] for kind in kinds]
    entry: list[Integers] = [np.empty(0, np.int64)]
    for entries, matrix, points in _matrices(blobs, names):
        entry.append(np.repeat(entries, points))
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


def with_point(blob: bytes, integers: Sequence[int], value: float, flags: int) -> bytes:
    """Return an entry's encoded points and one more.

    Args:
        integers: The new point's int64 columns.
    """
    columns = len(integers) + 1
    points = len(blob) // (8 * columns + 1)
    words = np.empty((columns, points + 1), np.int64)
    words[:, :points] = np.frombuffer(blob, np.int64, count=columns * points).reshape(columns, points)
    words[:, points] = [*integers, int(np.float64(value).view(np.int64))]
    return words.tobytes() + blob[8 * columns * points :] + flags.to_bytes()


class EncodedPoints:
    """Encoded points of many entries, whose series hashes can be replaced by ids.

    Args:
        blobs: Encoded points of each entry, as the decoder writes them.
        names: Their int64 columns. The first two are the series hash.

    Raises:
        CodecError: A blob's length is not a multiple of a point's.
    """

    def __init__(self, blobs: Sequence[bytes], names: Sequence[str]) -> None:
        self._size = len(blobs)
        self._columns = len(names)
        self._parts = list(_matrices(blobs, names))

    def hashes(self) -> tuple[Integers, Integers]:
        """Return the halves of the hashes, in the order that :meth:`with_ids` expects."""
        return self._column(0), self._column(1)

    def entries(self) -> Integers:
        """Return the index of each point's entry, in the order of :meth:`hashes`."""
        parts = [np.repeat(entries, points) for entries, _, points in self._parts]
        return np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int64, copy=False)

    def flags(self) -> npt.NDArray[np.int8]:
        """Return rule, ``BREAKDOWN`` and part of each point, as :meth:`hashes` does."""
        begin = 8 * (self._columns + 1)
        parts = [
            np.ascontiguousarray(matrix[:, begin * points :]).reshape(-1).view(np.int8)
            for _, matrix, points in self._parts
        ]
        return np.concatenate([np.empty(0, np.int8), *parts])

    def with_ids(
        self, series: Integers, fleet: Integers, kept: npt.NDArray[np.bool_] | None = None
    ) -> list[bytes]:
        """Return the encoded points of each entry with ids in place of hashes.

        Args:
            series: Series id of each point, in the order of :meth:`hashes`.
            kept: Which points are kept; None for all.
        """
        blobs = [b""] * self._size
        begin = 0
        for entries, matrix, points in self._parts:
            end = begin + len(entries) * points
            for position, ids in enumerate((series, fleet)):
                column = np.ascontiguousarray(ids[begin:end], "<i8").view(np.uint8)
                at = 8 * position * points
                matrix[:, at : at + 8 * points] = column.reshape(len(entries), 8 * points)
            begin = end
            joined, length = matrix.tobytes(), matrix.shape[1]
            for row, entry in enumerate(entries.tolist()):
                blobs[entry] = joined[row * length : (row + 1) * length]
            if kept is not None:
                of_entries = kept[end - len(entries) * points : end].reshape(len(entries), points)
                for row in np.flatnonzero(~of_entries.all(axis=1)).tolist():
                    entry = int(entries[row])
                    blobs[entry] = self._selected(blobs[entry], of_entries[row])
        return blobs

    def _selected(self, blob: bytes, kept: npt.NDArray[np.bool_]) -> bytes:
        """Return some points of an entry."""
        words = 8 * (self._columns + 1) * len(kept)
        columns = np.frombuffer(blob, np.int64, count=words // 8).reshape(-1, len(kept))
        flags = np.frombuffer(blob, np.int8, offset=words)
        return columns[:, kept].tobytes() + flags[kept].tobytes()

    def _column(self, position: int) -> Integers:
        columns = [
            np.ascontiguousarray(matrix[:, 8 * position * points : 8 * (position + 1) * points])
            .reshape(-1)
            .view("<i8")
            for _, matrix, points in self._parts
        ]
        return np.concatenate([np.empty(0, np.int64), *columns]).astype(np.int64, copy=False)


def _matrices(
    blobs: Sequence[bytes], names: Sequence[str]
) -> Iterator[tuple[Integers, npt.NDArray[np.uint8], int]]:
    """Yield entries of equal length as (entries, matrix of bytes, points of each).

    A column of a matrix is one copy. Most clients of a kind send entries of equal length.
    """
    size = 8 * len(names) + 9
    lengths = np.fromiter(map(len, blobs), np.int64, len(blobs))
    if (lengths % size).any():
        at = int(np.flatnonzero(lengths % size)[0])
        raise CodecError(
            f"entry {at}: {lengths[at]} bytes of points are not a multiple of the {size} bytes of a point"
            f" ({', '.join(names)}, value, flags): use the decoder jar of this version"
        )
    order = np.argsort(lengths, kind="stable")
    for entries in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        if len(entries) and lengths[entries[0]]:
            joined = bytearray().join([blobs[i] for i in entries.tolist()])
            matrix = np.frombuffer(joined, np.uint8).reshape(len(entries), -1)
            yield entries, matrix, matrix.shape[1] // size


class DecodedContribution(NamedTuple):
    """Decoded contribution: layout of the body, id of the newest push, body."""

    form: Form
    push_id: str
    body: bytes


def encode_contribution(form: Form, push_id: str, body: bytes) -> bytes:
    """Encode a contribution.

    Args:
        push_id: Id of the newest push.
        body: Rows of ``COUNT_ROW`` (carried), the decoder's gauges (entry), or rows of
            ``COMBINED_ROW``.
    """
    push = push_id.encode()
    return _HEADER.pack(_VERSION, _FORMS.index(form), len(push)) + push + body


#: No counts to carry forward.
NO_COUNTS: Final = encode_contribution("carried", "", b"")


def decode_contribution(packed: bytes) -> DecodedContribution:
    """Decode a contribution.

    Raises:
        CodecError: The bytes are truncated or of another version.
    """
    if packed.startswith(NO_COUNTS) and len(packed) % COUNT_ROW.itemsize == len(NO_COUNTS):
        return DecodedContribution("carried", "", packed[len(NO_COUNTS) :])
    if len(packed) < _HEADER.size or packed[0] != _VERSION or packed[1] >= len(_FORMS):
        raise _other_version("contribution.packed", packed)
    _, form, length = _HEADER.unpack_from(packed)
    body = _HEADER.size + length
    size = (COUNT_ROW.itemsize, COUNT_ROW.itemsize, COMBINED_ROW.itemsize)[form]
    if len(packed) < body or (len(packed) - body) % size:
        raise _other_version("contribution.packed", packed)
    return DecodedContribution(_FORMS[form], packed[_HEADER.size : body].decode(), packed[body:])


def encode_cumulative(rows: bytes) -> bytes:
    """Encode rows of ``CUMULATIVE_ROW``."""
    return bytes((_VERSION,)) + rows


def decode_cumulative(packed: bytes) -> bytes:
    """Decode rows of ``CUMULATIVE_ROW``. Empty bytes have no rows.

    Raises:
        CodecError: The bytes are truncated or of another version.
    """
    if not packed:
        return b""
    if packed[0] != _VERSION or (len(packed) - 1) % CUMULATIVE_ROW.itemsize:
        raise _other_version("client.cumulative", packed)
    return packed[1:]


def _other_version(field: str, packed: bytes) -> CodecError:
    begin = packed[:4].hex() or "nothing"
    return CodecError(
        f"{field}: {len(packed)} bytes that begin with {begin} are not of version {_VERSION}: run the version"
        " of the roll-up that wrote them, or `kafka-telemetry rollup rebuild`"
    )
