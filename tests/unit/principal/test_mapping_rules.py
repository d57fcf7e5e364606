"""Mapping rules; tests/integration/test_principal_rules.py compares them with Kafka's class."""

from __future__ import annotations

import pytest

from receiver.principal.mapping_rules import (
    MAX_NAME_CHARS,
    MappingRules,
    MappingRulesError,
    NoMatchingRuleError,
)


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", "CN=alice,O=Acme", "CN=alice,O=Acme"),
        ("RULE:^CN=([^,]+).*$/$1/,DEFAULT", "CN=alice,O=Acme", "alice"),
        ("RULE:^CN=([^,]+).*$/$1/,DEFAULT", "O=Acme", "O=Acme"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U", "CN=alice,OU=dev,C=DE", "ALICE@DEV"),
        ("RULE:CN=(.*)/$1/L,DEFAULT", "CN=Jürgen", "jürgen"),
        ("RULE:(a)/x/,RULE:(a)/y/", "a", "x"),  # the first wins
        ("RULE:a/x/,DEFAULT", "aa", "aa"),  # all of the name has to match
        ("RULE:.*/x/", "abc", "xx"),  # Java's replaceAll: the whole, and the nothing after it
        ("RULE:(?<user>.+)/${user}!/", "ab", "ab!"),
        ("RULE:(.+)/$1$2/", "ab", "ab$2"),  # beyond the groups
        ("RULE:(.+)/$12/", "ab", "ab2"),  # one group, then a digit
        (r"RULE:a\/b/\$1\/\\/", "a/b", "$1/\\"),
        ("RULE:(x)?a/<$1>/", "a", "<>"),
        ("RULE:a+//,DEFAULT", "aa", ""),
        (" ,DEFAULT\n,", "a", "a"),
    ],
)
def test_mapping(rules: str, name: str, principal: str) -> None:
    assert MappingRules.parse(rules).principal_name(name) == principal


def test_rules_are_values() -> None:
    rules = MappingRules.parse("RULE:(.*)/$1/,DEFAULT")
    assert rules == MappingRules.parse("RULE:(.*)/$1/,DEFAULT") != MappingRules.parse("DEFAULT")
    assert len({rules, MappingRules.parse(rules.text)}) == 1
    with pytest.raises(AttributeError):
        rules.text = "DEFAULT"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("", r"'' has no rule.*write DEFAULT"),
        (" , ", "has no rule"),
        ("DEFAULT,RULE:a/b", r"rule 2, 'RULE:a/b': it is not RULE:pattern/replacement/"),
        ("RULE:a/b/X", r"rule 1, 'RULE:a/b/X': .* with L, U or nothing"),
        ("RULE:a/b/c/", "write a slash within as"),
        ("alice", r"rule 1, 'alice': it neither begins with RULE: nor is it DEFAULT"),
        ("DEFAULTS", "neither begins with RULE:"),
        ("RULE:(a//", r"rule 1, 'RULE:\(a//': the pattern is no RE2 expression \(missing \)"),
        ("RULE:(?!a).*/x/", "no RE2 expression.*without look-around"),
        ("RULE:a*+/x/", "no RE2 expression.*possessive"),
        (r"RULE:(a)\1/x/", "back reference within the pattern, which RE2 lacks"),
        ("RULE:[a-z&&[^b]]/x/", r"within a character class.*write one plain class"),
        ("RULE:[[:alpha:]]/x/", "within a character class"),
        ("RULE:(?U)a/x/", "the flag U"),
        ("RULE:a{1001}/x/", "no RE2 expression"),
        ("RULE:((((a{99}){99}){99}){99})/x/", "no RE2 expression"),
        ("RULE:\ud800/x/", "not Unicode text"),
        ("RULE:a/$1/", r"the replacement's \$1 is no group.*the pattern has 0.*plain dollar is written \\\$"),
        ("RULE:(a)/$2$3/", r"\$3 is no group"),  # Kafka makes but the first of them literal, then fails
        ("RULE:(a)/$99999999999/", r"'\$99999999999' is no number of a group"),
        ("RULE:a/$/", "a dollar with no group after it"),
        ("RULE:a/${b}/", r"\$\{b\} names no group"),
    ],
)
def test_a_bad_rule_is_named_with_the_fix(rules: str, message: str) -> None:
    with pytest.raises(MappingRulesError, match=message):
        MappingRules.parse(rules)


@pytest.mark.parametrize("line_end", ["\n", "\r", "\x85", "\u2028", "\u2029"])
def test_no_rule_applies_to_a_name_with_a_line_end(line_end: str) -> None:
    name = f"CN=alice{line_end}"
    with pytest.raises(NoMatchingRuleError):
        MappingRules.parse("RULE:(?s).*/x/").principal_name(name)
    assert MappingRules.parse("RULE:(?s).*/x/,DEFAULT").principal_name(name) == name


def test_no_rule_applies() -> None:
    with pytest.raises(
        NoMatchingRuleError, match="no rule of 'RULE:a/b/' applies to 'O=x'; end the rules with DEFAULT"
    ):
        MappingRules.parse("RULE:a/b/").principal_name("O=x")


def test_names_are_bounded() -> None:
    rules = MappingRules.parse("DEFAULT")
    assert len(rules.principal_name("x" * MAX_NAME_CHARS)) == MAX_NAME_CHARS
    with pytest.raises(NoMatchingRuleError, match="has 4097 characters; at most 4096 are mapped"):
        rules.principal_name("x" * (MAX_NAME_CHARS + 1))


def test_a_pattern_that_would_backtrack_for_ever_does_not() -> None:
    with pytest.raises(NoMatchingRuleError):
        MappingRules.parse("RULE:(a*)*b/x/").principal_name("a" * MAX_NAME_CHARS)
