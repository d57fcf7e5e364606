"""The local copy: whole, private, and never over a file of something else."""

import json
from pathlib import Path

import pytest

from receiver.store.local_copy import LocalCopy
from receiver.store.store import StoreError
from receiver.telemetry.subscription import Subscription

A = Subscription(name="a", metrics=("x.",), match={"client_id": "é"})
B = Subscription(name="b", metrics=())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    copy = LocalCopy(tmp_path / "copy.json")
    assert copy.read() is None
    copy.write(())
    assert copy.read() == ()
    copy.write((A, B))
    assert LocalCopy(tmp_path / "copy.json").read() == (A, B)
    copy.write((B,))
    assert copy.read() == (B,)
    assert [file.name for file in tmp_path.iterdir()] == ["copy.json"]
    assert (tmp_path / "copy.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content", [b"", b"SQLite format 3\0", b"[]", b'{"content": "other"}', b"[" * 100_000]
)
def test_the_file_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "copy.json"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"is not a copy of subscriptions: set another subscriptions\.path"):
        LocalCopy(path).read()
    assert path.read_bytes() == content


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "copy.json"
    LocalCopy(path).write((A,))
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    with pytest.raises(StoreError, match="was written by a newer version"):
        LocalCopy(path).read()


def test_an_entry_that_cannot_be_used_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "copy.json"
    LocalCopy(path).write((A, B))
    document = json.loads(path.read_text())
    document["subscriptions"][0]["of_a_newer_version"] = 1
    path.write_text(json.dumps(document))
    assert LocalCopy(path).read() == (B,)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    copy = LocalCopy(tmp_path / "absent" / "copy.json")
    with pytest.raises(StoreError, match=r"absent/copy\.json: cannot be written: No such file or directory"):
        copy.write((A,))
    with pytest.raises(StoreError, match="cannot be read: Is a directory"):
        LocalCopy(tmp_path).read()
