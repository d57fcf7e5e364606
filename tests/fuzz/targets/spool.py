"""Fuzzes a damaged spool folder: the cursor and a segment file."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from random import Random

import google_crc32c
import zstandard

from receiver.host.push_format import encode_push
from receiver.host.spool import Spool
from receiver.host.spool.frame import FILE_HEADER, HEADER_BYTES, MAX_PUSH_BYTES, encode_frames
from receiver.plugin import ClientTelemetryContext, ClientTelemetryPayload, Push
from tests.fuzz.target import MIB, Target, require

_CURSOR_BYTES = 20
_FIELDS = struct.Struct("<IIIIQqI")
_MEMORY = Path("/dev/shm")  # nothing here is to be kept, and disks are slow


def _push(number: int) -> Push:
    return Push(
        context=ClientTelemetryContext(
            connection_id="1",
            listener="CLIENT",
            security_protocol="SSL",
            source_address="127.0.0.1",
            source_port=40_000 + number,
            principal="User:CN=a",
            client_id="producer-1",
            client_software_name="apache-kafka-java",
            client_software_version="4.4.0",
            broker_id=1,
            cluster_id=None,
            subscription_id=7,
            push_interval_ms=1000,
            received_at_ns=1_700_000_000_000_000_000 + number,
        ),
        payload=ClientTelemetryPayload(
            client_instance_id="AAAAAAAAAAAAAAAAAAAAAQ",
            terminating=False,
            data=bytes(range(number)),
            sequence=number,
            push_id=f"{number:032x}",
        ),
    )


_LAST = _push(200)


def _run(data: bytes) -> None:
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as name:
        folder = Path(name)
        (folder / "cursor").write_bytes(data[:_CURSOR_BYTES])
        (folder / f"{0:020}.log").write_bytes(data[_CURSOR_BYTES:])
        spool = Spool(folder, max_bytes=MIB, segment_bytes=MIB)
        recovery = spool.open()
        require(recovery.pushes <= len(data) * 1000, f"{recovery.pushes} pushes are said to be there")
        spool.append([_LAST])
        spooled = spool.read(1 << 30, 1 << 40)
        positions = [each.position for each in spooled]
        require(positions == sorted(set(positions)), "pushes are out of order, or come twice")
        require(spooled[-1].push == _LAST, "what was appended later didn't come last")
        spool.rewind()
        require(
            [each.position for each in spool.read(1 << 30, 1 << 40)] == positions, "a rewind changed them"
        )
        spool.commit(positions[-1])
        spool.close()
        require(spool.statistics.pushes == 0, "something is left though all is committed")


def _frame(body: bytes, raw_bytes: int, codec: int, pushes: int, first: int) -> bytes:
    fields = _FIELDS.pack(len(body), raw_bytes, codec, pushes, first, 1, google_crc32c.value(body))
    return fields + struct.pack("<I", google_crc32c.value(fields)) + body


def _cursor(number: int) -> bytes:
    fields = struct.pack("<8sQ", b"KCTCURS\x01", number)
    return fields + struct.pack("<I", google_crc32c.value(fields))


def _seeds() -> list[bytes]:
    pushes = [_push(number) for number in range(6)]
    compressor = zstandard.ZstdCompressor(level=1)
    frames = [
        frame.data
        for raw_bytes in (1, 600, MIB)
        for frame in encode_frames(pushes, first=0, raw_bytes=raw_bytes, compressor=compressor)
    ]
    seeds = [_cursor(number) + FILE_HEADER + b"".join(frames[:6]) for number in (0, 3, 1 << 63)]
    return [*seeds, *(bytes(_CURSOR_BYTES) + FILE_HEADER + frame for frame in (frames[0], frames[-1]))]


def _reshape(data: bytes, random: Random) -> bytes:
    """Write frames whose checksums are right, of records that are nearly so."""
    frames: list[bytes] = []
    first = 0
    for _ in range(random.randrange(1, 4)):
        records: list[bytes] = []
        for number in range(random.randrange(1, 4)):
            record = bytearray(encode_push(_push(number)))
            for _ in range(random.choice((0, 0, 1, 3))):
                record[random.randrange(len(record))] = random.getrandbits(8)
            length = len(record) if random.random() < 0.95 else random.getrandbits(32)
            records.append(struct.pack("<I", length) + record)
        raw = b"".join(records)
        pushes = len(records) if random.random() < 0.9 else random.getrandbits(random.choice((3, 32)))
        codec = random.choice((0, 1, 1, 1, 2))
        body = zstandard.ZstdCompressor(level=1).compress(raw) if codec else raw
        size = len(raw) if random.random() < 0.9 else random.choice((0, 1, MAX_PUSH_BYTES, (1 << 32) - 1))
        if random.random() < 0.2:
            at = random.randrange(len(body))
            body = body[:at] + random.randbytes(1) + body[at + 1 :]
        frames.append(_frame(body, size, codec, pushes, first if random.random() < 0.95 else first + 1))
        first += pushes
    cursor = _cursor(random.choice((0, 1, first, random.getrandbits(64))))
    return cursor + FILE_HEADER + b"".join(frames) + data[: random.randrange(HEADER_BYTES)]


TARGET = Target(
    name="spool",
    run=_run,
    seeds=_seeds,
    tokens=(FILE_HEADER, b"[[", b"],[", b"null", b"true", b"\xff" * 4, bytes(4), b"\x01\0\0\0"),
    reshape=_reshape,
    max_bytes=8192,
    # The longest push there may be, inflated and copied.
    max_memory=4 * MAX_PUSH_BYTES,
    brief=2_000,
)
