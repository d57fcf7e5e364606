"""Patterns from outside: their replacements, and several together."""

from __future__ import annotations

import re

import pytest

from receiver.patterns import PatternSet, Rewrite, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "replacement", "text", "rewritten"),
    [
        (r"(.*)-[0-9a-f]{8,10}-[a-z0-9]{5}", r"\1", "orders-5d9c7b4f6d-x2k8p", "orders"),
        (r"(.*)-[0-9a-f]{8,10}-[a-z0-9]{5}", r"\1", "orders", None),
        # The whole text, or nothing.
        (r"a", "b", "aa", None),
        (r"(a)(b)", r"\2\1\0\\", "ab", "baab\\"),
        # A digit after a group's number is a digit.
        (r"(a)b", r"\10", "ab", "a0"),
        (r"(a)|(b)", r"<\1\2>", "b", "<b>"),
        (r"(?P<name>é+)-\d", r"\1", "ééé-1", "ééé"),
        (r"(.)\d", r"\1", "\ud8001", "?"),
        (r".*", "", "whatever", ""),
    ],
)
def test_a_text_that_matches_as_a_whole_is_rewritten(
    pattern: str, replacement: str, text: str, rewritten: str | None
) -> None:
    assert Rewrite(pattern, replacement)(text) == rewritten


@pytest.mark.parametrize(
    ("pattern", "replacement", "problem"),
    [
        ("a", r"\1", r"\1 names a group, but the pattern has no group"),
        ("(a)(b)", r"\1-\3", r"\3 names a group, but the pattern has groups up to \2"),
        ("(a)", r"\g<1>", r"\g is no group; write a plain backslash as \\"),
        ("(a)", "a\\", "\\ is no group; write a plain backslash as \\\\"),
    ],
)
def test_a_replacement_that_cannot_be_is_refused(pattern: str, replacement: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        Rewrite(pattern, replacement)


@pytest.mark.parametrize("together", [True, False])
def test_a_set_of_patterns_matches_as_each_alone(together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not together:  # as if they were too large for one automaton
        monkeypatch.setattr("receiver.patterns._SET_MEMORY", 1)
    patterns = ("a.*", "ab", "b+", "", ".*ü")
    found = PatternSet(patterns)
    for text in (b"", b"a", b"ab", b"abc", b"bb", "aü".encode(), b"x", b"\xff"):
        expected = {pattern for pattern in patterns if compile_pattern(pattern).fullmatch(text) is not None}
        assert set(found.matching(text)) == expected
