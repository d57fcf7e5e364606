"""Fuzzes the spool_files writer on a damaged folder: it starts, takes a push, stops.

An input is the length of a manifest and that of a published file, and then the manifest, the file,
and the journal of a process that has ended.
"""

from __future__ import annotations

import functools
import json
import struct
import tempfile
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from plugins.spool_files.columns import SCHEMA, record_batch
from plugins.spool_files.config import SpoolFilesConfig
from plugins.spool_files.journal import ENDING, Journal
from plugins.spool_files.layout import JOURNALS, MANIFESTS, Stem, host_name, manifest_name
from plugins.spool_files.writer import FolderWriter
from receiver.plugin import Push
from tests.fuzz.target import Target, require
from tests.unit.host.support import push

_LENGTHS = struct.Struct("<HH")
_FRAME = struct.Struct("<II")
_MEMORY = Path("/dev/shm")  # nothing here is to be kept, and disks are slow
_STEM = Stem(opened="20260131T130512123456Z", host=host_name(), run="3f9c02ab", number=42)
_FILE = f"date=2026-01-31/hour=13/{_STEM}.parquet"
_LAST = push(1 << 20)


def _run(data: bytes) -> None:
    if len(data) < _LENGTHS.size:
        return
    manifest, file, journal = _parts(data)
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as name:
        root = Path(name)
        _write(root / MANIFESTS / manifest_name(datetime.now(UTC).date(), host_name()), manifest)
        _write(root / _FILE, file)
        _write(root / JOURNALS / f"{_STEM_OF_JOURNAL}{ENDING}", journal)
        writer = FolderWriter(SpoolFilesConfig(path=root, retain_hours=None))
        writer.open()
        writer.append([_LAST])
        writer.close()
        news = writer.drain_messages()
        require("cannot" not in news, f"one journal blocks all that come after it: {news}")
        left = [path.name for path in (root / JOURNALS).iterdir()]
        require(all(name.endswith(".unreadable") for name in left), f"there is left what is done: {left}")
        published = [path for path in root.glob("date=*/hour=*/*.parquet") if path != root / _FILE]
        identities = {key for path in published for key in _identities(path)}
        require(_LAST.identity in identities, "the push that came later was not published")


_STEM_OF_JOURNAL = Stem(opened=_STEM.opened, host=_STEM.host, run=_STEM.run, number=43)


def _parts(data: bytes) -> tuple[bytes, bytes, bytes]:
    one, two = _LENGTHS.unpack_from(data)
    rest = data[_LENGTHS.size :]
    return rest[:one], rest[one : one + two], rest[one + two :]


def _joined(manifest: bytes, file: bytes, journal: bytes) -> bytes:
    return _LENGTHS.pack(len(manifest), len(file)) + manifest + file + journal


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(data)


def _identities(path: Path) -> set[tuple[str, int, int]]:
    table = pq.read_table(path, partitioning=None)
    table.validate(full=True)
    require(table.schema.equals(SCHEMA), "a published file has other columns")
    require(table.num_rows > 0, "a file without a push was published")
    columns = (
        table.column(name).to_pylist() for name in ("client_instance_id", "received_at_ns", "sequence")
    )
    return set(zip(*columns, strict=True))


@functools.cache
def _messages() -> tuple[bytes, ...]:
    """Record batches as journals have them, and Arrow's messages that no journal has."""
    batches = [record_batch(_pushes(0, 1)), record_batch(_pushes(0, 3)), record_batch([_LAST])]
    compressed = pa.BufferOutputStream()
    with pa.ipc.new_stream(compressed, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_batch(batches[1])
    schema, compressed_batch = pa.ipc.MessageReader.open_stream(compressed.getvalue())
    return (
        *(batch.serialize().to_pybytes() for batch in batches),
        batches[1].slice(1, 1).serialize().to_pybytes(),
        batches[1].slice(0, 0).serialize().to_pybytes(),
        schema.serialize().to_pybytes(),
        compressed_batch.serialize().to_pybytes(),
        batches[1].select(["client_instance_id", "sequence"]).serialize().to_pybytes(),
    )


def _pushes(start: int, count: int) -> list[Push]:
    return [push(number, size=number) for number in range(start, start + count)]


def _journal(messages: Sequence[bytes]) -> bytes:
    return _HEADER + b"".join(
        _FRAME.pack(len(message), zlib.crc32(message)) + message for message in messages
    )


def _header() -> bytes:
    """Return the beginning of a journal, as the journal itself writes it."""
    with tempfile.TemporaryDirectory() as name:
        journal = Journal.create(Path(name), _STEM)
        header = journal.path.read_bytes()
        journal.delete()
    return header


_HEADER = _header()
_PUBLISHED = {
    "event": "published",
    "at": "2026-01-31T13:05:12+00:00",
    "file": _FILE,
    "rows": 3,
    "bytes": 1,
    "otlp_bytes": 3,
    "min_received_at_ns": 1,
    "max_received_at_ns": 1,
    "host": _STEM.host,
    "run": _STEM.run,
    "sequence": _STEM.number,
}
_LINE = json.dumps(_PUBLISHED).encode() + b"\n"


@functools.cache
def _file(rows: int) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.Table.from_batches([record_batch(_pushes(10, rows))])
    # The columns that a start reads, as one file of all is mostly what it never looks at;
    # compressed, damage to a text would never be seen in the text.
    table = table.select(["client_instance_id", "received_at_ns", "sequence"])
    pq.write_table(table, sink, compression="none")
    return bytes(sink.getvalue())


def _seeds() -> list[bytes]:
    journals = [_journal([]), *(_journal([message]) for message in _messages()), _journal(_messages()[:3])]
    seeds = [_joined(_LINE, _file(2), journal) for journal in journals]
    return [*seeds, _joined(b"", b"", journals[2]), _joined(_LINE * 3, b"PAR1", b"")]


def _reshape(data: bytes, random: Random) -> bytes:
    """Change one of the three, and make a journal's checksums right."""
    manifest, file, journal = _parts(data) if len(data) >= _LENGTHS.size else (b"", b"", b"")
    which = random.random()
    if which < 0.1:
        manifest = _scratched(_LINE, random) * random.randrange(1, 3)
    elif which < 0.2:
        file, manifest = _scratched(_file(random.randrange(1, 4)), random), _LINE
    else:
        messages = []
        for _ in range(random.randrange(1, 4)):
            message = random.choice(_messages())
            messages.append(_scratched(message, random) if random.random() < 0.7 else message)
        journal = _journal(messages) + journal[: random.choice((0, 0, random.randrange(40)))]
    return _joined(manifest, file, journal)


def _scratched(data: bytes, random: Random) -> bytes:
    scratched = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(scratched))
        word = random.choice(_WORDS)
        scratched[at : at + len(word)] = word
    if random.random() < 0.1:
        del scratched[random.randrange(len(scratched)) :]
    return bytes(scratched)


_WORDS = (
    *(bytes([byte]) for byte in (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF)),
    b"\xff" * 4,
    b"\xff" * 8,
    bytes(8),
    b"\x01" + bytes(7),
    bytes(6) + b"\x80\x7f",
    b"\\ud800",
    b'"event": "published", "file": 1, ',
    b"[" * 2000,
    b"null",
)

TARGET = Target(
    name="spool_files",
    run=_run,
    seeds=_seeds,
    tokens=(_HEADER, _LINE, b"PAR1", b"ARROW1", b"\xff\xff\xff\xff", *_WORDS),
    reshape=_reshape,
    max_bytes=16_384,
    max_memory=64 << 20,
    brief=500,
)
