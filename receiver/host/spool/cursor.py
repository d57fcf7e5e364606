"""Reads and writes the cursor, the number of the first undelivered push."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final

import google_crc32c

from receiver.host.spool.segment import sync_folder
from spark_streaming.files import FileError, read_bounded

_NAME: Final = "cursor"
_MAGIC: Final = b"KCTCURS\x01"
_FIELDS: Final = struct.Struct("<8sQ")
_CRC: Final = struct.Struct("<I")
# No spool ever reaches this number, and frames could not be numbered much further.
_END: Final = 1 << 63


def load_cursor(folder: Path) -> int:
    """Return the number in a folder's cursor; 0 without a valid cursor."""
    try:
        data = read_bounded(folder / _NAME, _FIELDS.size + _CRC.size)
    except FileError:
        return 0
    fields = data[: _FIELDS.size]
    if data != fields + _CRC.pack(google_crc32c.value(fields)) or not fields.startswith(_MAGIC):
        return 0
    number: int = _FIELDS.unpack(fields)[1]
    return number if number < _END else 0


def save_cursor(folder: Path, number: int) -> None:
    """Write a number into a folder's cursor, atomically and durably.

    Raises:
        OSError: The disk fails; the former cursor is still there.
    """
    fields = _FIELDS.pack(_MAGIC, number)
    new = folder / f"{_NAME}.new"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(fields + _CRC.pack(google_crc32c.value(fields)))
        file.flush()
        os.fsync(descriptor)
    new.replace(folder / _NAME)
    sync_folder(folder)
