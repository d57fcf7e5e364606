"""Every mistake of a document is found, with the path of its value."""

from typing import Any

import pytest

from receiver.store.document import from_document
from receiver.telemetry.subscription import Subscription


def test_a_document_without_a_name_gets_the_given_one() -> None:
    assert from_document({"metrics": ["a."]}, name="b") == Subscription(name="b", metrics=("a.",))
    assert from_document({"name": "c", "metrics": ["a."]}, name="b") == Subscription(
        name="c", metrics=("a.",)
    )


@pytest.mark.parametrize(
    ("document", "mistakes"),
    [
        ([], ["[] is not a mapping; give the subscription's fields"]),
        ({"metrics": []}, ["name: null is not a name; give a text of one character or more"]),
        ({"name": "a"}, ["metrics: null is required; give a list of prefixes, or "]),
        (
            {"name": "a", "metrcs": []},
            ["metrcs: [] is an unknown field; did you mean metrics?", "metrics: null is required; "],
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
                "digits and _ . - /, or * alone for all metrics",
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
    said = [str(item) for item in found]
    assert len(said) == len(mistakes), said
    for line, begins in zip(said, mistakes, strict=True):
        assert line.startswith(begins)
