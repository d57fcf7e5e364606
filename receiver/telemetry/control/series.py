"""Series budgets: how many series clients may have, each, by principal, by site and in all.

Owns the count of who has how many, and who is over. A data point of a push is a series, and what an instance
has are the points of its last push that was taken. It must not look into a push, nor leave anything out.

Only what nobody has is given to an instance that wants more, with one exception, which keeps one peer from
taking the total from all others. A site (an IPv4 address, or an IPv6 network of 48 bits) may always have the
total divided by the number of sites. Where all is taken, the site that has most gives up series for it:
these are counted no longer, and its next pushes give them back. Where a budget was made smaller, those who
push first give back.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from receiver.plugin.shares import Holdings
from receiver.settings.meaning import SeriesSettings
from receiver.telemetry.connection import NOBODY
from receiver.wire.uuid import Uuid

__all__ = ["SeriesBudgets", "SeriesReport", "SeriesUse"]

_Name = TypeVar("_Name")

#: One push takes series from so many sites at most, so that no push pays for many.
_GIVING_AT_A_TIME: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesUse(Generic[_Name]):
    """How many series somebody has.

    Attributes:
        name: Who: a client instance's id, a client id, a principal.
        instances: The client instances that are counted.
        series: The data points of their last pushes that were within budgets.
        overflowed: Those that were not.
        over_for_s: For how many seconds there were some of these; None where there are none.
    """

    name: _Name
    instances: int
    series: int
    overflowed: int
    over_for_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesReport:
    """Who has the most series.

    Attributes:
        budgets: What is allowed.
        total: All client instances together.
        clients: The worst instances, those with the most points over budget first, then the most series.
        client_ids: The same by client id, folded.
        principals: The same by principal.
    """

    budgets: SeriesSettings
    total: SeriesUse[None]
    clients: tuple[SeriesUse[Uuid], ...]
    client_ids: tuple[SeriesUse[str], ...]
    principals: tuple[SeriesUse[str], ...]


class SeriesBudgets:
    """What each client instance has of the series that there may be.

    To be used by one thread at a time. A push costs the same however many instances there are.

    Args:
        settings: The budgets, until :meth:`replace_settings`.
    """

    __slots__ = (
        "_client_ids",
        "_held",
        "_instances",
        "_overflowed_points",
        "_principals",
        "_settings",
        "_sites",
        "_total",
    )

    def __init__(self, settings: SeriesSettings) -> None:
        self._settings = settings
        self._total = _Count(None)
        self._instances: dict[Uuid, _Instance] = {}
        self._principals: dict[str, _Count[str]] = {}
        self._client_ids: dict[str, _Count[str]] = {}
        self._sites: dict[str, _Site] = {}
        # What sites have and have not given up; the total budget is for this.
        self._held: Holdings[str] = Holdings()
        self._overflowed_points = 0

    @property
    def series(self) -> int:
        """The series of all instances, without those that sites gave up."""
        return self._held.total

    @property
    def overflowed_points(self) -> int:
        """Data points over a budget since the start."""
        return self._overflowed_points

    def replace_settings(self, settings: SeriesSettings) -> None:
        """Work with other budgets from the next push of each instance on."""
        self._settings = settings

    def allowed(self, client_instance_id: Uuid, principal: str, site: str) -> int | None:
        """Say how many series an instance may have now.

        Args:
            client_instance_id: The instance; what it has already is not held against it.
            principal: Whose it is.
            site: Where it is (:func:`receiver.plugin.sources.site_of`).

        Returns:
            As many as all budgets leave it; None where there is no budget.
        """
        settings = self._settings
        own = self._instances.get(client_instance_id)
        held = 0 if own is None else own.count.series
        least = settings.max_per_client
        if settings.max_total is not None:
            left = settings.max_total - self._held.total + (0 if own is None else own.held)
            left = max(left, self._fair_share(site) - self._held_by_others_at(site, own))
            least = left if least is None else min(least, left)
        if settings.max_per_principal is not None and principal not in NOBODY:
            left = settings.max_per_principal
            theirs = self._principals.get(principal)
            if theirs is not None:
                left -= theirs.series
                if own is not None and own.principal is theirs:
                    left += held
            least = left if least is None else min(least, left)
        return None if least is None else max(0, least)

    def used(
        self,
        client_instance_id: Uuid,
        *,
        principal: str,
        client_id: str,
        site: str,
        series: int,
        overflowed: int,
        now: float,
    ) -> None:
        """Count the series of a push that was taken, in place of those of the instance's push before.

        Args:
            client_instance_id: The instance; :meth:`forget` has to be called when it is forgotten.
            principal: Whose it is.
            client_id: Its client id, folded.
            site: Where it is (:func:`receiver.plugin.sources.site_of`).
            series: Its data points, as many as were allowed at most.
            overflowed: Its data points that were not.
            now: The time in seconds of a monotonic clock.
        """
        self._overflowed_points += overflowed
        own = self._instances.get(client_instance_id)
        if own is not None and own.names != (principal, client_id, site):
            self.forget(client_instance_id)
            own = None
        if own is None:
            own = self._instances[client_instance_id] = _Instance(
                count=_Count(client_instance_id),
                principal=self._principals.setdefault(principal, _Count(principal)),
                client_id=self._client_ids.setdefault(client_id, _Count(client_id)),
                site=self._sites.setdefault(site, _Site(site)),
            )
            own.site.instances += 1
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
        """Count an instance no longer, if it is counted; others may have its series."""
        own = self._instances.pop(client_instance_id, None)
        if own is None:
            return
        self._replace(own, 0)
        own.site.instances -= 1
        if not own.site.instances:
            del self._sites[own.site.name]
        for count in (own.principal, own.client_id, self._total):
            count.instances -= 1
            count.remove(own.count)
        if not own.principal.instances:
            del self._principals[own.principal.name]
        if not own.client_id.instances:
            del self._client_ids[own.client_id.name]

    def _fair_share(self, site: str) -> int:
        if self._settings.max_total is None:
            return 0
        return self._settings.max_total // (len(self._sites) + (site not in self._sites))

    def _held_by_others_at(self, site: str, own: _Instance | None) -> int:
        """What the other instances of a site have and have not given up."""
        return self._held.of(site) - (own.held if own is not None and own.site.name == site else 0)

    def _replace(self, own: _Instance, series: int) -> None:
        """Count the series of an instance in place of those before, and what it gives back with them."""
        site = own.site
        held = own.held
        site.given_up -= own.count.series - held
        self._held.add(site.name, series - held)

    def _take_from_largest(self) -> None:
        if self._settings.max_total is None:
            return
        for _ in range(_GIVING_AT_A_TIME):
            surplus = self._held.total - self._settings.max_total
            largest = self._held.largest() if surplus > 0 else None
            if largest is None:
                return
            given = min(surplus, self._held.of(largest) - self._fair_share(largest))
            if given <= 0:
                return
            self._sites[largest].given_up += given
            self._held.add(largest, -given)

    def report(self, most: int, now: float) -> SeriesReport:
        """Say who has the most.

        Args:
            most: How many of each kind are named.
            now: The time in seconds of the monotonic clock.
        """
        return SeriesReport(
            budgets=self._settings,
            total=self._total.use(now),
            clients=_worst((own.count for own in self._instances.values()), most, now),
            client_ids=_worst(self._client_ids.values(), most, now),
            principals=_worst(self._principals.values(), most, now),
        )


class _Count(Generic[_Name]):
    """The series of an instance, or of several together."""

    __slots__ = ("_over_since", "instances", "name", "overflowed", "series")

    def __init__(self, name: _Name) -> None:
        self.name: Final = name
        self.instances = 0
        self.series = 0
        self.overflowed = 0
        self._over_since: float | None = None

    def add(self, series: int, overflowed: int, now: float) -> None:
        self.series += series
        self.overflowed += overflowed
        if not self.overflowed:
            self._over_since = None
        elif self._over_since is None:
            self._over_since = now

    def remove(self, other: _Count[Uuid]) -> None:
        self.series -= other.series
        self.overflowed -= other.overflowed
        if not self.overflowed:
            self._over_since = None

    def use(self, now: float) -> SeriesUse[_Name]:
        return SeriesUse(
            name=self.name,
            instances=self.instances,
            series=self.series,
            overflowed=self.overflowed,
            over_for_s=None if self._over_since is None else now - self._over_since,
        )


@dataclass(slots=True)
class _Site:
    """The instances of a site, and how many of their series it gave up and has not given back."""

    name: str
    instances: int = 0
    given_up: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Instance:
    """What is counted of an instance, and with whom."""

    count: _Count[Uuid]
    principal: _Count[str]
    client_id: _Count[str]
    site: _Site

    @property
    def names(self) -> tuple[str, str, str]:
        return self.principal.name, self.client_id.name, self.site.name

    @property
    def held(self) -> int:
        """Its series that count: its site's next push gives back first what the site gave up."""
        return max(0, self.count.series - self.site.given_up)


def _worst(counts: Iterable[_Count[_Name]], most: int, now: float) -> tuple[SeriesUse[_Name], ...]:
    worst = heapq.nlargest(most, counts, key=lambda count: (count.overflowed, count.series))
    return tuple(count.use(now) for count in worst)
