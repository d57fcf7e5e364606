"""The rule file for Prometheus: a group for the receiver and one for the roll-up."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.receiver_alerts import RECEIVER_RULES
from deploy.dashboards.rollup_process_alerts import ROLLUP_RULES

__all__ = ["prometheus_rules"]

#: By name: the rules, and the dashboard of their metrics.
_GROUPS: Final = {
    "kafka-client-telemetry-receiver": (RECEIVER_RULES, "kct-receiver"),
    "kafka-client-telemetry-rollup": (ROLLUP_RULES, None),
}


def prometheus_rules() -> dict[str, object]:
    """Return the rule file for Prometheus."""
    return {
        "groups": [
            {"name": name, "rules": [rule.written(dashboard) for rule in rules]}
            for name, (rules, dashboard) in _GROUPS.items()
        ]
    }
