"""Keeps pyarrow from importing pandas.

At the first list that it converts, pyarrow imports pandas to recognise its types, if pandas is
installed, as it is beside the roll-up. That costs a second of CPU and 65 MiB, in the middle of a
client's push. pyarrow tries once in a process, so a try that fails avoids it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa


class _NoPandas:
    """Finds no pandas for this thread."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if fullname == "pandas" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError("pyarrow does without pandas here", name=fullname)
        return None


def keep_pandas_out() -> None:
    """Have pyarrow try to import pandas now, and fail.

    If pandas is imported already, another plugin uses it, and pyarrow may do so too.
    """
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(finder)
