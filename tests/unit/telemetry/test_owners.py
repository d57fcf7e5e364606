"""Owners: the first that matches counts; every mistake is named."""

from typing import Any

import pytest

from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.owners import MAX_EXPECTED, MAX_OWNERS, Owner, Owners, read_owner
from receiver.telemetry.selectors import Revealed
from tests.unit.api.conftest import connection


def test_the_first_that_matches_owns_a_client() -> None:
    owners = Owners(
        [
            Owner(team="pay", match={"principal": "User:pay", "client_id!": ".*-test"}),
            Owner(team="groups", match={"group_id": "g.*"}),
            Owner(team="rest", match={"client_id": "orders.*"}),
        ]
    )
    assert owners.team_of(connection(1, principal="User:pay", client_id="orders-1")) == "pay"
    assert owners.team_of(connection(1, principal="User:pay", client_id="orders-test")) == "rest"
    assert owners.team_of(connection(1), Revealed(group_id="g1")) == "groups"
    assert owners.team_of(connection(1, client_id="else")) is None
    assert Owners().team_of(connection(1)) is None


@pytest.mark.parametrize(
    ("document", "fields"),
    [
        ([], [""]),
        ({}, ["match", "team"]),
        ({"team": "", "match": {}}, ["team"]),
        ({"team": "a\nb", "match": {}}, ["team"]),
        (
            {"team": "a", "match": {"client": "x"}, "contact": 5, "link": "l" * 513},
            ["contact", "link", "match.client"],
        ),
        ({"team": "a", "match": {"client_id": "("}}, ["match.client_id"]),
        ({"team": "a", "match": {}, "owner": "b"}, ["owner"]),
        ({"team": "a", "match": {}, "expected": ["User:a"]}, ["expected"]),
        ({"team": "a", "match": {}, "expected": {"groups": ["a"]}}, ["expected"]),
        ({"team": "a", "match": {}, "expected": {"principals": "User:a"}}, ["expected"]),
        ({"team": "a", "match": {}, "expected": {"principals": ["u"] * (MAX_EXPECTED + 1)}}, ["expected"]),
        ({"team": "a", "match": {}, "expected": {"topics": [1]}}, ["expected"]),
    ],
)
def test_a_mistake_names_its_field(document: Any, fields: list[str]) -> None:
    with pytest.raises(SubscriptionError) as caught:
        read_owner(document)
    assert sorted(error.field for error in caught.value.all) == fields
    assert all(error.fix for error in caught.value.all)


def test_owners_are_bounded() -> None:
    owner = Owner(team="a", match={})
    assert len(Owners([owner] * MAX_OWNERS).owners) == MAX_OWNERS
    with pytest.raises(SubscriptionError, match=f"keep at most {MAX_OWNERS}"):
        Owners([owner] * (MAX_OWNERS + 1))
