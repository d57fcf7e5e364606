"""Entity tags and conditional requests (RFC 9110, section 13.1)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from fastapi import Header

from receiver.api.problems import InvalidError, ProblemError, field_error

IfMatch = Annotated[
    str | None, Header(description="Change only what has one of these entity tags; `*`: any.")
]
IfNoneMatch = Annotated[
    str | None, Header(description="`*`: only create, never replace.", json_schema_extra={"enum": ["*"]})
]

#: Raises a problem (412) if a request's conditions don't hold for the tag of what exists; None:
#: nothing does.
Check: TypeAlias = Callable[[str | None], None]


def entity_tag(content: Any) -> str:
    """Return the tag of what an operator sets; it is the same on every sidecar."""
    return f'"{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]}"'


def conditions(kind: str, name: str, if_match: str | None, if_none_match: str | None) -> Check:
    """Return the check of a request's conditions.

    Args:
        kind: What is changed, for problems: a subscription, or an owner.
    """
    # If-Match compares strongly. If-None-Match supports `*` only.
    if if_none_match is not None and if_none_match.strip() != "*":
        raise InvalidError(field_error(("if-none-match",), if_none_match, "only * is supported"))
    tags = None if if_match is None else [tag.strip() for tag in if_match.split(",")]

    def check(existing: str | None) -> None:
        problem = None
        if existing is None:
            if tags is not None:
                problem = f"there is no {kind} named {name!r} to change: list the {kind}s"
        elif if_none_match is not None:
            problem = f"the {kind} {name!r} exists: choose another name, or omit If-None-Match to replace it"
        elif tags is not None and "*" not in tags and existing not in tags:
            problem = f"the {kind} {name!r} has changed: read it again and repeat the change"
        if problem is not None:
            raise ProblemError(412, problem)

    return check
