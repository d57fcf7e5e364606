"""Any text: rules or the one error; any name: a principal or the one error."""

from __future__ import annotations

import contextlib
import re

from hypothesis import given
from hypothesis import strategies as st

from receiver.principal.mapping_rules import MappingRules, MappingRulesError, NoMatchingRuleError

fragments = st.sampled_from(
    [
        "RULE:",
        "/",
        "/",
        ",",
        "DEFAULT",
        "(.*)",
        "[",
        "]",
        "&&",
        "(?<n>",
        ")",
        "$",
        "1",
        "{n}",
        "\\",
        "L",
        " ",
        "\n",
    ]
)
texts = st.text(max_size=30) | st.lists(fragments, max_size=12).map("".join)


@given(texts, st.text(max_size=20))
def test_only_the_two_errors_are_raised(text: str, name: str) -> None:
    with contextlib.suppress(MappingRulesError, NoMatchingRuleError):
        MappingRules.parse(text).principal_name(name)


@given(st.sampled_from(["a+", "a*", "(a)(b)?", "(x|a)*", "^a", "b$", "."]), st.text("abx", max_size=8))
def test_replacing_is_that_of_all_matches(pattern: str, name: str) -> None:
    rules = MappingRules.parse(f"RULE:{pattern}/<$0>/,DEFAULT")
    everything = re.fullmatch(pattern, name) is not None
    assert rules.principal_name(name) == (re.sub(pattern, r"<\g<0>>", name) if everything else name)
