"""``subscriptions copy``: copies subscriptions to another configuration's store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from receiver.cli.output import fail
from receiver.cli.pages import pages
from receiver.cli.session import Session
from receiver.log import only_warnings
from receiver.settings.errors import SettingsError
from receiver.settings.load import load
from receiver.store.opened import open_store
from receiver.store.store import ReadOnlyError, StoreError, SubscriptionStore
from receiver.store.switch import compare
from receiver.telemetry.subscription import Subscription
from receiver.telemetry.subscription_document import read_document

_To = Annotated[
    Path, typer.Option(help="Configuration of a sidecar whose store gets the subscriptions.", metavar="FILE")
]
_From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        help="Configuration whose store has the subscriptions; without it, the running sidecar at --url.",
        metavar="FILE",
    ),
]
_Force = Annotated[
    bool, typer.Option("--force", help="Replace subscriptions that the other store has in another form.")
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be copied.")]


def copy_subscriptions(
    session: Session,
    to: _To,
    source: _From = None,
    force: _Force = False,  # noqa: FBT002 -- an option
    dry_run: _DryRun = False,  # noqa: FBT002 -- an option
) -> None:
    """Copy all subscriptions to the store of another configuration.

    Do so before a reload with another subscriptions.store. Nothing is copied while the other store
    has one of them in another form, unless --force is given.

    \u0008
    Examples:
      kafka-telemetry subscriptions copy --to receiver.yaml
      kafka-telemetry subscriptions copy --from old.yaml --to receiver.yaml --dry-run
    """
    wanted = _of_sidecar(session) if source is None else _of_store(source)
    with _store(to) as store:
        found = _content(store)
        difference = compare(wanted, found)
        if difference.other and not force:
            names = ", ".join(each.name for each in difference.other)
            raise fail(f"{to}: its store has these in another form: {names}; give --force to replace them")
        changes = {each.name: "copied" for each in difference.missing}
        changes |= {each.name: "replaced" for each in difference.other}
        for subscription in sorted(wanted, key=lambda each: each.name):
            done = changes.get(subscription.name, "unchanged")
            if done != "unchanged" and not dry_run:
                _put(store, subscription)
            typer.echo(f"{subscription.name}: {f'would be {done}' if dry_run else done}")
        if not wanted:
            typer.echo("there are no subscriptions")


def _of_sidecar(session: Session) -> tuple[Subscription, ...]:
    return tuple(read_document(document) for document in pages(session, "/v1/subscriptions"))


def _of_store(file: Path) -> tuple[Subscription, ...]:
    with _store(file) as store:
        return _content(store)


@contextmanager
def _store(file: Path) -> Iterator[SubscriptionStore]:
    """Open the store of a configuration. A mistake in the configuration exits."""
    try:
        settings = load(file, os.environ)
    except SettingsError as error:
        for mistake in (error, *error.further):
            fail(str(mistake))
        raise typer.Exit(2) from None
    with only_warnings(settings.log):
        try:
            store = open_store(settings.subscriptions, strict=True)
        except StoreError as error:
            raise fail(str(error)) from None
        try:
            yield store
        finally:
            store.close()


def _content(store: SubscriptionStore) -> tuple[Subscription, ...]:
    try:
        store.refresh()
        return store.load_all()
    except StoreError as error:
        raise fail(str(error)) from None


def _put(store: SubscriptionStore, subscription: Subscription) -> None:
    try:
        store.put(subscription)
    except ReadOnlyError as error:
        raise fail(
            f"{error}; `kafka-telemetry subscriptions list --output yaml` prints what to write there"
        ) from None
    except StoreError as error:
        raise fail(str(error)) from None
