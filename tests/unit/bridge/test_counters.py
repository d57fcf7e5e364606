"""The bridge's counters have the same names in JMX, in the frame, in /metrics and on the pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from receiver.bridge.frames import STATISTICS
from receiver.metrics.bridge_metrics import BridgeMetrics

_ROOT: Final = Path(__file__).parents[3]
_JAVA: Final = _ROOT / "plugins" / "broker_bridge" / "src" / "kafkaclienttelemetry" / "bridge"
#: What is not a counter of pushes: gauges, which have metrics of their own, and what no page shows.
_NO_EVENTS: Final = {"unreadable_details", "queue_items", "queue_bytes", "connected"}


def _attributes() -> list[str]:
    """The attributes of the MBean, in the order of its interface."""
    interface = (_JAVA / "BridgeMetricsMBean.java").read_text("utf-8")
    return re.findall(r"^ +(?:long|int) get(\w+)\(\);$", interface, re.MULTILINE)


def _in_the_frame(attribute: str) -> str:
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", attribute).lower()
    return words.replace("queued_", "queue_")


def test_the_frame_has_the_attributes_of_the_mbean_in_order() -> None:
    (body,) = re.findall(
        r"long\[\] values\(\) \{(.*?)\};", (_JAVA / "BridgeMetrics.java").read_text("utf-8"), re.DOTALL
    )
    sent = re.findall(r"get(\w+)\(\)", body)
    assert sent == _attributes()
    assert tuple(map(_in_the_frame, sent)) == STATISTICS


def test_the_pages_name_them() -> None:
    page = " ".join((_ROOT / "docs" / "bridge.md").read_text("utf-8").split())
    listed = ", ".join(f"`{attribute}`" for attribute in _attributes())
    assert listed in page
    (row,) = (
        line
        for line in (_ROOT / "docs" / "receiver-metrics.md").read_text("utf-8").splitlines()
        if "`kafka_telemetry_bridge_events_total`" in line
    )
    events = [name for name in STATISTICS if name not in _NO_EVENTS]
    assert ", ".join(f"`{event}`" for event in events) in row


def test_the_receiver_shows_each_counter_of_pushes() -> None:
    metrics = BridgeMetrics()
    metrics.joined(1, 3)
    metrics.reported(1, bytes(16), {name: number for number, name in enumerate(STATISTICS, start=1)})
    shown = {
        sample.labels["event"]: sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.name == "kafka_telemetry_bridge_events_total"
    }
    assert shown == {
        name: number for number, name in enumerate(STATISTICS, start=1) if name not in _NO_EVENTS
    }
