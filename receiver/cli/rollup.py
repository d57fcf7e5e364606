"""``rollup``: the roll-up's own commands, and its configuration reference.

Owns their place in the tree. What they do is :mod:`spark_streaming.cli`'s.
"""

from __future__ import annotations

from spark_streaming.cli import app as rollup_app

__all__ = ["rollup_app"]
