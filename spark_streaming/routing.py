"""Decides which task gets an entry.

A task needs all entries of a client instance. It should also get all instances of a client id,
because they share series: then a series has one row for each minute of a batch. So entries are
routed by client id, with two exceptions, both found out from batches that were processed:

- instances whose pushes have several client ids, or none, are routed by instance;
- so are the instances of a client id that has more of a batch than one task should get.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

__all__ = ["HEAVY", "MAX_NAMES", "Routes"]

#: Most names in the plan of a batch. With more, every entry is routed by instance from then on.
MAX_NAMES: Final = 1000
#: A client id is heavy if it has more than this many times the share of a task.
HEAVY: Final = 0.5


class Routes:
    """Routes of one query's entries. It learns from each batch."""

    def __init__(self) -> None:
        self._instances: set[str] = set()
        self._client_ids: set[str] = set()
        self._all_by_instance = False

    def by_instance(self, instances: Iterable[str]) -> None:
        """Route these instances by instance from now on."""
        self._instances.update(instances)
        self._bound()

    def learn(self, client_id: str, *, points: int, of: int, tasks: int) -> None:
        """Route the instances of a heavy client id separately from now on.

        Args:
            client_id: The client id with the most points of a task.
            points: Its points in the batch.
            of: All points of the batch.
            tasks: Number of tasks.
        """
        if tasks > 1 and points * tasks > of * HEAVY:
            self._client_ids.add(client_id)
            self._bound()

    def column(self, client_id: Column, instance: Column) -> Column:
        """Return the column that entries are distributed by.

        Args:
            client_id: That of the entry's push.
            instance: The entry's client instance id; null if the push can't be read.
        """
        if self._all_by_instance:
            return instance
        separate = client_id.isNull()
        if self._client_ids:
            separate |= client_id.isin(sorted(self._client_ids))
        if self._instances:
            separate |= instance.isin(sorted(self._instances))
        return f.when(separate, instance).otherwise(client_id)

    def _bound(self) -> None:
        """Forget all names if there are too many, because clients choose them."""
        if len(self._instances) + len(self._client_ids) > MAX_NAMES:
            self._all_by_instance = True
            self._instances.clear()
            self._client_ids.clear()
