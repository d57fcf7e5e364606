"""Reads the documented clicks that lead from a dashboard to a culprit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "find-the-culprit.md"
_ROW: Final = re.compile(r"^\|(.+)\|$", re.MULTILINE)
_KIND: Final = re.compile(r"kind `(\w+)`")
_FIELD: Final = re.compile(r"\$\{__data\.fields\.(\w+)(?::\w+)?\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Click:
    """One click.

    Attributes:
        dashboard: The last words of the title of the dashboard with the panel.
        panel: The panel's title.
        kind: The kind of finding of the row; None: the first row.
        column: The heading of the column with the link.
        leads_to: The last words of the title of the dashboard that opens.
        shows: The panel there that shows the problem.
    """

    dashboard: str
    panel: str
    kind: str | None
    column: str
    leads_to: str
    shows: str


def clicks(heading: str) -> dict[str, list[Click]]:
    """Return the clicks of a section's table, by who they find.

    Raises:
        ValueError: A row of the table can't be read.
    """
    section = PAGE.read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found: dict[str, list[Click]] = {}
    who = ""
    for row in _ROW.findall(section)[2:]:
        cells = [cell.strip() for cell in row.split("|")]
        who = cells[0] or who
        match cells[1:]:
            case [dashboard, panel, which, column, leads_to, shows]:
                kind = _KIND.fullmatch(which)
                if kind is None and which != "the first":
                    raise ValueError(f"row {which!r}: write `the first`, or kind and its name")
            case _:
                raise ValueError(f"{row!r} has other columns than the page's tables")
        found.setdefault(who, []).append(
            Click(
                dashboard=dashboard,
                panel=panel,
                kind=kind and kind[1],
                column=column,
                leads_to=leads_to,
                shows=shows,
            )
        )
    return found


def link_of(panel: dict[str, Any], heading: str, row: dict[str, Any]) -> str:
    """Return where the link of a cell leads: the URL with the row's texts in it.

    Raises:
        ValueError: The column has no link, or several.
    """
    shown = {
        override["matcher"]["options"]: {
            property_["id"]: property_["value"] for property_ in override["properties"]
        }
        for override in panel["fieldConfig"]["overrides"]
    }
    links = [
        link["url"]
        for properties in shown.values()
        if properties.get("displayName") == heading
        for link in properties.get("links", ())
    ]
    if len(links) != 1:
        raise ValueError(f"column {heading!r} of {panel['title']!r} has {len(links)} links: it needs one")
    return _FIELD.sub(lambda found: str(row[found[1]]), links[0])
