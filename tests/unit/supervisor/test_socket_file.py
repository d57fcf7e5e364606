"""Unix sockets in files: a leftover is replaced, and nothing else is."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from receiver.settings.model import ReceiverSettings
from receiver.supervisor.socket_file import bind_file
from receiver.supervisor.sockets import ListeningSockets, SocketError
from tests.testbed.ports import LOOPBACK


def settings(path: Path) -> ReceiverSettings:
    bridge = {"bind": f"unix:{path}", "token": {"file": "token"}}
    return ReceiverSettings.model_validate({"rest": {"bind": f"{LOOPBACK}:0"}, "bridge": bridge})


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def test_a_leftover_is_replaced_and_a_listening_socket_is_not(tmp_path: Path) -> None:
    path = tmp_path / "bridge.sock"
    for _ in range(2):  # the second finds the file of the first
        with bind_file(path) as bound:
            bound.listen()
            assert stat.S_IMODE(path.stat().st_mode) == 0o666
            assert connects(path)
            with pytest.raises(OSError, match="another receiver listens there"):
                bind_file(path)
    assert not connects(path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_another_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("mine")
    with pytest.raises(SocketError, match=rf"bridge\.bind: unix:{path}: .*another file is there"):
        ListeningSockets(settings(path))
    assert path.read_text() == "mine"
    with pytest.raises(SocketError, match="No such file or directory"):
        ListeningSockets(settings(tmp_path / "nowhere" / "bridge.sock"))


def test_a_reload_keeps_the_socket_and_moves_to_another_file(tmp_path: Path) -> None:
    first, second = tmp_path / "first.sock", tmp_path / "second.sock"
    before = ListeningSockets(settings(first))
    kept = ListeningSockets(settings(first), before.by_name)
    assert kept.bridge is before.bridge
    moved = ListeningSockets(settings(second), before.by_name)
    assert moved.bridge is not None
    assert connects(first)
    moved.close_others()
    assert (connects(first), connects(second)) == (False, True)
    moved.close()
