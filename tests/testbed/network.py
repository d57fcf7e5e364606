"""Makes hosts from network namespaces and links, and leaves nothing behind.

A namespace lives as long as the process that holds it, and a link as long as its namespaces, so
they end with the testbed however it ends.
"""

from __future__ import annotations

import ctypes
import os
import random
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from tests.testbed.process import ChildProcess, ScratchFolder, StartError, wait_until

_Result = TypeVar("_Result")

_CLONE_NEWNET = 0x40000000
_READY_WITHIN_S = 300.0
_COMMAND_TIMEOUT_S = 120.0

_HOW = (
    "run the tests as root, or in a network of their own: "
    "unshare --user --map-root-user --net sh -c 'ip link set lo up && exec pytest ...'"
)


class NetworkError(Exception):
    """This machine does not let us make hosts or links; the message says what it refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A host's end of a link.

    Attributes:
        ipv4: Its address, from 198.18.0.0/15, which is kept for tests (RFC 2544).
        ipv6: Its address, from fd00::/8.
    """

    ipv4: str
    ipv6: str


class Host:
    """A host of its own, until its network ends."""

    def __init__(self, name: str, holder: ChildProcess) -> None:
        self.name = name
        self._holder = holder

    @property
    def pid(self) -> int:
        """A process on this host."""
        return self._holder.pid

    @property
    def _namespace(self) -> Path:
        return Path(f"/proc/{self.pid}/ns/net")

    def command(self, words: Sequence[str | Path]) -> list[str | Path]:
        """The command that runs ``words`` on this host."""
        return ["nsenter", f"--net={self._namespace}", "--", *words]

    def connect(self, address: str, port: int, *, timeout_s: float = 120.0) -> socket.socket:
        """A TCP connection from this host, for use in this process; blocking, with a timeout.

        Raises:
            OSError: It was refused, or took longer than ``timeout_s`` seconds.
        """
        # A thread may be on another host than its process, and a socket stays where it was made.
        with ThreadPoolExecutor(max_workers=1) as one_thread:
            return one_thread.submit(self._connect, address, port, timeout_s).result()

    def _connect(self, address: str, port: int, timeout_s: float) -> socket.socket:
        libc = ctypes.CDLL(None, use_errno=True)
        with self._namespace.open() as namespace:
            if libc.setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")
        return socket.create_connection((address, port), timeout_s)


class Network:
    """Hosts and the links between them, made on request and gone on leaving the context."""

    def __init__(self) -> None:
        self._parts = ExitStack()
        self._subnets = _subnets()
        self._interfaces = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.close()

    def host(self, name: str) -> Host:
        """A new host, with nothing but its loopback.

        Raises:
            NetworkError: This machine does not let us.
        """
        folder = self._parts.enter_context(ScratchFolder("host"))
        try:
            holder = ChildProcess(
                f"host {name}", ["unshare", "--net", "sleep", "infinity"], log=folder.path / "host.log"
            )
            self._parts.callback(holder.kill)
            ours = Path("/proc/self/ns/net").readlink()
            namespace = Path(f"/proc/{holder.pid}/ns/net")
            holder.wait_until_ready(lambda: namespace.readlink() != ours, timeout_s=_READY_WITHIN_S)
        except (StartError, OSError) as error:
            raise NetworkError(f"no network namespace: {error}\n{_HOW}") from None
        host = Host(name, holder)
        _run("ip", "link", "set", "lo", "up", host=host)
        return host

    def link(self, one: Host | None, other: Host) -> tuple[Interface, Interface]:
        """Wire two hosts together; None is this machine.

        Returns:
            Their ends of the link, which can be connected to at once.

        Raises:
            NetworkError: This machine does not let us.
        """
        subnet = next(self._subnets)
        ends = [
            Interface(
                ipv4=f"198.18.{subnet >> 6}.{(subnet << 2 & 255) + end}", ipv6=f"fd5a:{subnet:x}::{end}"
            )
            for end in (1, 2)
        ]
        names = [f"kct{subnet:x}{end}" for end in "ab"]
        one_pid = os.getpid() if one is None else one.pid
        _run(
            *("ip", "link", "add", names[0], "netns", str(one_pid), "type", "veth"),
            *("peer", "name", names[1], "netns", str(other.pid)),
        )
        if one is None:
            # The kernel would take it away too, but in its own time.
            self._parts.callback(_run, "ip", "link", "delete", names[0])
        for host, name, end in zip((one, other), names, ends, strict=True):
            _run("ip", "address", "add", f"{end.ipv4}/30", "dev", name, host=host)
            # Without nodad the address would be looked for among neighbours for a second or two.
            _run("ip", "address", "add", f"{end.ipv6}/126", "dev", name, "nodad", host=host)
            _run("ip", "link", "set", name, "up", host=host)
        for host, name in zip((one, other), names, strict=True):
            wait_until(
                lambda host=host, name=name: "state UP" in _run("ip", "link", "show", name, host=host),  # type: ignore[misc]
                timeout_s=_READY_WITHIN_S,
                what=f"the link {name}",
            )
        return ends[0], ends[1]


def apart(run: Callable[[], _Result]) -> _Result:
    """Call ``run``; its sockets and processes are on a host with nothing but its loopback.

    Without the right to make that host they are on this one. A browser needs it: it fails each
    request under way when any address of its host comes or goes, as other tests' links do.

    Raises:
        NetworkError: The host has no loopback.
    """
    # A thread may be on another host than its process, and its children are on its host.
    with ThreadPoolExecutor(max_workers=1) as one_thread:
        return one_thread.submit(_apart, run).result()


def _apart(run: Callable[[], _Result]) -> _Result:
    if ctypes.CDLL(None).unshare(_CLONE_NEWNET) == 0:
        _run("ip", "link", "set", "lo", "up")
    return run()


def problem() -> str | None:
    """Why this machine can't have a :class:`Network`, None when it can."""
    try:
        with Network() as network:
            network.link(None, network.host("probe"))
    except NetworkError as error:
        return str(error)
    return None


def _subnets() -> Iterator[int]:
    """Numbers of /30 networks in 198.18.0.0/16, each once; another test run begins elsewhere."""
    yield from random.SystemRandom().sample(range(1 << 14), 64)


def _run(*words: str, host: Host | None = None) -> str:
    command = words if host is None else host.command(words)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False
        )
    except OSError as error:
        raise NetworkError(f"{error} (Debian: apt-get install iproute2)") from None
    if done.returncode:
        raise NetworkError(f"`{' '.join(words)}`: {done.stderr.strip()}\n{_HOW}")
    return done.stdout
