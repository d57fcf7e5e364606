"""Owns the shape of queries: the data sources that dashboards ask, and what Grafana keeps of a query.

It knows Grafana and no metric; what is asked of a database comes from the callers.
"""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import prometheus as prometheus_models
from grafana_foundation_sdk.models.dashboard import DataSourceRef

__all__ = ["POSTGRES", "PROMETHEUS", "Sql", "promql"]

POSTGRES: Final = DataSourceRef(type_val="grafana-postgresql-datasource", uid="${postgres}")
PROMETHEUS: Final = DataSourceRef(type_val="prometheus", uid="${prometheus}")


class Sql(Dataquery, Builder[Dataquery]):
    """A query of the PostgreSQL data source in SQL, which the SDK has no type for."""

    def __init__(self, sql: str, *, over_time: bool, ref_id: str = "A") -> None:
        self._sql = sql
        self._format = "time_series" if over_time else "table"
        self._ref_id = ref_id

    def build(self) -> Sql:
        """What this is already."""
        return self

    def to_json(self) -> dict[str, object]:
        """What Grafana keeps of it."""
        return {
            "datasource": POSTGRES,
            "editorMode": "code",
            "format": self._format,
            "rawQuery": True,
            "rawSql": self._sql,
            "refId": self._ref_id,
        }


def promql(expression: str, legend: str, *, ref_id: str = "A", instant: bool = False) -> Builder[Dataquery]:
    """A query of Prometheus.

    Args:
        expression: It, in PromQL.
        legend: How a series is named: ``{{label}}``.
        ref_id: Its letter.
        instant: Only the newest value, for tables and numbers.
    """
    query = (
        prometheus.Dataquery()
        .datasource(PROMETHEUS)
        .editor_mode(prometheus_models.QueryEditorMode.CODE)
        .expr(expression)
        .legend_format(legend)
        .ref_id(ref_id)
    )
    if instant:
        return query.instant().format(prometheus_models.PromQueryFormat.TABLE)
    return query.range()
