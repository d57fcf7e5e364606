"""Compiles ``_speedups.c`` for a wheel, or for the project installed in place.

Without a compiler, or with :data:`PURE_PYTHON` set, the wheel is pure Python. One extension serves
Python 3.11 and later, because it uses the limited API.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: The environment variable that leaves the extension out, here and when the program runs.
PURE_PYTHON: Final = "KAFKA_TELEMETRY_PURE_PYTHON"

#: What the compiler is told; the last two make the same bytes of the same source.
_FLAGS: Final = ("-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-g0", "-ffile-prefix-map=.=.")
_SOURCE: Final = Path("receiver/native/_speedups.c")
_EXTENSION: Final = _SOURCE.with_suffix(".abi3.so")


class SpeedupsHook(BuildHookInterface[Any]):
    """Adds the extension to a wheel, or to the tree of an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, or leave the extension out."""
        del version
        if self.target_name != "wheel":
            return
        extension = Path(self.root) / _EXTENSION
        if os.environ.get(PURE_PYTHON):
            return
        extension.unlink(missing_ok=True)  # an old one would be used
        problem = compile_extension(Path(self.root), extension)
        if problem is not None:
            self.app.display_warning(f"without the compiled data path: {problem}")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform}"
        build_data["artifacts"].append(str(_EXTENSION))


def compile_extension(root: Path, extension: Path, *flags: str) -> str | None:
    """Compile the extension.

    Args:
        root: The tree with the source.
        extension: Where it goes.
        flags: Further flags for the compiler.

    Returns:
        Why it can't be compiled; None if it was.
    """
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        return f"{compiler[0]} is missing (Debian: apt-get install gcc libc6-dev)"
    headers = sysconfig.get_path("include")
    if not Path(headers, "Python.h").exists():
        return f"{headers} has no Python.h (Debian: apt-get install python3-dev)"
    command = [*compiler, *_FLAGS, *flags, f"-I{headers}", str(_SOURCE), "-o", str(extension)]
    compiled = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)  # noqa: S603
    return None if compiled.returncode == 0 else compiled.stderr.strip()


if __name__ == "__main__":
    tree = Path(__file__).parents[2]
    sys.exit(compile_extension(tree, tree / _EXTENSION, *sys.argv[1:]))
