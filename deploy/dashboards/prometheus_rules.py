"""The rule file for Prometheus: a group for the receiver and one for the roll-up."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.receiver_alerts import RECEIVER_RULES
from deploy.dashboards.rollup_process_alerts import ROLLUP_RULES

#: By name: the rules, the dashboard that shows more, and its variables. The roll-up's own metrics
#: have no dashboard, but the banner of all others says how current they are.
_GROUPS: Final = {
    "kafka-client-telemetry-receiver": (RECEIVER_RULES, "kct-receiver", ("job", "instance")),
    "kafka-client-telemetry-rollup": (ROLLUP_RULES, "kct-fleet", ()),
}


def prometheus_rules() -> dict[str, object]:
    """Return the rule file for Prometheus."""
    return {
        "groups": [
            {"name": name, "rules": [rule.written(dashboard, by=by) for rule in rules]}
            for name, (rules, dashboard, by) in _GROUPS.items()
        ]
    }
