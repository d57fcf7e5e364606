"""Series budgets of client instances, principals, address blocks, and in all.

Owns the counts. Each data point of an instance's last accepted push counts as a series. The steps
on metrics drop what is over a budget (:mod:`receiver.telemetry.steps.overflow`).

An instance that wants more gets only series that are free, with one exception, which keeps one peer
from using up the total. A block (an IPv4 address, or an IPv6 network of 48 bits) is entitled to the
total divided by the number of blocks. When the total is used up, the largest block cedes series to
it: they no longer count for the largest block, and its next pushes pay them back. When a budget is
reduced, the instances that push first lose series first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from receiver.peers.shares import Holdings
from receiver.settings.metric_processing import SeriesSettings
from receiver.telemetry.identity import SHARED_PRINCIPALS
from receiver.wire.uuid import Uuid

_Name = TypeVar("_Name")

# One push takes series from at most so many address blocks, which bounds its cost.
_MAX_CEDING_BLOCKS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesUse(Generic[_Name]):
    """The series of a client instance, client id or principal."""

    name: _Name
    instances: int
    series: int  # data points of the instances' last pushes that were within budgets
    overflowed: int  # data points that were over a budget
    over_for_s: float | None  # since when there are data points over a budget


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesReport:
    """The largest users of series, sorted by points over budget, then by series."""

    budgets: SeriesSettings
    total: SeriesUse[None]
    clients: tuple[SeriesUse[Uuid], ...]
    client_ids: tuple[SeriesUse[str], ...]  # folded
    principals: tuple[SeriesUse[str], ...]


class SeriesBudgets:
    """Counts the series of each client instance against the budgets. Not thread-safe.

    The cost of a push does not depend on the number of instances.
    """

    def __init__(self, settings: SeriesSettings) -> None:
        self._settings = settings
        self._total = _Count(None)
        self._instances: dict[Uuid, _Instance] = {}
        self._principals: dict[str, _Count[str]] = {}
        self._client_ids: dict[str, _Count[str]] = {}
        self._blocks: dict[str, _Block] = {}
        # The series of each block without those that it ceded. The total budget applies to these.
        self._held: Holdings[str] = Holdings()
        self.overflowed_points = 0  # data points over a budget since the start

    @property
    def series(self) -> int:
        """The series of all instances, without those that address blocks ceded."""
        return self._held.total

    def replace_settings(self, settings: SeriesSettings) -> None:
        """Replace the budgets; they apply from each instance's next push."""
        self._settings = settings

    def allowed(self, client_instance_id: Uuid, principal: str, block: str) -> int | None:
        """Return how many series the next push of an instance may have; None for no limit.

        Its present series do not count against it.
        """
        settings = self._settings
        own = self._instances.get(client_instance_id)
        allowed = settings.max_per_client
        if settings.max_total is not None:
            held = 0 if own is None else own.held
            at_block = self._held.held_by(block) - (
                held if own is not None and own.block.name == block else 0
            )
            left = settings.max_total - self._held.total + held
            # Without those that the address block ceded.
            left = max(left, self._fair_share(settings.max_total, block) - at_block)
            allowed = left if allowed is None else min(allowed, left)
        if settings.max_per_principal is not None and principal not in SHARED_PRINCIPALS:
            left = settings.max_per_principal
            count = self._principals.get(principal)
            if count is not None:
                left -= count.series
                if own is not None and own.principal is count:
                    left += own.count.series
            allowed = left if allowed is None else min(allowed, left)
        return None if allowed is None else max(0, allowed)

    def record_push(
        self,
        client_instance_id: Uuid,
        *,
        principal: str,
        client_id: str,
        block: str,
        series: int,
        overflowed: int,
        now: float,
    ) -> None:
        """Replace the series of an instance's previous push by those of an accepted push.

        Call :meth:`forget` when the core forgets the instance.

        Args:
            block: Its address block (:func:`receiver.peers.sources.block_of`).
            series: The data points within the budgets.
            overflowed: The data points over a budget.
            now: Monotonic seconds.
        """
        self.overflowed_points += overflowed
        own = self._instances.get(client_instance_id)
        if own is not None and own.names != (principal, client_id, block):
            self.forget(client_instance_id)
            own = None
        if own is None:
            own = self._instances[client_instance_id] = _Instance(
                count=_Count(client_instance_id),
                principal=self._principals.setdefault(principal, _Count(principal)),
                client_id=self._client_ids.setdefault(client_id, _Count(client_id)),
                block=self._blocks.setdefault(block, _Block(block)),
            )
            own.block.instances += 1
            for count in (own.count, own.principal, own.client_id, self._total):
                count.instances += 1
        self._replace(own, series)
        more = series - own.count.series
        more_overflowed = overflowed - own.count.overflowed
        if more or more_overflowed:
            for count in (own.count, own.principal, own.client_id, self._total):
                count.add(more, more_overflowed, now)
        self._take_from_largest()

    def forget(self, client_instance_id: Uuid) -> None:
        """Free the series of an instance, if it has any."""
        own = self._instances.pop(client_instance_id, None)
        if own is None:
            return
        self._replace(own, 0)
        own.block.instances -= 1
        if not own.block.instances:
            del self._blocks[own.block.name]
        for count in (own.principal, own.client_id, self._total):
            count.instances -= 1
            count.remove(own.count)
        if not own.principal.instances:
            del self._principals[own.principal.name]
        if not own.client_id.instances:
            del self._client_ids[own.client_id.name]

    def _fair_share(self, max_total: int, block: str) -> int:
        return max_total // (len(self._blocks) + (block not in self._blocks))

    def _replace(self, own: _Instance, series: int) -> None:
        """Replace the series of an instance.

        Series that its address block ceded are paid back first.
        """
        block = own.block
        held = own.held
        block.ceded -= own.count.series - held
        if series != held:
            self._held.add(block.name, series - held)

    def _take_from_largest(self) -> None:
        max_total = self._settings.max_total
        if max_total is None:
            return
        for _ in range(_MAX_CEDING_BLOCKS):
            surplus = self._held.total - max_total
            largest = self._held.largest() if surplus > 0 else None
            if largest is None:
                return
            # More than 0: while there is a surplus, the largest block holds more than its share.
            ceded = min(surplus, self._held.held_by(largest) - self._fair_share(max_total, largest))
            self._blocks[largest].ceded += ceded
            self._held.add(largest, -ceded)

    def report(self, most: int, now: float) -> SeriesReport:
        """Report the ``most`` largest users of each kind."""
        return SeriesReport(
            budgets=self._settings,
            total=self._total.use(now),
            clients=_largest((own.count for own in self._instances.values()), most, now),
            client_ids=_largest(self._client_ids.values(), most, now),
            principals=_largest(self._principals.values(), most, now),
        )


@dataclass(slots=True)
class _Count(Generic[_Name]):
    """The series of a client instance, or of several together."""

    name: _Name
    instances: int = 0
    series: int = 0
    overflowed: int = 0
    over_since: float | None = None

    def add(self, series: int, overflowed: int, now: float) -> None:
        self.series += series
        self.overflowed += overflowed
        if not self.overflowed:
            self.over_since = None
        elif self.over_since is None:
            self.over_since = now

    def remove(self, other: _Count[Uuid]) -> None:
        self.series -= other.series
        self.overflowed -= other.overflowed
        if not self.overflowed:
            self.over_since = None

    def use(self, now: float) -> SeriesUse[_Name]:
        return SeriesUse(
            name=self.name,
            instances=self.instances,
            series=self.series,
            overflowed=self.overflowed,
            over_for_s=None if self.over_since is None else now - self.over_since,
        )


@dataclass(slots=True)
class _Block:
    """A block's instances, and the series that it ceded and has not paid back."""

    name: str
    instances: int = 0
    ceded: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Instance:
    """The counts that an instance is part of."""

    count: _Count[Uuid]
    principal: _Count[str]
    client_id: _Count[str]
    block: _Block

    @property
    def names(self) -> tuple[str, str, str]:
        return self.principal.name, self.client_id.name, self.block.name

    @property
    def held(self) -> int:
        """Its series without those that its address block ceded; a push pays these back."""
        return max(0, self.count.series - self.block.ceded)


def _largest(counts: Iterable[_Count[_Name]], most: int, now: float) -> tuple[SeriesUse[_Name], ...]:
    largest = heapq.nlargest(most, counts, key=lambda count: (count.overflowed, count.series))
    return tuple(count.use(now) for count in largest)
