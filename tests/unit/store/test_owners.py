"""A folder of owners: all mistakes with their places, and the last good state stays in force."""

import asyncio
import threading
from pathlib import Path

import pytest

from receiver.store import owner_file
from receiver.store.declared_owners import DeclaredOwners
from receiver.store.folder import FolderError
from receiver.store.owner_file import OwnerFile, OwnerStoreError
from receiver.store.owners import OwnersFolder, read_owners
from receiver.store.store import ReadOnlyError
from receiver.telemetry.owners import Owner, Owners
from tests.testbed.files import replace
from tests.unit.api.conftest import connection

PAYMENTS = """
match: {client_id: "pay-.*"}
contact: "#payments"
expected: {principals: ["User:pay"]}
"""


def test_a_file_is_an_owner_or_a_list(tmp_path: Path) -> None:
    (tmp_path / "payments.yaml").write_text(PAYMENTS)
    (tmp_path / "b.yml").write_text("[{team: x, match: {}}, {team: a, match: {listener: L}}]")
    (tmp_path / ".hidden.yaml").write_text("[")
    owners = read_owners(tmp_path)
    assert [owner.team for owner in owners.owners] == ["x", "a", "payments"]
    assert owners.owners[2].principals == ("User:pay",)


def test_every_mistake_has_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("team: pay\nmatch: {clientid: x}\n")
    (tmp_path / "b.yaml").write_text("- {team: pay, match: {}}\n- {team: pay, match: {}}\n")
    (tmp_path / "c.yaml").write_text("[")
    with pytest.raises(FolderError) as caught:
        read_owners(tmp_path)
    first, second, third = caught.value.mistakes
    assert first.startswith("a.yaml:2:9: match.clientid: 'x' has an unknown selector")
    assert second == "b.yaml:2:4: team: 'pay' is an owner at b.yaml:1:4 too; give another name"
    assert third.startswith("c.yaml:")
    with pytest.raises(FolderError, match=r"set owners\.path to a folder"):
        read_owners(tmp_path / "none")


def test_a_folder_is_followed(tmp_path: Path) -> None:
    file = tmp_path / "payments.yaml"
    file.write_text(PAYMENTS)
    folder = OwnersFolder(tmp_path)
    client = connection(1, client_id="new-1")
    changed = threading.Event()
    try:
        folder.follow(changed.set, every_s=0.01)
        assert folder.content.team_of(client) is None
        replace(file, 'match: {client_id: "new-.*"}')
        assert changed.wait(120)
        assert folder.content.team_of(client) == "payments"
        replace(file, "match: 5")
        while folder.status.problem is None:
            threading.Event().wait(0.01)
        assert folder.status.problem == f"{tmp_path}: 1 mistake in its files; the log has them"
        assert folder.content.team_of(client) == "payments"
    finally:
        folder.close()


def test_a_folder_with_mistakes_has_no_owners_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("5")
    assert not OwnersFolder(tmp_path).content.owners
    with pytest.raises(FolderError):
        OwnersFolder(tmp_path, strict=True)


def test_an_owner_of_the_folder_wins(tmp_path: Path) -> None:
    folder, file = tmp_path / "owners.d", tmp_path / "owners.json"
    folder.mkdir()
    (folder / "a.yaml").write_text("{team: files, match: {}}")
    put = Owner(team="files", match={"client_id": "x"}, changed_by="ed")
    OwnerFile(file).write([put, Owner(team="also", match={})])
    assert file.stat().st_mode & 0o777 == 0o600
    changes: list[tuple[Owners, Owners]] = []

    async def scenario() -> None:
        owners = DeclaredOwners(lambda before, after: changes.append((before, after)))
        of_files = OwnersFolder(folder)
        try:
            owners.use(of_files, OwnerFile(file))
            assert [(owner.team, owners.is_of_folder(owner)) for owner in owners.in_force.owners] == [
                ("files", True),
                ("also", False),
            ]
            (problem,) = owners.problems
            assert problem.startswith("owners: 1 of those that were put over REST are not in force")
            with pytest.raises(ReadOnlyError, match="comes from files"):
                await owners.edit("files", lambda existing: put)
            await owners.edit("also", lambda existing: None)
            assert OwnerFile(file).read() == (put,)
            owners.use(None, OwnerFile(file))  # a reload without the folder
            assert owners.in_force.owners == (put,)
            assert owners.in_force.owners[0].changed_by == "ed"
            assert owners.problems == []
        finally:
            of_files.close()

    asyncio.run(scenario())
    assert changes[-1][1].owners == (put,)


def test_a_file_that_could_not_be_read_again_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_file, "_MAX_BYTES", 300)
    file, owner = OwnerFile(tmp_path / "owners.json"), Owner(team="payments", match={})
    file.write([owner])
    with pytest.raises(OwnerStoreError, match="would have more than 300 bytes: shorten"):
        file.write([Owner(team="payments", match={"client_id": "a" * 300})])
    assert file.read() == (owner,)
