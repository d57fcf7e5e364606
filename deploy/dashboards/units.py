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
    "1/s": "count:/s",
    "1/h": "count:/h",
}
#: What is counted, for totals; Grafana takes any word after ``count:``.
_COUNTED: Final = {
    "By": "binBps",
    "{request}": "reqps",
    "{operation}": "ops",
    "{batch}": "count:batches/s",
    "{acknowledgement}": "count:acks/s",
}
#: What happens so seldom that rates per second would have many zeros.
_SELDOM: Final = ("{connection}", "{rebalance}", "{error}")
#: A total of time per second is how many clients spend theirs on it at a time.
_SECONDS: Final = {"ms": 1e-3, "ns": 1e-9, "s": 1.0}


def unit_of(metric: StandardMetric) -> tuple[str, float]:
    """Grafana's id for the unit in which panels draw a metric, and the factor that gets values there.

    A metric whose deltas add up is drawn as a rate, a total of time as how many clients at a time.

    Raises:
        ValueError: The catalogue has a unit that has no Grafana unit yet.
    """
    unit = metric.unit or ""
    if metric.combines is Combination.SUM:
        if unit in _SECONDS:
            return "short", _SECONDS[unit]
        word = unit.strip("{}")
        if unit in _SELDOM:
            return f"count:{word}s/min", 60.0
        return _COUNTED.get(unit, f"count:{word}s/s"), 1.0
    if unit in _UNITS:
        return _UNITS[unit], 1.0
    if not unit or unit.startswith("{"):
        return "short", 1.0
    raise ValueError(f"{metric.name} is in {unit!r}: add Grafana's id of it to {__name__}")
