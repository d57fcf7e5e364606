"""Subscriptions as documents: what is written is read again, and every mistake is found."""

from typing import Any

import pytest

from receiver.store.document import KEYS, from_document, to_document
from receiver.telemetry.subscription import Subscription

WHOLE = Subscription(
    name="all of it",
    metrics=("org.apache.kafka.", "*"),
    interval_ms=1000,
    match={"client_software_version": "1,2", "client_id": "a=b"},
)


@pytest.mark.parametrize("subscription", [WHOLE, Subscription(name="none", metrics=())])
def test_what_is_written_is_read_again(subscription: Subscription) -> None:
    assert from_document(to_document(subscription)) == subscription


def test_a_document_has_every_field() -> None:
    assert set(to_document(WHOLE)) == set(KEYS)
    assert {"name", "metrics", "interval_ms", "match"} <= set(KEYS)


def test_a_document_without_a_name_gets_the_given_one() -> None:
    assert from_document({"metrics": ["a."]}, name="b") == Subscription(name="b", metrics=("a.",))
    assert from_document({"name": "c", "metrics": ["a."]}, name="b") == Subscription(
        name="c", metrics=("a.",)
    )


@pytest.mark.parametrize(
    ("document", "mistakes"),
    [
        ([], [f"expected a mapping with the keys {', '.join(KEYS)}"]),
        ({"metrics": []}, ["name: required"]),
        ({"name": "a"}, ["metrics: required"]),
        (
            {"name": "a", "metrcs": []},
            ["metrcs: unknown key; did you mean metrics?", "metrics: required"],
        ),
        (
            {
                "name": "",
                "metrics": ["a.*", "b.", "c d"],
                "interval_ms": 1,
                "match": {"who": "x", "client_id": "("},
            },
            [
                "name: '' is not a name; give a text of one character or more",
                "metrics[0]: 'a.*' is no prefix of a metric name; write 'a.': a prefix needs no wildcard",
                "metrics[2]: 'c d' is no prefix of a metric name; use at most 255 of the letters A to Z, "
                "digits and _ . - /, or * alone for every metric",
                "interval_ms: 1 is out of range; give 100 to 3600000 milliseconds",
                "match.who: 'x' has an unknown selector; use one of ",
                "match.client_id: '(' is no regular expression: missing ): (; write it for RE2",
            ],
        ),
        ({"name": "a", "metrics": "b."}, ["metrics: 'b.' is not a list; give a list of prefixes, or "]),
        (
            {"name": "a", "metrics": ["b."] * 257},
            ["metrics: '257 prefixes' are too many; give at most 256; "],
        ),
        (
            {"name": "a", "metrics": [], "match": []},
            ["match: [] is not a mapping; give patterns by selector"],
        ),
    ],
)
def test_every_mistake_is_found_at_once(document: Any, mistakes: list[str]) -> None:
    found = from_document(document)
    assert isinstance(found, list)
    said = [str(one) for one in found]
    assert len(said) == len(mistakes), said
    for line, begins in zip(said, mistakes, strict=True):
        assert line.startswith(begins)
