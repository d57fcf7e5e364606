"""Compiles the regular expressions of configuration and REST, on RE2 only.

RE2 takes linear time and bounded memory, whatever the pattern and the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import re2

from receiver.numbers import whole_number

# The memory of one pattern's program and states, in bytes.
_PATTERN_MEMORY: Final = 1 << 20

# The memory of the program and states of several patterns together, in bytes.
_SET_MEMORY: Final = 8 << 20

_EVERYTHING: Final = "(?s).*"

_REFERENCE: Final = re.compile(r"\\([0-9]|.?)", re.DOTALL)


def compile_pattern(pattern: str) -> Any:
    """Compile a pattern; match the result against UTF-8 bytes.

    Raises:
        ValueError: It is not an RE2 expression, or needs too much memory; the text is RE2's reason.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_MEMORY
    try:
        return re2.compile(pattern, options)
    except UnicodeEncodeError:
        raise ValueError("it is not Unicode text") from None
    except re2.error as error:
        reason = error.args[0] if error.args else "unknown"
        raise ValueError(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason) from None


class PatternSet:
    """Several patterns that are matched together against a whole text.

    A pattern that matches every text tells "no pattern matches" from "out of memory". Patterns that
    are together too large for RE2 are matched one by one.

    Args:
        patterns: Different patterns that :func:`compile_pattern` accepts.
    """

    __slots__ = ("_patterns", "_separately", "_together")

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        self._separately: tuple[Any, ...] | None = None
        options = re2.Options()
        options.log_errors = False
        options.max_mem = _SET_MEMORY
        self._together = re2.Set.FullMatchSet(options)
        try:
            for pattern in (*self._patterns, _EVERYTHING):
                self._together.Add(pattern)
            self._together.Compile()
        except re2.error:
            self._together = None

    def matching(self, text: bytes) -> list[str]:
        """Return the patterns that match the whole text (UTF-8)."""
        if self._together is not None:
            found = self._together.Match(text)
            if found:
                return [self._patterns[index] for index in found if index < len(self._patterns)]
        if self._separately is None:
            self._separately = tuple(map(compile_pattern, self._patterns))
        return [
            pattern
            for pattern, compiled in zip(self._patterns, self._separately, strict=True)
            if compiled.fullmatch(text) is not None
        ]


class Rewrite:
    r"""A pattern for a whole text, and the replacement of a text that matches.

    Args:
        pattern: A regular expression (RE2).
        replacement: RE2's syntax: ``\1`` to ``\9`` are the pattern's groups, ``\0`` is the whole
            text, ``\\`` is a backslash. A group that did not match is empty.

    Raises:
        ValueError: The pattern is invalid, or the replacement uses a group that it lacks.
    """

    __slots__ = ("_parts", "_pattern")

    def __init__(self, pattern: str, replacement: str) -> None:
        self._pattern = compile_pattern(pattern)
        self._parts = tuple(_parts(replacement, self._pattern.groups))

    def __call__(self, text: str) -> str | None:
        """Rewrite a text; None when the pattern does not match the whole text."""
        found = self._pattern.fullmatch(text.encode("utf-8", "replace"))
        if found is None:
            return None
        parts = (part if isinstance(part, bytes) else found[part] or b"" for part in self._parts)
        return b"".join(parts).decode("utf-8", "replace")


def _parts(replacement: str, groups: int) -> Iterator[bytes | int]:
    position = 0
    for found in _REFERENCE.finditer(replacement):
        yield replacement[position : found.start()].encode("utf-8", "replace")
        position = found.end()
        reference = found[1]
        if reference == "\\":
            yield b"\\"
        elif (group := whole_number(reference, 9)) is None:
            raise ValueError(f"{found[0]} is no group; write a plain backslash as \\\\")
        elif group > groups:
            has = f"groups up to \\{groups}" if groups else "no group"
            raise ValueError(f"{found[0]} names a group, but the pattern has {has}")
        else:
            yield group
    yield replacement[position:].encode("utf-8", "replace")
