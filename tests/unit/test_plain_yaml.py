"""Plain YAML, of which JSON is a part."""

from __future__ import annotations

import json

import pytest

from spark_streaming.plain_yaml import PlainYamlError, parse


def test_characters_that_json_escapes_in_two_halves() -> None:
    document = {"ü\N{ROCKET}": ["a\N{ROCKET}\N{ROCKET}b", "é"]}
    assert parse(json.dumps(document)) == document
    assert parse('"\\ud83d \\ude80"') == "\ud83d \ude80"


def test_a_key_given_twice_is_named_with_its_place() -> None:
    with pytest.raises(PlainYamlError, match=r"^line 2, column 1: postgres: the key is given twice$"):
        parse("postgres: first\npostgres: second\n")


@pytest.mark.parametrize(
    ("first", "following"), [("x", "[{}]"), ("{x: 1}", "{{<<: [{}]}}")], ids=["aliases", "merges"]
)
def test_a_small_text_does_not_become_a_huge_value(first: str, following: str) -> None:
    """Ten references to the line before, ten times: ten thousand million values."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{n}: &a{n} " + following.format(",".join([f"*a{n - 1}"] * 10)) for n in range(1, 11)]
    with pytest.raises(PlainYamlError, match="more than 100000"):
        parse("\n".join(lines))
