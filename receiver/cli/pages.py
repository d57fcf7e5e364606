"""Lists and paths of the REST API, for commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final
from urllib.parse import quote

import typer

from receiver.cli.session import Session, document_of

#: The value of ``scope`` with which a sidecar answers for all receivers of its cluster.
CLUSTER: Final = "cluster"

#: The most items of a page.
PAGE: Final = 1000


def pages(
    session: Session, path: str, limit: int = sys.maxsize, filters: Mapping[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Return the items of a list, page by page.

    The session learns of receivers that did not answer.
    """
    parameters: dict[str, str | int] = {}
    while limit > 0:
        query = {"limit": min(limit, PAGE), **(filters or {}), **parameters}
        page = document_of(session.get(path, params=query))
        session.answered(page)
        yield from page["items"]
        if page["next"] is None:
            return
        parameters = {"after": page["next"]}
        limit -= len(page["items"])


def worst_first(
    session: Session,
    path: str,
    states: Sequence[str],
    limit: int,
    filters: Mapping[str, str],
    key: str,
) -> list[dict[str, Any]]:
    """Return the items of a list, state by state in the order that is given.

    An item that changes its state meanwhile is listed once. ``key`` identifies it.
    """
    if filters.get("scope") == CLUSTER and "state" not in filters:
        # Read once: for each state, all receivers would have to read all items.
        by_state: dict[str, list[dict[str, Any]]] = {state: [] for state in states}
        for item in pages(session, path, filters=filters):
            if len(known := by_state[item["state"]]) < limit:
                known.append(item)
        return list(chain.from_iterable(by_state.values()))[:limit]
    asked = (filters["state"],) if "state" in filters else states
    found: dict[str, dict[str, Any]] = {}
    for state in asked:
        items = pages(session, path, limit - len(found), {**filters, "state": state})
        found |= {item[key]: item for item in items if item[key] not in found}
    return list(found.values())


def given(**filters: str | None) -> dict[str, str]:
    """Return the filters that are given."""
    return {name: value for name, value in filters.items() if value is not None}


def subscription_path(name: str) -> str:
    """Return the path of a subscription."""
    return _named("/v1/subscriptions", name, "a subscription", "NAME")


def owner_path(team: str) -> str:
    """Return the path of an owner."""
    return _named("/v1/owners", team, "an owner", "TEAM")


def _named(collection: str, name: str, what: str, argument: str) -> str:
    if name in {"", ".", ".."}:
        raise typer.BadParameter(f"{name!r} cannot be the name of {what}", param_hint=argument)
    return f"{collection}/{quote(name, safe='')}"
