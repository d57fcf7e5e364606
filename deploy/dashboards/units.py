"""Translates the catalogue's units (UCUM) into Grafana's, with a factor for values."""

from __future__ import annotations

from typing import Final

from receiver.catalogue import Combination, StandardMetric

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
#: Units of totals; Grafana accepts any word after ``count:``.
_COUNTED: Final = {
    "By": "binBps",
    "{request}": "reqps",
    "{operation}": "ops",
    "{batch}": "count:batches/s",
    "{acknowledgement}": "count:acks/s",
}
#: Rare events are counted by the hour, because their rates per second would have many zeros.
_SELDOM: Final = ("{connection}", "{rebalance}", "{error}")
_SELDOM_NAMES: Final = (".error.total", ".retry.total")
#: A total of time per second is the number of clients that spend it at once.
_SECONDS: Final = {"ms": 1e-3, "ns": 1e-9, "s": 1.0}


def unit_of(metric: StandardMetric) -> tuple[str, float]:
    """Return Grafana's id of a metric's unit, and the factor that converts values to it.

    A metric whose deltas add up is drawn as a rate, and a total of time as a number of clients.
    """
    unit = metric.unit or ""
    if metric.combines is Combination.SUM:
        if unit in _SECONDS:
            return "short", _SECONDS[unit]
        word = unit.strip("{}")
        if unit in _SELDOM or metric.name.endswith(_SELDOM_NAMES):
            return f"count:{word}s/h", 3600.0
        return _COUNTED.get(unit, f"count:{word}s/s"), 1.0
    if unit in _UNITS:
        return _UNITS[unit], 1.0
    if not unit or unit.startswith("{"):
        return "short", 1.0
    raise ValueError(f"{metric.name} is in {unit!r}: add Grafana's id of it to {__name__}")
