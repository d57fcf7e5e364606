"""What an alert rule for Prometheus consists of."""

from __future__ import annotations

from dataclasses import dataclass

from deploy.dashboards.runbooks import runbook_url

__all__ = ["PrometheusRule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusRule:
    """An alert for each series of a PromQL expression that holds for some time."""

    name: str
    expression: str
    lasts: str
    severity: str
    summary: str
    description: str

    def written(self) -> dict[str, object]:
        """Return it as an entry of a rule file."""
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": self.lasts,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": runbook_url(self.name),
            },
        }
