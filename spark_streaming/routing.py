"""Decides which task gets an entry.

A task needs all entries of a client instance. It should also get all instances of a client id,
because they share series: then a series has one row for each minute of a batch. So entries are
routed by client id, with two exceptions, both found out from batches that were processed:

- instances whose pushes have several client ids, or none, are routed by instance;
- so are the instances of a client id that has more of a batch than one task should get.

A hash of this *route* gives the *slot* of an entry. Slots are dealt to the tasks of a batch by the
points that they had in batches before, so that all tasks take about as long. The batch waits for
the last one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

#: Most names in the plan of a batch. With more, every entry is routed by instance from then on.
MAX_NAMES: Final = 1000
#: A client id is heavy if it has more than this many times the share of a task.
HEAVY: Final = 0.5
#: Many more than tasks. Else few slots can't be dealt evenly, and client ids share them by chance.
SLOTS: Final = 1024
#: Weight of the last batch in what is known of a slot. Batches differ in the clients they have.
_LAST: Final = 0.5
#: Share of the points that slots are expected to have without any before, all together.
_UNKNOWN: Final = 0.01
#: Slots are dealt again once a task has so many times the share that it should have. Until then
#: tasks keep their slots, because a process remembers the series that it has looked up.
_UNEVEN: Final = 1.02


class Routes:
    """Routes of one query's entries. It learns from each batch."""

    def __init__(self) -> None:
        self._instances: set[str] = set()
        self._client_ids: set[str] = set()
        self._all_by_instance = False
        self._shares = [0.0] * SLOTS
        self._dealt: list[int] = []

    def by_instance(self, instances: Iterable[str]) -> None:
        """Route these instances by instance from now on."""
        self._instances.update(instances)
        self._bound()

    def learn(self, client_id: str, *, points: int, of: int, tasks: int) -> None:
        """Route the instances of a heavy client id separately from now on.

        Args:
            client_id: The client id with the most points of a task.
            points: Its points in the batch.
        """
        if tasks > 1 and points * tasks > of * HEAVY:
            self._client_ids.add(client_id)
            self._bound()

    def weigh(self, points: Mapping[int, int]) -> None:
        """Learn how many points of a batch slots had, without those that had none."""
        if total := sum(points.values()):
            self._shares = [
                (1 - _LAST) * share + _LAST * points.get(slot, 0) / total
                for slot, share in enumerate(self._shares)
            ]

    def slot(self, client_id: Column, instance: Column) -> Column:
        """Return the column of an entry's slot, from 0 to ``SLOTS`` - 1.

        Args:
            client_id: That of the entry's push.
            instance: The entry's client instance id, or another text if the push can't be read.
        """
        return f.pmod(f.hash(self._route(client_id, instance)), f.lit(SLOTS))

    def task(self, slot: Column, tasks: int) -> Column:
        """Return the column of the task that gets a slot."""
        # One literal, because an array of literals takes a call into Spark's JVM for each.
        dealt = f.lit(",".join(map(str, self.deal(tasks))))
        return f.split(dealt, ",")[slot].cast("int")

    def deal(self, tasks: int) -> list[int]:
        """Return the task of each slot: the largest first, to the emptiest task."""
        if self._is_uneven(tasks):
            self._dealt = [0] * SLOTS
            least = [(0.0, task) for task in range(tasks)]
            for slot in sorted(range(SLOTS), key=lambda one: -self._shares[one]):
                share, task = least[0]
                self._dealt[slot] = task
                heapq.heapreplace(least, (share + self._shares[slot] + _UNKNOWN / SLOTS, task))
        return self._dealt

    def _is_uneven(self, tasks: int) -> bool:
        if not self._dealt or max(self._dealt) != tasks - 1:
            return True
        of_tasks = [0.0] * tasks
        for share, task in zip(self._shares, self._dealt, strict=True):
            of_tasks[task] += share
        return max(of_tasks) > _UNEVEN * max(sum(of_tasks) / tasks, *self._shares)

    def _route(self, client_id: Column, instance: Column) -> Column:
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
