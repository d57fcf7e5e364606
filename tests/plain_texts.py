"""Finds Python objects in texts that people read.

``tests/project/texts.py`` refuses them where types tell. What comes from JSON has no type: so the
output of every command, and every error of the REST API, is looked through where tests make it.
"""

from __future__ import annotations

import re
from typing import Final

_OBJECT: Final = re.compile(
    r"(?<![\w.'\"-])(?:None|True|False)(?![\w.'\"-])"  # not in quotes: a client may be called so
    r"|<[A-Z]\w*\.\w+: "  # an enum's member
    r"|\b[A-Z]\w+(?:State|Kind|Reason|Outcome|Code)\.[A-Z_]+\b"
    r"|\[['b]['\"\w]|\{'|\('\w*', |\(\d+, \d"  # a list, a dict, a set, a tuple
    r"|(?:^|[=:(,] ?)b'"  # bytes
    r"|\b(?:PosixPath|HostPorts?|datetime|frozenset|mappingproxy|array|deque|UUID)\("
    r"|<(?:class|function|bound method|[\w.]+ object at 0x)"
)


def python_objects(text: str) -> list[str]:
    """Return the lines of a text that show a Python object."""
    return [line for line in text.splitlines() if _OBJECT.search(line)]
