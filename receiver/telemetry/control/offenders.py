"""Client instances that push too much, and are asked for less until they don't.

Owns who is narrowed, how far, why and for how long. It must not know what was pushed nor what is answered: an
instance learns of it as of any change of what it is asked, by its subscription id.

The rule, with the settings' names: ``max_too_large`` pushes in a row that were refused as too large are an
offence, and so are more than ``max_bytes_per_minute`` inflated bytes in a minute. Each offence narrows one
step further: to the standard metrics, then to nothing. Each step is taken back when the instance was without
offence for ``relax_after_s``; for twice as long after the next offence, and so on up to sixteen times.
Without offence for that long while asked for everything, it begins anew.

It is needed because a Java client ignores TelemetryMaxBytes and repeats a push that is too large for ever.
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

__all__ = ["STANDARD_METRICS", "Demand", "Narrowed", "Offence", "Offenders"]

#: What KIP-714 requires of every client ("Standard producer metrics", "Standard consumer metrics"), sorted.
STANDARD_METRICS: Final = tuple(sorted(metric.name for metric in CATALOGUE if metric.required))

_MINUTE_S: Final = 60.0
_MOST_TIMES_AS_LONG: Final = 16


class Demand(IntEnum):
    """How much of what subscriptions want an instance is asked for."""

    EVERYTHING = 0
    STANDARD_METRICS = 1
    NOTHING = 2

    def prefixes(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """Say what to ask for in place of these prefixes of metric names, sorted."""
        if self is Demand.EVERYTHING:
            return wanted
        return tuple(sorted(common_prefixes(wanted, STANDARD_METRICS))) if self is not Demand.NOTHING else ()


class Offence(StrEnum):
    """What an instance is narrowed for."""

    TOO_LARGE = "too_large"
    BYTES_PER_MINUTE = "bytes_per_minute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """What an instance is asked for less than its subscriptions say, and why.

    Attributes:
        demand: What it is asked for.
        offence: Its last offence.
        relaxes_in_s: In how many seconds it is asked for more, if it is without offence until then.
    """

    demand: Demand
    offence: Offence
    relaxes_in_s: float


class Offenders:
    """The instances that have offended, or may.

    To be used by one thread at a time. Where back-pressure is not enabled, nobody is narrowed.

    Args:
        settings: The rule's numbers, until :meth:`replace_settings`.
    """

    __slots__ = ("_narrowings", "_offenders", "_relaxations", "_settings")

    def __init__(self, settings: BackPressureSettings) -> None:
        self._settings = settings
        self._offenders: dict[Uuid, _Offender] = {}
        self._narrowings = Counter[Offence]()
        self._relaxations = 0

    @property
    def narrowed(self) -> Mapping[Demand, int]:
        """How many instances are asked for less now, by what they are asked for."""
        narrowed = Counter(offender.demand for offender in self._offenders.values())
        return {demand: narrowed[demand] for demand in Demand if demand}

    @property
    def narrowings(self) -> Mapping[Offence, int]:
        """How many offences there were, by kind."""
        return {offence: self._narrowings[offence] for offence in Offence}

    @property
    def relaxations(self) -> int:
        """How many steps were taken back because an instance was long enough without offence."""
        return self._relaxations

    def replace_settings(self, settings: BackPressureSettings) -> None:
        """Work with other numbers from now on; where it is no longer enabled, every offence is forgotten."""
        self._settings = settings
        if not settings.enabled:
            self._offenders.clear()

    def demand(self, client_instance_id: Uuid, now: float) -> Demand:
        """Say how much to ask an instance for.

        Args:
            client_instance_id: The instance.
            now: The time in seconds of a monotonic clock.
        """
        offender = self._offenders.get(client_instance_id)
        if offender is None:
            return Demand.EVERYTHING
        while offender.demand and now >= offender.relaxes_at:
            offender.demand = Demand(offender.demand - 1)
            self._relaxations += 1
            offender.relaxes_at += offender.relax_after_s
        return offender.demand

    def pushed(self, client_instance_id: Uuid, inflated_bytes: int, now: float, *, too_large: bool) -> None:
        """Count a push that was looked into.

        Args:
            client_instance_id: The instance; :meth:`forget` has to be called when it is forgotten.
            inflated_bytes: As far as it was inflated.
            now: The time in seconds of the monotonic clock.
            too_large: Whether it was refused as too large.
        """
        settings = self._settings.offenders
        offender = self._offenders.get(client_instance_id)
        if not self._settings.enabled or (
            offender is None and not too_large and settings.max_bytes_per_minute is None
        ):
            return
        if offender is None:
            offender = self._offenders[client_instance_id] = _Offender(now)
        offender.too_large = offender.too_large + 1 if too_large else 0
        if now - offender.minute_began_at >= _MINUTE_S:
            offender.minute_began_at = now
            offender.bytes_in_minute = 0
        offender.bytes_in_minute += inflated_bytes
        if offender.too_large >= settings.max_too_large:
            self._narrow(offender, Offence.TOO_LARGE, now)
        elif (
            settings.max_bytes_per_minute is not None
            and offender.bytes_in_minute > settings.max_bytes_per_minute
        ):
            self._narrow(offender, Offence.BYTES_PER_MINUTE, now)
        elif too_large and offender.demand:
            offender.relaxes_at = now + offender.relax_after_s

    def forget(self, client_instance_id: Uuid) -> None:
        """Remember nothing of an instance any more."""
        self._offenders.pop(client_instance_id, None)

    def explain(self, client_instance_id: Uuid, now: float) -> Narrowed | None:
        """Say why an instance is asked for less; None where it is not.

        Args:
            client_instance_id: The instance.
            now: The time in seconds of the monotonic clock.
        """
        offender = self._offenders.get(client_instance_id)
        if offender is None or offender.offence is None or not offender.demand:
            return None
        return Narrowed(
            demand=offender.demand,
            offence=offender.offence,
            relaxes_in_s=max(0.0, offender.relaxes_at - now),
        )

    def _narrow(self, offender: _Offender, offence: Offence, now: float) -> None:
        first_s = self._settings.offenders.relax_after_s
        again = offender.offence is not None and (offender.demand or now < offender.relaxes_at)
        relax_after_s = 2 * offender.relax_after_s if again else first_s
        offender.relax_after_s = min(relax_after_s, _MOST_TIMES_AS_LONG * first_s)
        offender.relaxes_at = now + offender.relax_after_s
        offender.offence = offence
        offender.too_large = offender.bytes_in_minute = 0
        offender.minute_began_at = now
        self._narrowings[offence] += 1
        offender.demand = Demand(min(offender.demand + 1, Demand.NOTHING))


class _Offender:
    """One instance; while it is asked for everything, ``relaxes_at`` is when its offences are forgotten."""

    __slots__ = (
        "bytes_in_minute",
        "demand",
        "minute_began_at",
        "offence",
        "relax_after_s",
        "relaxes_at",
        "too_large",
    )

    def __init__(self, now: float) -> None:
        self.demand = Demand.EVERYTHING
        self.offence: Offence | None = None
        self.too_large = 0
        self.minute_began_at = now
        self.bytes_in_minute = 0
        self.relax_after_s = 0.0
        self.relaxes_at = now
