"""The states in docs/architecture.md are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from receiver.gateway.connection import states

_PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def test_the_page_has_the_states_of_a_connection() -> None:
    described = dict(re.findall(r"^([A-Z_]{4,})  +(\S.*)$", states.__doc__ or "", re.MULTILINE))
    assert list(described) == [state.name for state in states.State]
    section = _PAGE.read_text().partition("## The states of a connection\n")[2].partition("\n## ")[0]
    assert dict(re.findall(r"^\| ([A-Z_]+) \| (.*) \|$", section, re.MULTILINE)) == described


def test_a_connection_only_moves_on() -> None:
    for state, following in states.TRANSITIONS.items():
        assert all(later > state for later in following)
    assert states.TRANSITIONS[states.State.CLOSED] == frozenset()
