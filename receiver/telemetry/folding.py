"""Folds client ids with generated parts into one, as of a Deployment's pods.

Applies the rules of ``telemetry.series.client_id_folding``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from receiver.patterns import Rewrite
from receiver.settings.metric_processing import ClientIdFoldingSettings
from receiver.telemetry.identity import MAX_TEXT_CHARS

# Client ids in the cache.
_CACHE_SIZE: Final = 4096


class ClientIdFolding:
    """Applies the first rule whose pattern matches the whole client id."""

    def __init__(self, rules: Sequence[ClientIdFoldingSettings]) -> None:
        self._rewrites = tuple(Rewrite(rule.pattern, rule.replacement) for rule in rules)
        #: Return the folded client id, at most 512 characters; the id itself when no rule matches.
        self.fold = lru_cache(_CACHE_SIZE)(self._fold)

    def _fold(self, client_id: str) -> str:
        for rewrite in self._rewrites:
            folded = rewrite(client_id)
            if folded is not None:
                # The replacement may repeat a group, so the result can be longer than the id.
                return folded[:MAX_TEXT_CHARS]
        return client_id
