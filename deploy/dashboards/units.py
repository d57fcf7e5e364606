"""Owns how the catalogue's units (UCUM) become Grafana's, and what values have to be multiplied by."""

from __future__ import annotations

from typing import Final

from receiver.catalogue import Combination, StandardMetric

__all__ = ["unit_of"]

_UNITS: Final = {
    "ms": "ms",
    "ns": "ns",
    "s": "s",
    "By": "bytes",
    "By/s": "binBps",
    "1": "percentunit",
    "1/s": "cps",
    "1/h": "short",
    "{request}/s": "reqps",
    "{operation}/s": "ops",
}
#: A total of time per second of time is a share of it; Grafana's unit for that is a ratio.
_SECONDS: Final = {"ms": 1e-3, "ns": 1e-9, "s": 1.0}


def unit_of(metric: StandardMetric) -> tuple[str, float]:
    """Grafana's id for the unit in which panels draw a metric, and the factor that gets values there.

    A metric whose deltas add up is drawn as a rate per second.

    Raises:
        ValueError: The catalogue has a unit that has no Grafana unit yet.
    """
    unit = metric.unit or ""
    if metric.combines is Combination.SUM:
        if unit in _SECONDS:
            return "percentunit", _SECONDS[unit]
        return _UNITS.get(f"{unit}/s", "cps"), 1.0
    if unit in _UNITS:
        return _UNITS[unit], 1.0
    if not unit or unit.startswith("{"):
        return "short", 1.0
    raise ValueError(f"{metric.name} is in {unit!r}: add Grafana's id of it to {__name__}")
