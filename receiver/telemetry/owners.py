"""Owners: the team that a client belongs to, in the language of subscriptions.

Of several owners that match a client, the first counts, in the order of their files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.matching import Matcher, bits
from receiver.telemetry.selectors import NOTHING_REVEALED, Revealed, selector_value
from receiver.telemetry.subscription_checks import CHECKS

#: The maximum number of owners, because each is matched against each client.
MAX_OWNERS: Final = 1000
#: The maximum number of principals, and of topics, that one owner expects.
MAX_EXPECTED: Final = 256
#: The maximum length of a name, and of a contact or link.
MAX_TEAM: Final = 128
MAX_TEXT: Final = 512
#: Clients with the same matched values share an answer. At the bound all are found anew.
_MAX_KNOWN: Final = 16_384

_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

_Report = Callable[[SubscriptionError], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A team, and the clients that belong to it.

    Raises:
        SubscriptionError: A value is invalid. The error names its field, and ``further`` has the
            errors of all other fields.
    """

    team: str
    """Its name, unique."""
    match: Mapping[str, str] = field(hash=False)
    """Regular expressions (RE2) by selector, as of a subscription."""
    contact: str = ""
    link: str = ""
    principals: tuple[str, ...] = ()
    """Principals that should be connected."""
    topics: tuple[str, ...] = ()
    """Topics that its clients should use."""
    changed_by: str | None = field(default=None, compare=False)
    """Who changed it last over REST; None: it is of a file."""
    changed_at: str | None = field(default=None, compare=False)
    """When (RFC 3339, UTC)."""

    def __post_init__(self) -> None:
        errors: list[SubscriptionError] = []
        if self.team == "":
            errors.append(SubscriptionError("team", self.team, "is not a name", "give a text"))
        for name, most in (("team", MAX_TEAM), ("contact", MAX_TEXT), ("link", MAX_TEXT)):
            _check_text(name, getattr(self, name), most, errors.append)
        object.__setattr__(self, "match", CHECKS["match"](self.match, errors.append))
        for kind in EXPECTED:
            object.__setattr__(self, kind, _checked_expected(kind, getattr(self, kind), errors.append))
        if errors:
            first, *first.further = errors
            raise first

    def changed(self, *, by: str | None, at: str | None) -> Owner:
        """Return this owner with who changed it last, and when."""
        return replace(self, changed_by=by, changed_at=at)


class Owners:
    """All owners, immutable: a change makes a new object.

    Attributes:
        owners: The owners, the first that matches first.

    Raises:
        SubscriptionError: Two owners have the same name, or they are too many.
    """

    def __init__(self, owners: Iterable[Owner] = ()) -> None:
        self.owners: Final = tuple(islice(owners, MAX_OWNERS + 1))
        if len(self.owners) > MAX_OWNERS:
            fix = f"keep at most {MAX_OWNERS}"
            raise SubscriptionError("team", f"more than {MAX_OWNERS} owners", "are too many", fix)
        self._matcher = Matcher([owner.match for owner in self.owners])
        self._selectors = sorted(self._matcher.selectors)
        self._known: dict[tuple[bytes, ...], Owner | None] = {}

    def __len__(self) -> int:
        return len(self.owners)

    def owner_of(self, client: ClientIdentity, revealed: Revealed = NOTHING_REVEALED) -> Owner | None:
        """Return the owner of a client; None: nobody declares it."""
        if not self.owners:
            return None
        values = tuple(selector_value(name, client, revealed) for name in self._selectors)
        try:
            return self._known[values]
        except KeyError:
            first = next(iter(bits(self._matcher.matching(client, revealed))), None)
            owner = None if first is None else self.owners[first]
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[values] = owner
        return owner

    def team_of(self, client: ClientIdentity, revealed: Revealed = NOTHING_REVEALED) -> str | None:
        """Return the name of a client's owner."""
        owner = self.owner_of(client, revealed)
        return None if owner is None else owner.team


_FIELDS: Final = ("team", "match", "contact", "link", "expected")
#: What an owner expects.
EXPECTED: Final = ("principals", "topics")
#: What the receiver sets in a document.
READ_ONLY_FIELDS: Final = ("source", "changed_by", "changed_at")


def to_document(owner: Owner) -> dict[str, Any]:
    """Return an owner's document, as files have it."""
    return {
        "team": owner.team,
        "match": dict(owner.match),
        "contact": owner.contact,
        "link": owner.link,
        "expected": {kind: list(getattr(owner, kind)) for kind in EXPECTED},
    }


def read_owner(document: object, *, team: str | None = None) -> Owner:
    """Read an owner from a document of YAML.

    Args:
        document: A mapping with ``match``, and perhaps ``team``, ``contact``, ``link`` and
            ``expected: {principals: [...], topics: [...]}``.
        team: The name of an owner without ``team``.

    Raises:
        SubscriptionError: It is no owner; ``further`` has the errors of all other fields.
    """
    if not isinstance(document, Mapping):
        raise SubscriptionError("", document, "is not a mapping", "give an owner: team and match")
    unknown = [
        SubscriptionError(str(key), value, "is an unknown field", f"use {', '.join(_FIELDS)}")
        for key, value in document.items()
        if key not in _FIELDS
    ]
    expected = document.get("expected", {})
    if not isinstance(expected, Mapping) or expected.keys() - set(EXPECTED):
        problem, fix = "is not a mapping with principals and topics", "give principals: [User:orders]"
        unknown.append(SubscriptionError("expected", expected, problem, fix))
        expected = {}
    if "match" not in document:
        fix = 'give patterns by selector, for example {client_id: "orders-.*"}'
        unknown.append(SubscriptionError("match", None, "is missing", fix))
    known: Any = document
    try:
        owner = Owner(
            team=known.get("team", team),
            match=known.get("match", {}),
            contact=known.get("contact", ""),
            link=known.get("link", ""),
            principals=expected.get("principals", ()),
            topics=expected.get("topics", ()),
        )
    except SubscriptionError as error:
        unknown += error.all
    if unknown:
        first, *first.further = unknown
        raise first
    return owner


def put_owner(document: object, team: str) -> Owner:
    """Read the owner of a request whose path has its name.

    Null counts as left out, and what the receiver sets is ignored.

    Raises:
        SubscriptionError: As of :func:`read_owner`.
    """
    if not isinstance(document, Mapping):
        raise SubscriptionError("", document, "is not a mapping", "give an owner: match and others")
    given = {
        key: value for key, value in document.items() if value is not None and key not in READ_ONLY_FIELDS
    }
    if isinstance(expected := given.get("expected"), Mapping):
        given["expected"] = {kind: names for kind, names in expected.items() if names is not None}
    owner = read_owner(given, team=team)
    if owner.team != team:
        fix = f"omit it, or give {team!r} as in the path"
        raise SubscriptionError("team", owner.team, "is another name", fix)
    return owner


def patched(existing: Owner, patch: object) -> Owner:
    """Return an owner with a merge patch (RFC 7396) of its document.

    Raises:
        SubscriptionError: As of :func:`read_owner`.
    """
    if not isinstance(patch, Mapping):
        raise SubscriptionError("", patch, "is not a mapping", "give the fields to change")
    merged = {**to_document(existing), **patch}
    for name, known in (("match", existing.match), ("expected", to_document(existing)["expected"])):
        if isinstance(given := patch.get(name), Mapping):
            entries = {**known, **given}
            merged[name] = {key: value for key, value in entries.items() if value is not None}
    return put_owner(merged, existing.team)


def _check_text(name: str, text: object, most: int, report: _Report) -> None:
    if not isinstance(text, str) or _UNPRINTABLE.search(text):
        fix = "give a text on one line, without control characters"
        report(SubscriptionError(name, text, "is not a text", fix))
    elif len(text) > most:
        report(SubscriptionError(name, text, f"has {len(text)} characters", f"give at most {most}"))


def _checked_expected(kind: str, names: object, report: _Report) -> tuple[str, ...]:
    if not isinstance(names, list | tuple) or not all(isinstance(entry, str) for entry in names):
        fix = 'give a list such as ["User:orders"]'
        report(SubscriptionError("expected", names, f"has no list of {kind}", fix))
        return ()
    if len(names) > MAX_EXPECTED:
        fix = f"give at most {MAX_EXPECTED}"
        report(SubscriptionError("expected", f"{len(names)} {kind}", "are too many", fix))
        return ()
    return tuple(dict.fromkeys(names))
