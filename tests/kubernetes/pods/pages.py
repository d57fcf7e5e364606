"""Runs the commands of a page as they stand there."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Final

from tests.testbed import parts
from tests.testbed.commands import CommandError, output
from tests.testbed.helm import Helm

#: ``helm --wait`` waits for three brokers on two busy cores.
_TIMEOUT_S: Final = 1800.0


class PageError(CommandError):
    """A command of a page failed; the message is what it said."""


def script(page: Path, heading: str) -> str:
    """The indented lines of a page's section.

    Raises:
        LookupError: There is no section with commands.
    """
    found = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL
    )
    lines = re.findall(r"^    (.+)$", found[1], re.MULTILINE) if found else []
    if not lines:
        raise LookupError(f"{page.name} has no commands below {heading!r}")
    return "\n".join(lines)


def run(commands: str, helm: Helm, folder: Path) -> str:
    """What commands print that run in a folder, with kubectl and helm of the testbed.

    Raises:
        PageError: One failed, or they took too long.
    """
    programs = (parts.KUBERNETES.require(), parts.HELM.require(), Path(sys.executable).parent)
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    return output(
        ["bash", "-euo", "pipefail", "-c", f"cd {folder}\n{commands}"],
        env={**helm.environment, "PATH": path},
        timeout_s=_TIMEOUT_S,
        error=PageError,
    )
