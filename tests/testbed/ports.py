"""Owns the choice of ports on 127.0.0.1."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

LOOPBACK = "127.0.0.1"

_LOWEST = 10240
_ATTEMPTS = 1000
_given: set[int] = set()


def _highest() -> int:
    """Return the highest port below the kernel's range for outgoing connections.

    On a port of that range a server would race with outgoing connections.
    """
    range_file = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(range_file.read_text().split()[0]) if range_file.exists() else 32768
    return first - 1 if first > _LOWEST + _ATTEMPTS else 65535


@cache
def _reservations() -> int:
    """The file in which a process locks the byte of each port that it was given, until its end."""
    file = Path(tempfile.gettempdir()) / f"kafka-client-telemetry-ports-{os.getuid()}"
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _reserve(port: int) -> bool:
    """Keep other processes from being given a port before anybody listens on it."""
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on; never the same twice in all running processes.

    Raises:
        OSError: No free port was found.
    """
    highest = _highest()
    chooser = random.SystemRandom()
    for _ in range(_ATTEMPTS):
        port = chooser.randint(_LOWEST, highest)
        if port in _given or not _reserve(port):
            continue
        with closing(socket.socket()) as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise OSError(f"no free port on {LOOPBACK} between {_LOWEST} and {highest} in {_ATTEMPTS} tries")


def is_open(port: int) -> bool:
    """Whether something accepts connections on this port of 127.0.0.1."""
    with closing(socket.socket()) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def listening_on(host: str, port: int = 0) -> socket.socket:
    """A non-blocking socket that listens there, as the supervisor makes them."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setblocking(False)
    listening.bind((host, port))
    listening.listen(128)
    return listening
