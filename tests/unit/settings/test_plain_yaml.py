"""Plain YAML, of which JSON is a part."""

from __future__ import annotations

import json

from receiver.settings.plain_yaml import parse


def test_characters_that_json_escapes_in_two_halves() -> None:
    document = {"ü\N{ROCKET}": ["a\N{ROCKET}\N{ROCKET}b", "é"]}
    assert parse(json.dumps(document)) == document
    assert parse('"\\ud83d \\ude80"') == "\ud83d \ude80"
