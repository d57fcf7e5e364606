r"""Kafka's ``ssl.principal.mapping.rules``: from a subject to a principal.

The syntax is ``RULE:pattern/replacement/[LU]`` and ``DEFAULT`` (KIP-371). Rules are read and
applied as Kafka's ``SslPrincipalMapper`` does, including Java's ``replaceAll``. Patterns run on
RE2, which never backtracks.

A pattern that Java and RE2 read differently is refused. Two differences remain: RE2's ``\b`` knows
only ASCII letters, and no ``RULE`` applies to a name with a line end in it, because Java and RE2
disagree on what ends a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from receiver.patterns import compile_pattern

#: Longest name to map, because replacing is quadratic in the worst case. Real names have about 100.
MAX_NAME_CHARS: Final = 4096

_RULE = re.compile(
    r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|)\s*(?:,\s*|\Z)", re.ASCII
)
# The characters that Java's String.trim removes.
_BLANKS = "".join(map(chr, range(0x21)))

# Quoted text and escapes are matched to skip them; the named groups mean something else in RE2.
_JAVA_SYNTAX = re.compile(
    r"\\Q.*?(?:\\E|\Z)"
    r"|(?P<reference>\\(?:[1-9]|k<))"
    r"|\\."
    r"|\[\^?\]?(?:\\.|(?P<nested>\[|&&)|[^\]\\])*\]?"
    r"|(?P<flag>\(\?[a-zA-Z]*U)",
    re.DOTALL,
)
_REFUSED: Final[Mapping[str, str]] = {
    "reference": "a back reference within the pattern, which RE2 lacks; write the text out",
    "nested": "a '[' or '&&' within a character class, which RE2 reads differently; "
    "write one plain class, with \\[ or \\&",
    "flag": "the flag U, which RE2 reads differently; use \\p{...} classes",
}

_BACK_REFERENCE = re.compile(r"\$(\d+)", re.ASCII)
_MAX_INT32: Final = 2**31 - 1
_MAX_DIGITS: Final = 10
_REPLACEMENT = re.compile(r"\\(.)|\$\{([A-Za-z][A-Za-z0-9]*)\}|\$([0-9]+)|([^\\$]+)", re.DOTALL)
# All line ends of Java and of RE2.
_LINE_END = re.compile("[\n\r\x85\u2028\u2029]")

_Case = Literal["", "L", "U"]


class MappingRulesError(ValueError):
    """The mapping rules are invalid; the message names the rule and the fix."""


class NoMatchingRuleError(ValueError):
    """No rule applies to a distinguished name; Kafka refuses that client."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """One ``RULE``: each match is replaced by texts and groups of the pattern."""

    pattern: Any
    replacement: tuple[str | int, ...]
    case: _Case

    def apply(self, name: str) -> str | None:
        if _LINE_END.search(name) or not self.pattern.fullmatch(name):
            return None
        pieces: list[str] = []
        end, previous = 0, None
        # Like String.replaceAll: replaces every match, not only the one of the whole name.
        for found in self.pattern.finditer(name):
            if found.span() == previous:
                continue  # re2 finds an empty match twice
            pieces.append(name[end : found.start()])
            pieces.extend(part if isinstance(part, str) else found[part] or "" for part in self.replacement)
            end, previous = found.end(), found.span()
        mapped = "".join([*pieces, name[end:]])
        return mapped.lower() if self.case == "L" else mapped.upper() if self.case == "U" else mapped


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingRules:
    """An ordered list of mapping rules; two are equal if their texts are."""

    text: str
    _rules: tuple[_Rule | None, ...] = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> MappingRules:
        r"""Read rules in Kafka's syntax (KIP-371), separated by commas.

        Args:
            text: For example ``RULE:^CN=([^,]+),.*$/$1/L,DEFAULT``. A slash within a rule is
                written ``\/``. Empty rules are skipped, as in Kafka.

        Raises:
            MappingRulesError: There is no rule, a rule is malformed, Kafka would fail on each use
                of it, or it needs a feature that RE2 lacks.
        """
        rules: list[_Rule | None] = []
        trimmed = text.strip(_BLANKS)
        position = 0
        while position < len(trimmed):
            found = _RULE.match(trimmed, position)
            if found is None:
                raise _malformed(len(rules) + 1, trimmed[position:])
            position = found.end()
            if found[1]:
                rules.append(None)
            elif found[2] is not None:
                rule = found[0].strip().removesuffix(",")
                try:
                    rules.append(_read(found[2], found[3], found[4]))
                except ValueError as error:
                    raise MappingRulesError(f"rule {len(rules) + 1}, {_shown(rule)}: {error}") from None
        if not rules:
            raise MappingRulesError(
                f"{_shown(text)} has no rule, so no client would have a name; write DEFAULT"
            )
        return cls(text=text, _rules=tuple(rules))

    def principal_name(self, distinguished_name: str) -> str:
        """Map a name by the first rule whose pattern matches all of it (KIP-371).

        Args:
            distinguished_name: A name from
                :func:`receiver.principal.distinguished_name.subject_name`.

        Returns:
            The principal's name, without ``User:``. Rules may make it empty.

        Raises:
            NoMatchingRuleError: No rule applies, or the name has more than :data:`MAX_NAME_CHARS`
                characters.
        """
        if len(distinguished_name) > MAX_NAME_CHARS:
            raise NoMatchingRuleError(
                f"the name {_shown(distinguished_name)} has {len(distinguished_name)} characters; "
                f"at most {MAX_NAME_CHARS} are mapped"
            )
        for rule in self._rules:
            mapped = distinguished_name if rule is None else rule.apply(distinguished_name)
            if mapped is not None:
                return mapped
        raise NoMatchingRuleError(
            f"no rule of {_shown(self.text)} applies to {_shown(distinguished_name)}; "
            "end the rules with DEFAULT to take any name as it is"
        )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:200]}...")


def _malformed(number: int, rest: str) -> MappingRulesError:
    if rest.startswith("RULE:"):
        wrong = (
            "it is not RULE:pattern/replacement/ with L, U or nothing and then a comma or the end; "
            "write a slash within as \\/"
        )
    else:
        wrong = "it neither begins with RULE: nor is it DEFAULT; write RULE:pattern/replacement/ or DEFAULT"
    return MappingRulesError(f"rule {number}, {_shown(rest)}: {wrong}")


def _read(pattern: str, replacement: str, case: str) -> _Rule:
    compiled = _compile(pattern)
    parts = tuple(_parts(_escape_literals(replacement, compiled.groups), compiled))
    return _Rule(compiled, parts, "L" if case == "L" else "U" if case == "U" else "")


def _compile(pattern: str) -> Any:
    for found in _JAVA_SYNTAX.finditer(pattern):
        if found.lastgroup:
            raise ValueError(f"the pattern has {_REFUSED[found.lastgroup]}")
    try:
        return compile_pattern(pattern)
    except ValueError as error:
        raise ValueError(
            f"the pattern is no RE2 expression ({error}); "
            "write it without look-around, possessive repetition and back references"
        ) from None


def _escape_literals(replacement: str, groups: int) -> str:
    """Escape references to groups that do not exist, as Kafka does.

    After the first replacement Kafka's offsets are wrong, and so are these.
    """
    value = replacement
    for found in _BACK_REFERENCE.finditer(replacement) if groups else ():
        if found[1].startswith("0"):
            continue
        number = int(found[1][:_MAX_DIGITS])
        if len(found[1]) > _MAX_DIGITS or number > _MAX_INT32:
            raise ValueError(f"the replacement's {_shown(found[0])} is no number of a group")
        while number > groups and number >= 10:
            number //= 10
        if number > groups:
            value = f"{value[: found.start()]}\\{value[found.start() :]}"
    return value


def _parts(replacement: str, pattern: Any) -> Iterator[str | int]:
    """Read a replacement as ``java.util.regex.Matcher.appendReplacement`` does."""
    position = 0
    while position < len(replacement):
        found = _REPLACEMENT.match(replacement, position)
        if found is None:
            raise ValueError("the replacement has a dollar with no group after it; write a plain one as \\$")
        escaped, name, digits, plain = found.groups()
        position = found.end()
        if digits is not None:
            length = 1
            while length < len(digits) and int(digits[: length + 1]) <= pattern.groups:
                length += 1
            if int(digits[:length]) > pattern.groups:
                raise ValueError(
                    f"the replacement's ${digits} is no group, and Kafka would fail; "
                    f"the pattern has {pattern.groups}, and a plain dollar is written \\$"
                )
            yield int(digits[:length])
            yield digits[length:]
        elif name is not None:
            if name not in pattern.groupindex:
                raise ValueError(f"the replacement's ${{{name}}} names no group of the pattern")
            yield pattern.groupindex[name]
        else:
            yield escaped or plain
