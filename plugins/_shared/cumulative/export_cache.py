"""Caches the results of an export's pushes, so that a retry sends the same bytes.

Without the cache, a retry would accumulate its pushes again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from receiver.plugin import Push, PushIdentity

Item = TypeVar("Item")


class ExportCache(Generic[Item]):
    """Computes the result of each push once, however often its export is tried.

    The host retries a batch unchanged, halves it, or appends pushes to it. The cache holds the
    results of one batch, without those of delivered pushes.
    """

    def __init__(self) -> None:
        self._results: dict[PushIdentity, Item] = {}

    def results(self, pushes: Sequence[Push], compute: Callable[[Push], Item]) -> list[Item]:
        """Return the results of one attempt's pushes, in their order.

        If ``compute`` raises, the results computed before stay in the cache.
        """
        keys = [push.identity for push in pushes]
        results = self._results
        if not all(key in results for key in keys):
            # The host starts with other pushes only when it has delivered or dropped the earlier
            # ones.
            results = self._results = {key: results[key] for key in keys if key in results}
            for key, push in zip(keys, pushes, strict=True):
                if key not in results:
                    results[key] = compute(push)
        return [results[key] for key in keys]

    def discard(self, pushes: Sequence[Push]) -> None:
        """Remove the results of delivered pushes."""
        for push in pushes:
            self._results.pop(push.identity, None)
