"""CPU time of plugins is charged to connections."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from receiver.host.delivery.cpu_account import CpuAccount
from receiver.host.delivery.observed_export import ObservedExport
from receiver.host.delivery.statistics import Tally
from receiver.host.failure_log import FailureLog
from receiver.host.redaction import Redaction
from receiver.plugin import ExportResult, Push, RetryableError
from receiver.settings.limits import LimitsSettings
from receiver.telemetry.control.limits import LimitName, Limits
from receiver.telemetry.control.plugin_time import PluginTime
from tests.unit.host.support import Single, push
from tests.unit.telemetry.parts import connection


def test_time_is_shared_by_bytes_and_taken_once() -> None:
    account = CpuAccount()
    account.add([push(1, size=99), push(2, size=299)], 4.0)
    account.add([push(1, size=0)], 0.5)
    assert account.take() == {"1": 1.5, "2": 3.0}
    assert account.take() == {}
    account.add([], 1.0)
    assert account.take() == {}


@pytest.mark.parametrize("refuses", [False, True])
def test_an_export_is_charged_by_cpu_time_unless_the_destination_is_away(refuses: bool) -> None:
    away = [False, refuses, refuses]

    def export(_: Sequence[Push]) -> ExportResult | None:
        began = time.thread_time()
        while time.thread_time() - began < 0.02:
            pass
        time.sleep(0.2)
        if away.pop(0):
            raise RetryableError("away")
        return None

    account = CpuAccount()
    plugin = Single(export)
    log = FailureLog("p", clock=time.monotonic)
    observed = ObservedExport(plugin, tally=Tally(), log=log, redaction=Redaction(plugin.config), cpu=account)
    observed([push(1)])
    assert account.take() == {}, "no client causes what a plugin does once"
    observed([push(7)])
    taken = account.take()
    if refuses:
        assert taken == {}
    else:
        assert set(taken) == {"7"}
        assert 0.02 <= taken["7"] < 0.15, "CPU time, not the time that it slept"


def test_peers_pay_for_their_pushes_also_after_their_connection_has_ended() -> None:
    limits = Limits(LimitsSettings())
    plugin_time = PluginTime(limits)
    hostile = connection(id="h", source_address="10.6.6.6")
    innocent = connection(id="i", source_address="10.0.0.7")
    for item in (hostile, innocent):
        plugin_time.identified(item)
    plugin_time.closed(hostile.id)
    plugin_time.charge({"h": 10.0, "i": 0.001, "gone": 5.0}, 0.0)
    exceeded = limits.telemetry_request(connection(source_address="10.6.6.6"), 0.0)
    assert exceeded is not None
    assert exceeded.limit is LimitName.CORE_TIME
    assert limits.telemetry_request(innocent, 0.0) is None
