"""File modes of the plugin's folder and the host's spool, under any umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.host.spool import Spool
from receiver.store.sqlite import SqliteSubscriptionStore
from tests.unit.plugins.spool_files.support import pushes, started

#: Modes for the user only, and with the group as a reader.
_OWNER = (0o700, 0o600)
_GROUP = (0o750, 0o640)


@pytest.fixture(params=[0o000, 0o022, 0o077])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, int]:
    found = {".": stat.S_IMODE(root.stat().st_mode)}
    for path in sorted(root.rglob("*")):
        found[path.relative_to(root).as_posix()] = stat.S_IMODE(path.stat().st_mode)
    return found


def expected(root: Path, folder: int, file: int) -> dict[str, int]:
    return {name: folder if (root / name).is_dir() else file for name in modes(root)}


@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize(("group_readable", "access"), [(False, _OWNER), (True, _GROUP)])
def test_files_and_manifests(tmp_path: Path, group_readable: bool, access: tuple[int, int]) -> None:
    root = tmp_path / "a" / "telemetry"
    with started(root, group_readable=group_readable) as spool:
        spool.export_batch(pushes(3))
        # Only this user may read unpublished pushes.
        assert modes(root / "_journal") == expected(root / "_journal", *_OWNER)
        assert len(modes(root / "_journal")) == 2
    found, wanted = modes(root), expected(root, *access)
    assert found.pop("_journal") == 0o700
    del wanted["_journal"]
    assert found == wanted
    assert any(name.endswith(".parquet") for name in found)
    assert any(name.endswith(".jsonl") for name in found)
    assert modes(tmp_path / "a")["."] == access[0], "folders above are made likewise"


@pytest.mark.usefixtures("_umask")
def test_the_spool_of_the_host(tmp_path: Path) -> None:
    root = tmp_path / "spool" / "otlp"
    spool = Spool(root, max_bytes=1 << 20, segment_bytes=1 << 18)
    spool.open()
    spool.append(pushes(3))
    spool.close()
    found = modes(tmp_path / "spool")
    assert found == expected(tmp_path / "spool", *_OWNER)
    assert len(found) >= 4


@pytest.mark.usefixtures("_umask")
def test_the_store_of_subscriptions(tmp_path: Path) -> None:
    store = SqliteSubscriptionStore(tmp_path / "subscriptions.db")
    store.close()
    assert modes(tmp_path)["subscriptions.db"] == 0o600
