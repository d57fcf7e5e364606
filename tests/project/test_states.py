"""The states in docs/architecture.md are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from receiver.gateway.connection import states
from receiver.supervisor import states as of_supervisor
from receiver.supervisor.states import ENDING, STARTS_RELAYS, Lifecycle, State

_PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def described(docstring: str | None) -> dict[str, str]:
    """The states of a module's table, with their meanings."""
    return dict(re.findall(r"^([A-Z_]{4,})  +(\S.*)$", docstring or "", re.MULTILINE))


def section(title: str) -> str:
    return _PAGE.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_page_has_the_states_of_a_connection() -> None:
    meanings = described(states.__doc__)
    assert list(meanings) == [state.name for state in states.State]
    page = section("The states of a connection")
    assert dict(re.findall(r"^\| ([A-Z_]+) \| (.*) \|$", page, re.MULTILINE)) == meanings


def test_the_page_has_the_states_of_the_supervisor_and_their_transitions() -> None:
    rows = re.findall(
        r"^\| ([A-Z]+) \| (.*) \| ?([A-Z, ]*) ?\|$", section("The states of the supervisor"), re.MULTILINE
    )
    assert {name: meaning for name, meaning, _ in rows} == described(of_supervisor.__doc__)
    assert [name for name, _, _ in rows] == [state.name for state in State]
    for name, _, following in rows:
        drawn = {State[part] for part in following.strip().split(", ") if part}
        assert drawn == of_supervisor.TRANSITIONS[State[name]] - {State.ENDED}, name


def test_the_supervisor_refuses_a_transition_that_is_not_in_the_table() -> None:
    lifecycle = Lifecycle()
    with pytest.raises(ValueError, match="LEAVING does not follow STARTING"):
        lifecycle.enter(State.LEAVING)
    lifecycle.end(2)
    lifecycle.end(0)
    assert (lifecycle.state, lifecycle.status) == (State.ENDED, 2)


def test_nothing_is_started_in_a_state_that_ends() -> None:
    assert not ENDING & STARTS_RELAYS
    for state in ENDING:
        assert of_supervisor.TRANSITIONS[state] <= ENDING


def test_a_connection_only_moves_on() -> None:
    for state, following in states.TRANSITIONS.items():
        assert all(later > state for later in following)
    assert states.TRANSITIONS[states.State.CLOSED] == frozenset()
