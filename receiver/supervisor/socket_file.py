"""Binds a Unix socket to a file, in place of a leftover of an ended receiver."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path


def bind_file(path: Path) -> socket.socket:
    """Return a stream socket that is bound to ``path``.

    Its mode is 0666: as at an address of loopback, a token says who may send. It replaces a
    leftover in one step.

    Raises:
        OSError: Another file is there, or something listens there, or the folder can't be used.
    """
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound.setblocking(False)  # noqa: FBT003 - the socket's own signature
    # The process id keeps two receivers that start at once apart.
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        _check_replaceable(path)
        unfinished.unlink(missing_ok=True)
        bound.bind(str(unfinished))
        unfinished.chmod(0o666)
        unfinished.replace(path)
    except OSError:
        bound.close()
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    return bound


def holds_socket(path: Path) -> bool:
    """Return whether a socket is there; False: nothing is.

    Raises:
        OSError: Another file is there, or the folder can't be used.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "another file is there")
    return True


def _check_replaceable(path: Path) -> None:
    if not holds_socket(path):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connecting:
        connecting.setblocking(False)  # noqa: FBT003 - the socket's own signature
        try:
            connecting.connect(str(path))
        except ConnectionRefusedError:
            return
        except BlockingIOError:  # it listens and has too much to do
            pass
    raise OSError(errno.EADDRINUSE, "another receiver listens there")
