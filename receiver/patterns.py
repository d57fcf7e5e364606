"""Regular expressions that come from outside: from the configuration and over REST.

Owns how they are compiled: on RE2 alone, whose time is linear in the text and whose memory is bounded; and
how a replacement that goes with one is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import re2

__all__ = ["Rewrite", "compile_pattern"]

# What RE2 may spend on one pattern's program and states, in bytes.
_PATTERN_MEMORY: Final = 1 << 20

_REFERENCE: Final = re.compile(r"\\([0-9]|.?)", re.DOTALL)


def compile_pattern(pattern: str) -> Any:
    """Compile a regular expression from outside, on RE2, which takes linear time and bounded memory.

    Args:
        pattern: The expression.

    Returns:
        RE2's compiled object; match it against UTF-8 bytes.

    Raises:
        ValueError: It is no RE2 expression, or needs too much memory; the text is RE2's reason.
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


class Rewrite:
    r"""A pattern for a whole text, and what to put in the text's place.

    Args:
        pattern: A regular expression (RE2).
        replacement: As RE2 has it: ``\1`` to ``\9`` are the pattern's groups, ``\0`` is the whole text and
            ``\\`` is a backslash. A group that took no part is empty.

    Raises:
        ValueError: The pattern can't be compiled, or the replacement names a group that it has not.
    """

    __slots__ = ("_parts", "_pattern")

    def __init__(self, pattern: str, replacement: str) -> None:
        self._pattern = compile_pattern(pattern)
        self._parts = tuple(_parts(replacement, self._pattern.groups))

    def __call__(self, text: str) -> str | None:
        """Rewrite a text; None where the pattern does not match the whole of it."""
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
        elif not reference.isdecimal():
            raise ValueError(f"{found[0]} is no group; write a plain backslash as \\\\")
        elif int(reference) > groups:
            has = f"groups up to \\{groups}" if groups else "no group"
            raise ValueError(f"{found[0]} names a group, but the pattern has {has}")
        else:
            yield int(reference)
    yield replacement[position:].encode("utf-8", "replace")
