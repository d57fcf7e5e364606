"""Alert rules in a real Prometheus, on series that a test makes up minute by minute."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import yaml

from plugins.prometheus.config import RemoteWriteConfig
from plugins.prometheus.lines import LabelSet
from plugins.prometheus.messages import Sample, number_sample, stale_sample, time_field
from plugins.prometheus.names import MetricName, MetricType
from plugins.prometheus.remote_write import RemoteWriter
from tests.testbed.dashboard_queries import CHART
from tests.testbed.prometheus import Prometheus

#: Scrapes and evaluations come once a minute. Alerts are asked for once their longest look back has
#: samples.
MINUTES: Final = range(150)
ASKED: Final = MINUTES[70:]
#: When something happens: it is over an hour later, before the end.
EVENT: Final = 80
NOW_S: Final = time.time() // 60 * 60
DAY_S: Final = 86400
_MOST_SAMPLES: Final = 50_000
STARTED: Final = "process_start_time_seconds"

#: A series' value in a minute; None: it is not there.
Value = Callable[[int], float | None]
#: What a process shows, by series as PromQL writes them.
Shown = dict[str, Value]
#: By case and alert: the minutes in which it fired.
Fired = dict[str, dict[str, set[int]]]


def rules(group: str) -> dict[str, dict[str, Any]]:
    """The rules of a group of the chart's file, by name."""
    groups = yaml.safe_load((CHART / "alerts" / "prometheus-rules.yaml").read_text())["groups"]
    (found,) = (item["rules"] for item in groups if item["name"] == f"kafka-client-telemetry-{group}")
    return {rule["alert"]: rule for rule in found}


def at_s(minute: int) -> float:
    """When a minute was, in seconds since the epoch."""
    return NOW_S - 60 * (MINUTES[-1] - minute)


def always(value: float) -> Value:
    """A value that never changes."""
    return lambda _: value


def changes(before: float | None, after: float | None) -> Value:
    """A value that changes with the event."""
    return lambda minute: before if minute < EVENT else after


def grows(minute: int) -> float:
    """A counter that counts something each minute."""
    return minute


def grows_from_then_on(minute: int) -> float:
    """A counter that counts something each minute since the event."""
    return max(0, minute - EVENT)


def but_at(gone: range, value: Value) -> Value:
    """A series that is not there in some minutes."""
    return lambda minute: None if minute in gone else value(minute)


def unscraped(gone: range, shown: Shown) -> Shown:
    """Scrapes fail in these minutes."""
    return {name: but_at(gone, value) for name, value in shown.items()} | {
        "up": lambda minute: float(minute not in gone)
    }


def fired(cases: Mapping[str, Shown], asked: Mapping[str, Mapping[str, Any]]) -> Fired:
    """Write all cases into a Prometheus, and ask when each rule fires for which of them."""
    found: Fired = {what: {} for what in cases}
    with Prometheus() as prometheus:
        writer = RemoteWriter(RemoteWriteConfig(url=prometheus.write_url, version="1.0"))
        writer.open()
        samples = list(_samples(cases))
        for begin in range(0, len(samples), _MOST_SAMPLES):  # a request may have 32 MiB
            assert writer.write(samples[begin : begin + _MOST_SAMPLES]) is None
        writer.close()
        for name, rule in asked.items():
            lasts = _minutes(rule["for"])
            series = prometheus.times(rule["expr"], start_s=at_s(ASKED[0]), end_s=at_s(ASKED[-1]), step_s=60)
            for labels, times_s in series:
                there = {round((item - at_s(0)) / 60) for item in times_s}
                fires = {item for item in there if there.issuperset(range(item - lasts, item))}
                if fires:
                    found[labels["job"]].setdefault(name, set()).update(fires)
    return found


def _samples(cases: Mapping[str, Shown]) -> Iterator[Sample]:
    """All cases' samples, each case as a job, in the order of time."""
    unit = MetricName(name="", type=MetricType.GAUGE, unit="")
    series = []
    for what, shown in cases.items():
        for name, value in shown.items():
            labels = [*re.findall(r'(\w+)="([^"]*)"', name), ("job", what), ("instance", "process:8080")]
            series.append((name.partition("{")[0], LabelSet(tuple(sorted(labels))), value))
    for minute in MINUTES:
        time_ms = round(1000 * at_s(minute))
        for name, label_set, value in series:
            if (now := value(minute)) is not None:
                sample = number_sample(now, time_field(time_ms))
            elif minute and value(minute - 1) is not None:
                sample = stale_sample("1.0", time_ms=time_ms, native=False)
            else:
                continue
            yield (name, label_set, unit, ""), sample


def _minutes(duration: str) -> int:
    """Minutes of a duration of Prometheus's, of one unit."""
    return int(duration[:-1]) * {"m": 1, "h": 60}[duration[-1]]
