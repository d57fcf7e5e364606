"""Writes what the test kit found of real clients as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from receiver.testkit.checks.check import Severity
from receiver.testkit.checks.table import CHECKS

_HEAD: Final = """\
# Real clients, judged by the test kit

<!-- Made by `python -m benchmarks.testkit`; run that, and don't edit this page. -->

Each client ran through the default script ([test kit](../../docs/testkit.md)). The last three
columns have the checks that failed. A check that could not be tried is not counted.
Several clients ran at once on two cores, so a late push (TK-020, TK-023) may be the machine's fault.
"""


def page(clients: Sequence[dict[str, Any]]) -> str:
    """Return the page for the clients of a report."""
    return "".join([_HEAD, *_overview(clients), *_findings(clients)])


def shortened(client: dict[str, Any]) -> dict[str, Any]:
    """Return what the page needs of a client in a report."""
    checks = client["checks"]
    return {
        "client_id": client["client_id"],
        "software": client["software"],
        "pushes": client["pushes"],
        "passed": sum(check["passed"] is True for check in checks),
        "untried": [check["id"] for check in checks if check["passed"] is None],
        "failed": {check["id"]: check["seen"] for check in checks if check["passed"] is False},
    }


def _overview(clients: Iterable[dict[str, Any]]) -> list[str]:
    lines = [
        "\n| client | software | pushes | passed | *must* | *should* | *informative* |\n",
        "|---|---|--:|--:|---|---|---|\n",
    ]
    for client in clients:
        failed = [
            ", ".join(
                check.id for check in CHECKS if check.id in client["failed"] and check.severity is severity
            )
            for severity in Severity
        ]
        cells = [client["client_id"], _cell(client["software"]), client["pushes"], client["passed"], *failed]
        lines.append(f"| {' | '.join(map(str, cells))} |\n")
    return lines


def _findings(clients: Sequence[dict[str, Any]]) -> list[str]:
    lines = ["\n## What was seen\n"]
    for check in CHECKS:
        seen: dict[str, list[str]] = {}
        for client in clients:
            if check.id in client["failed"]:
                seen.setdefault(_cell(client["failed"][check.id]), []).append(client["client_id"])
        if seen:
            lines.append(
                f"\n### {check.id}, {check.severity}: {check.title}\n\n{check.source}: {check.sentence}\n\n"
            )
            lines += [f"- {', '.join(names)}: {text}\n" for text, names in seen.items()]
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
