"""Regular expressions that come from outside: from the configuration and over REST.

Owns how they are compiled: on RE2 alone, whose time is linear in the text and whose memory is bounded.
"""

from __future__ import annotations

from typing import Any, Final

import re2

__all__ = ["compile_pattern"]

# What RE2 may spend on one pattern's program and states, in bytes.
_PATTERN_MEMORY: Final = 1 << 20


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
