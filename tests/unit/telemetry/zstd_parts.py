"""A zstd frame of any number of zeros, four bytes for 128 KiB (RFC 8878, section 3.1.1.2)."""

from __future__ import annotations

_BLOCK = 1 << 17


def rle_frame(size: int) -> bytes:
    """Make a frame of ``size`` zeros, a multiple of 128 KiB."""
    block = (_BLOCK << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
    last = (_BLOCK << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\x00"
    # No checksum, no content size; the window is 2 MiB.
    return b"\x28\xb5\x2f\xfd\x00\x58" + block * (size // _BLOCK - 1) + last
