"""Each delivery mode loses at most what docs/delivery.md allows after crashes.

A short form of ``make soak``.
"""

from __future__ import annotations

from receiver.wire.error_codes import ErrorCode
from tests.soak.delivery import MODES, Plan, run
from tests.testbed.broker import KafkaBroker

_PLAN = Plan(seconds=20, clients=10, kills=3, up_s=(1.0, 4.0), down_s=(1.0, 4.0), seed=714, pushes=300)


def test_no_delivery_mode_loses_more_than_documented(broker: KafkaBroker) -> None:
    outcome = run(broker, _PLAN)
    assert len(outcome.kills) == _PLAN.kills
    assert all(outcome.collector_kills[mode] for mode in MODES)
    assert outcome.accepted >= _PLAN.pushes
    # While the core starts again, its relays throttle.
    assert outcome.refused.keys() <= {ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    assert {mode: outcome.unexplained(mode) for mode in MODES} == {mode: [] for mode in MODES}
    assert outcome.arrived["spool_always"] == outcome.accepted
