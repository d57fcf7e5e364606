"""Checks the tools that builds need: their versions, and how to install them."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass

_MINIMUM_JAVA = 17
#: franz-go 1.22 asks for it in its go.mod.
_MINIMUM_GO = (1, 26)
#: From here on, Go fetches a newer toolchain by itself unless it is told not to.
_SELF_UPGRADING_GO = (1, 21)
#: Debian 12's.
_MINIMUM_NODE = 18


class MissingPrerequisiteError(Exception):
    """Tools are missing or too old; the message names each and how to get it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool of the machine's.

    Attributes:
        name: What the operator knows it as, with the version asked for.
        problem: Says what is wrong with it on this machine, None when it will do.
        packages: Debian packages that bring it.
        advice: How to get it where those packages do not bring the version.
    """

    name: str
    problem: Callable[[], str | None]
    packages: tuple[str, ...]
    advice: str = ""

    def describe(self, problem: str) -> str:
        """One line for the operator: what is wrong, and how to mend it."""
        return f"{self.name}: {problem}. apt-get install {' '.join(self.packages)}{self.advice}"


def _output(*command: str) -> str | None:
    """What a command prints on both streams, None when it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout + done.stderr


@functools.cache
def java_version() -> str:
    """What ``java -version`` says, whole: a class data archive works with this very build only.

    Raises:
        MissingPrerequisiteError: There is no working ``java``.
    """
    text = _output("java", "-version")
    if text is None:
        raise MissingPrerequisiteError(JAVA.describe("`java` was not found"))
    return text


def _java_problem() -> str | None:
    for command in ("java", "javac"):
        text = _output(command, "-version")
        if text is None:
            return f"`{command}` was not found"
        found = re.search(r'(?:version "|javac )(\d+)', text)
        if found is None or int(found[1]) < _MINIMUM_JAVA:
            return f"`{command} -version` says {text.splitlines()[0]!r}"
    return None


def _go_problem() -> str | None:
    text = _output("go", "version")
    if text is None:
        return "`go` was not found"
    found = re.search(r"go(\d+)\.(\d+)", text)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version >= _MINIMUM_GO:
        return None
    toolchain = (_output("go", "env", "GOTOOLCHAIN") or "").strip()
    if version >= _SELF_UPGRADING_GO and toolchain not in {"local", "path"}:
        return None
    return f"`go version` says {text.strip()!r} and may not fetch a newer toolchain (GOTOOLCHAIN={toolchain})"


def _node_problem() -> str | None:
    text = _output("node", "--version")
    if text is None:
        return "`node` was not found"
    found = re.match(r"v(\d+)\.", text)
    if found is None or int(found[1]) < _MINIMUM_NODE:
        return f"`node --version` says {text.strip()!r}"
    return None if shutil.which("npm") else "`npm` was not found"


def _on_path(command: str) -> Callable[[], str | None]:
    return lambda: None if shutil.which(command) else f"`{command}` was not found"


JAVA = Tool(
    name="a Java development kit >= 17",
    problem=_java_problem,
    packages=("openjdk-17-jdk-headless",),
    advice=" (Debian 12; default-jdk-headless in newer releases)",
)
MAVEN = Tool(name="Apache Maven", problem=_on_path("mvn"), packages=("maven",))
GO = Tool(
    name="Go >= 1.26",
    problem=_go_problem,
    packages=("golang-go",),
    advice=" if that is 1.21 or newer (it fetches 1.26 by itself), else from https://go.dev/dl/",
)
SETPRIV = Tool(name="setpriv", problem=_on_path("setpriv"), packages=("util-linux",))
IP = Tool(name="ip", problem=_on_path("ip"), packages=("iproute2",))
NODE = Tool(name="Node.js >= 18 with npm", problem=_node_problem, packages=("nodejs", "npm"))
CHROMIUM = Tool(name="Chromium", problem=_on_path("chromium"), packages=("chromium",))
HAPROXY = Tool(name="HAProxy", problem=_on_path("haproxy"), packages=("haproxy",))
DEBOOTSTRAP = Tool(name="debootstrap", problem=_on_path("debootstrap"), packages=("debootstrap",))
IPSET = Tool(name="ipset", problem=_on_path("ipset"), packages=("ipset",))
#: What a node takes from the machine: to make images, to run containers, and for their network.
NODE_TOOLS = (
    Tool(
        name="root",
        problem=lambda: None if os.geteuid() == 0 else "a node makes namespaces, mounts and control groups",
        packages=("sudo",),
        advice=", and run this with sudo",
    ),
    IP,
    DEBOOTSTRAP,
    Tool(name="curl", problem=_on_path("curl"), packages=("curl",)),
    Tool(name="runc", problem=_on_path("/usr/sbin/runc"), packages=("runc",)),
    Tool(
        name="the CNI plugins",
        problem=_on_path("/usr/lib/cni/bridge"),
        packages=("containernetworking-plugins",),
    ),
    Tool(name="nft", problem=_on_path("nft"), packages=("nftables",)),
    Tool(name="iptables", problem=_on_path("iptables"), packages=("iptables",)),
    Tool(name="conntrack", problem=_on_path("conntrack"), packages=("conntrack",)),
)


def may_install() -> bool:
    """Whether this run may install Debian packages: as root, in CI, where there is apt-get."""
    return os.environ.get("CI") == "true" and os.geteuid() == 0 and shutil.which("apt-get") is not None


def require(tools: Iterable[Tool], progress: Callable[[str], None]) -> None:
    """Make sure of ``tools``, installing what Debian has where :func:`may_install` says so.

    Raises:
        MissingPrerequisiteError: Names every tool that is missing or too old, and how to get it.
    """
    wanted = tuple(dict.fromkeys(tools))
    missing = [tool for tool in wanted if tool.problem()]
    if missing and may_install():
        packages = [package for tool in missing for package in tool.packages]
        progress(f"installing Debian packages: {' '.join(packages)}")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (
            ["apt-get", "update", "-q"],
            ["apt-get", "install", "-q", "-y", "--no-install-recommends", *packages],
        ):
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=900, check=False
            )
            if done.returncode:
                progress(f"`{' '.join(command)}` failed: {done.stderr.strip()[-500:]}")
    problems = [tool.describe(problem) for tool in wanted if (problem := tool.problem())]
    if problems:
        raise MissingPrerequisiteError("missing on this machine:\n  " + "\n  ".join(problems))
