"""What an alert rule for Prometheus consists of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from deploy.dashboards.runbooks import runbook_url


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusRule:
    """An alert for each series of a PromQL expression that holds for some time."""

    name: str
    expression: str
    lasts: str = "0m"
    severity: str = "warning"
    summary: str
    description: str

    def written(self, dashboard: str, *, by: Collection[str]) -> dict[str, object]:
        """Return an entry of a rule file; ``by`` are variables of the dashboard too."""
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": self.lasts,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": runbook_url(self.name),
                # Below Grafana's address, which Prometheus does not know.
                "dashboard_path": self._path(dashboard, by),
            },
        }

    def _path(self, dashboard: str, by: Collection[str]) -> str:
        has = [label for label in by if "sum by" not in self.expression or label in self.expression]
        chosen = "".join(f"&var-{label}={{{{ urlquery .Labels.{label} }}}}" for label in has)
        return f"/d/{dashboard}?from=now-6h&to=now{chosen}"
