"""Reduces the subscriptions of client instances that push too much.

Owns which instances are reduced, how far, why and for how long. An instance learns of it as of any
change of its subscription, by a new subscription id.

The rule, by settings: an offence is ``max_too_large`` pushes in a row that were too large, or more
than ``max_bytes_per_minute`` inflated bytes in a minute. Each offence reduces the instance by one
step: to the standard metrics, then to nothing. After ``relax_after_s`` without an offence, one step
is taken back. Each new offence doubles that time, up to sixteen times. It is reset after an
instance that is no longer reduced had no offence for as long.

It exists because a Java client ignores TelemetryMaxBytes and repeats a too large push for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from receiver.catalogue import CATALOGUE
from receiver.settings.backpressure import BackPressureSettings
from receiver.telemetry.quirks import common_prefixes
from receiver.wire.uuid import Uuid

#: Metrics that KIP-714 requires ("Standard producer metrics", "Standard consumer metrics"), sorted.
STANDARD_METRICS: Final = tuple(sorted(metric.name for metric in CATALOGUE if metric.required))

_MINUTE_S: Final = 60.0
_MAX_RELAX_MULTIPLIER: Final = 16


class Demand(IntEnum):
    """The part of its subscriptions that an instance is asked for."""

    EVERYTHING = 0
    STANDARD_METRICS = 1
    NOTHING = 2

    def prefixes(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """Narrow the prefixes of metric names; the result is sorted."""
        if self is Demand.EVERYTHING:
            return wanted
        if self is Demand.NOTHING:
            return ()
        return tuple(sorted(common_prefixes(wanted, STANDARD_METRICS)))


class Offence(StrEnum):
    """The reason why an instance is reduced."""

    TOO_LARGE = "too_large"
    BYTES_PER_MINUTE = "bytes_per_minute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """The state of a reduced instance."""

    demand: Demand
    offence: Offence  # the last one
    relaxes_in_s: float  # until one step is taken back, if there is no other offence


class Offenders:
    """Counts offences of client instances. Not thread-safe.

    No instance is reduced while ``telemetry.backpressure`` is disabled. In all methods, ``now`` is
    monotonic seconds.

    Attributes:
        reductions: How many offences there were since the start, by kind.
        relaxations: How many steps were taken back since the start.
    """

    def __init__(self, settings: BackPressureSettings) -> None:
        self._settings = settings
        self._offenders: dict[Uuid, _Offender] = {}
        self.reductions = dict.fromkeys(Offence, 0)
        self.relaxations = 0

    @property
    def reduced(self) -> Mapping[Demand, int]:
        """How many instances are reduced now, by demand."""
        reduced = Counter(offender.demand for offender in self._offenders.values())
        return {demand: reduced[demand] for demand in Demand if demand}

    def replace_settings(self, settings: BackPressureSettings) -> None:
        """Replace the settings; disabling back-pressure forgets every offence."""
        self._settings = settings
        if not settings.enabled:
            self._offenders.clear()

    def demand(self, client_instance_id: Uuid, now: float) -> Demand:
        """Return the demand of an instance, after the steps that are due are taken back."""
        offender = self._offenders.get(client_instance_id)
        if offender is None:
            return Demand.EVERYTHING
        while offender.demand and now >= offender.relaxes_at:
            offender.demand = Demand(offender.demand - 1)
            self.relaxations += 1
            offender.relaxes_at += offender.relax_after_s
        return offender.demand

    def record_push(
        self, client_instance_id: Uuid, inflated_bytes: int, now: float, *, too_large: bool
    ) -> None:
        """Count an inflated push. Call :meth:`forget` when the core forgets the instance."""
        settings = self._settings.offenders
        offender = self._offenders.get(client_instance_id)
        if not self._settings.enabled or (
            offender is None and not too_large and settings.max_bytes_per_minute is None
        ):
            return
        if offender is None:
            offender = self._offenders[client_instance_id] = _Offender(now, now)
        offender.too_large = offender.too_large + 1 if too_large else 0
        if now - offender.minute_began_at >= _MINUTE_S:
            offender.minute_began_at = now
            offender.bytes_in_minute = 0
        offender.bytes_in_minute += inflated_bytes
        if offender.too_large >= settings.max_too_large:
            self._reduce(offender, Offence.TOO_LARGE, now)
        elif (
            settings.max_bytes_per_minute is not None
            and offender.bytes_in_minute > settings.max_bytes_per_minute
        ):
            self._reduce(offender, Offence.BYTES_PER_MINUTE, now)
        elif too_large and offender.demand:
            offender.relaxes_at = now + offender.relax_after_s

    def forget(self, client_instance_id: Uuid) -> None:
        """Forget an instance."""
        self._offenders.pop(client_instance_id, None)

    def explain(self, client_instance_id: Uuid, now: float) -> Reduced | None:
        """Return why an instance is reduced; None when it is not."""
        offender = self._offenders.get(client_instance_id)
        if offender is None or offender.offence is None or not offender.demand:
            return None
        return Reduced(
            demand=offender.demand,
            offence=offender.offence,
            relaxes_in_s=max(0.0, offender.relaxes_at - now),
        )

    def _reduce(self, offender: _Offender, offence: Offence, now: float) -> None:
        first_s = self._settings.offenders.relax_after_s
        repeated = offender.offence is not None and (offender.demand or now < offender.relaxes_at)
        relax_after_s = 2 * offender.relax_after_s if repeated else first_s
        offender.relax_after_s = min(relax_after_s, _MAX_RELAX_MULTIPLIER * first_s)
        offender.relaxes_at = now + offender.relax_after_s
        offender.offence = offence
        offender.too_large = offender.bytes_in_minute = 0
        offender.minute_began_at = now
        self.reductions[offence] += 1
        offender.demand = Demand(min(offender.demand + 1, Demand.NOTHING))


@dataclass(slots=True)
class _Offender:
    """One instance. At full demand, its offences are forgotten at ``relaxes_at``."""

    minute_began_at: float
    relaxes_at: float
    demand: Demand = Demand.EVERYTHING
    offence: Offence | None = None
    too_large: int = 0
    bytes_in_minute: int = 0
    relax_after_s: float = 0.0
