"""CPU time of plugins is charged to the connections whose pushes used it."""

from __future__ import annotations

import pytest

from receiver.settings.limits import LimitsSettings
from receiver.telemetry.control.limits import LimitName, Limits
from receiver.telemetry.control.plugin_time import PluginTime
from tests.unit.telemetry.parts import connection


def test_time_is_charged_to_open_connections_and_to_the_latest_that_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("receiver.telemetry.control.plugin_time._MAX_CLOSED", 2)
    limits = Limits(LimitsSettings())
    plugin_time = PluginTime(limits)
    connections = [connection(id=f"c{number}", source_address=f"10.0.0.{number}") for number in range(4)]
    for item in connections:
        plugin_time.identified(item)
    for item in connections[:3]:
        plugin_time.closed(item.id)
    plugin_time.charge({item.id: 10.0 for item in connections}, 0.0)
    charged = [limits.over(LimitName.CORE_TIME, item, 0.0) is not None for item in connections]
    assert charged == [False, True, True, True], "the first that closed is forgotten"


def test_a_connection_that_was_never_open_is_not_kept() -> None:
    limits = Limits(LimitsSettings())
    plugin_time = PluginTime(limits)
    refused = connection()
    plugin_time.closed(refused.id)
    plugin_time.charge({refused.id: 10.0}, 0.0)
    assert limits.over(LimitName.CORE_TIME, refused, 0.0) is None
