"""Client ids with generated parts, folded: what many pods of one Deployment are called together.

Owns how the rules of ``telemetry.series.client_id_folding`` are applied. It must not know where the folded
id is shown: that is a label's affair, and what an operator looks up is the real one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from receiver.patterns import Rewrite
from receiver.settings.metric_processing import ClientIdFoldingSettings
from receiver.telemetry.connection import MAX_TEXT_CHARS

__all__ = ["ClientIdFolding"]

# So many client ids are remembered with what they become.
_REMEMBERED: Final = 4096


class ClientIdFolding:
    """Rules that make one client id of many; the first whose pattern matches the whole id counts.

    Args:
        rules: The rules, valid as their settings are.
    """

    __slots__ = ("_rewrites", "fold")

    def __init__(self, rules: Sequence[ClientIdFoldingSettings]) -> None:
        self._rewrites = tuple(Rewrite(rule.pattern, rule.replacement) for rule in rules)
        #: Return what a client id becomes, at most 512 characters; itself where no rule is for it.
        self.fold = lru_cache(_REMEMBERED)(self._fold) if rules else _as_it_is

    def _fold(self, client_id: str) -> str:
        for rewrite in self._rewrites:
            folded = rewrite(client_id)
            if folded is not None:
                # A group may stand in a replacement many times.
                return folded[:MAX_TEXT_CHARS]
        return client_id


def _as_it_is(client_id: str) -> str:
    return client_id
