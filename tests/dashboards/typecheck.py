"""Checks dashboards against Grafana's TypeScript types, without running queries."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.testbed import parts

_TYPES = Path(__file__).parent / "types" / "dashboard.ts"
_TIMEOUT_S = 120.0
#: Joined to the JSON's first line, so that the compiler's line numbers are those of the file.
_DECLARATION = "import type { DashboardJson } from './dashboard'; export const dashboard: DashboardJson = "


#: Versions of Grafana whose types are there, beside the newest: the last ones of their kind.
OLDER_VERSIONS: Final = ("10.4", "11.0", "12.4")


def type_errors(dashboards: Iterable[Path], *, version: str | None = None) -> list[str]:
    """Check dashboards against ``types/dashboard.ts`` with ``tsc --strict``.

    Args:
        dashboards: JSON files, each with a name of its own.
        version: One of :data:`OLDER_VERSIONS`; None: the newest.

    Returns:
        A line for each error, headed by the dashboard's name, line and column, as in
        ``fleet.ts(12,5): ...``; they are the JSON file's, but for columns of its first line, which
        has more before it.

    Raises:
        NotSetUpError: The testbed's part ``grafana-schema`` is not built.
        CalledProcessError: The compiler broke down.
    """
    packages = parts.GRAFANA_SCHEMA.require() / "node_modules"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        modules = folder / "node_modules"
        if version is None:
            modules.symlink_to(packages)
        else:
            (modules / "@grafana").mkdir(parents=True)
            (modules / "@grafana" / "schema").symlink_to(packages / f"schema-{version}")
            (modules / "typescript").symlink_to(packages / "typescript")
        (folder / _TYPES.name).write_text(_TYPES.read_text())
        sources = []
        for dashboard in dashboards:
            source = folder / f"{dashboard.stem}.ts"
            source.write_text(_DECLARATION + dashboard.read_text())
            sources.append(source.name)
        compiler = packages / "typescript" / "bin" / "tsc"
        options = ["--strict", "--skipLibCheck", "--noEmit", "--module", "nodenext", "--pretty", "false"]
        done = subprocess.run(
            ["node", compiler, *options, *sources],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    if done.returncode and "error TS" not in done.stdout:
        done.check_returncode()
    return done.stdout.splitlines()
