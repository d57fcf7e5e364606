"""Completion of names in a shell.

It asks the sidecar as the command itself would, and offers nothing if that fails. A shell evaluates
what is offered, and Kafka clients choose their ids. So only values of harmless characters are
offered.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import typer

from receiver.cli.session import asked_targets, document_of, rest_session
from receiver.telemetry.client_state import ClientState
from receiver.telemetry.selectors import SELECTORS

#: A person waits for the key.
_TIMEOUT_S: Final = 2.0

_HARMLESS: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@/+-]*")

#: Items that are asked for.
_ITEMS: Final = 1000

_OPTIONS: Final = ("url", "profile", "token_file", "ca_file", "client_certificate", "client_key")


def subscription_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names of subscriptions."""
    return _begin((item["name"] for item in _items(ctx, "/v1/subscriptions")), incomplete)


def client_instance_ids(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return ids of client instances, each with its client id."""
    shown = {item["client_instance_id"]: item["client_id"] for item in _items(ctx, "/v1/clients")}
    ids = _begin(shown, incomplete)
    return [(known_id, shown[known_id] if _HARMLESS.fullmatch(shown[known_id]) else "") for known_id in ids]


def client_field(field: str) -> Callable[[typer.Context, str], list[str]]:
    """Return the completion of a filter by a field of clients."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        return _begin((item[field] for item in _items(ctx, "/v1/clients")), incomplete)

    return complete


def client_states(incomplete: str) -> list[str]:
    """Return the states of clients."""
    return _begin(ClientState, incomplete)


def selectors(incomplete: str) -> list[str]:
    """Return the selectors, each with the equals sign that follows it."""
    return [f"{selector}=" for selector in SELECTORS if f"{selector}=".startswith(incomplete)]


def _begin(values: Iterable[str], incomplete: str) -> list[str]:
    return sorted({value for value in values if value.startswith(incomplete) and _HARMLESS.fullmatch(value)})


def _items(ctx: typer.Context, path: str) -> list[dict[str, Any]]:
    """Return the first items of a list; none if the sidecar can't be asked."""
    options = {name: ctx.params.get(name) for name in _OPTIONS}
    found: list[dict[str, Any]] = []
    # Whatever is wrong, the command itself will say so. A message would break the line that the
    # person is writing.
    with (
        contextlib.suppress(Exception, typer.Exit),
        contextlib.redirect_stderr(io.StringIO()),
        rest_session(asked_targets(**options)[0]) as session,
    ):
        session.timeout = _TIMEOUT_S
        found = document_of(session.get(path, params={"limit": _ITEMS}))["items"]
    return found
