"""Findings as text for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


def report(found: Iterable[Mapping[str, Any]]) -> str:
    """Write findings, with their onset and what to change, safe for a terminal."""
    return "\n\n".join(_finding(finding) for finding in found) or "no findings"


def _finding(finding: Mapping[str, Any]) -> str:
    ended = f" to {_minute(finding['ended_at'])}" if finding["ended_at"] else ""
    cluster = f"  cluster {finding['cluster_id']}" if finding["cluster_id"] else ""
    lines = [
        f"{finding['severity']}  {finding['kind']}  since {_minute(finding['began_at'])}{ended}{cluster}",
        f"  {finding['summary']}",
    ]
    for name, heading in (("client_ids", "clients"), ("owners", "owners")):
        if finding[name]["count"]:
            lines.append(f"  {heading}: {listed(finding[name])}")
    for change in finding["advice"]:
        for software, keys in change["change"].items():
            of = "" if software == "all" else f" ({software})"
            lines.append(f"  change{of}: {keys}")
        lines.append(f"    because {change['why']} ({change['source']})")
        lines.append(f"    it can't see {change['cannot_see']}")
    return "\n".join(_plain(line) for line in lines)


def listed(names: Mapping[str, Any]) -> str:
    """Write the first names of a finding's list, and the number of further ones."""
    more = names["count"] - len(names["first"])
    return ", ".join(names["first"]) + (f" and {more} more" if more else "")


def _minute(time: str) -> str:
    return f"{time[:16]}Z"


def _plain(text: str) -> str:
    """Escape what a terminal may obey: clients choose their names."""
    return "".join(
        character if character.isprintable() else json.dumps(character)[1:-1] for character in text
    )
