"""Queries of Grafana's data sources.

They know Grafana, and no metric: the callers write SQL and PromQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import prometheus as prometheus_models
from grafana_foundation_sdk.models.dashboard import AnnotationQuery, DataSourceRef

#: The uids of the data sources. Dashboards prefer them; alert rules need the first, because a rule
#: can't use a variable.
POSTGRES_UID: Final = "kafka-client-telemetry-postgres"
PROMETHEUS_UID: Final = "kafka-client-telemetry-prometheus"

POSTGRES: Final = DataSourceRef(type_val="grafana-postgresql-datasource", uid="${postgres}")
PROMETHEUS: Final = DataSourceRef(type_val="prometheus", uid="${prometheus}")


class Sql(Dataquery, Builder[Dataquery]):
    """A SQL query of the PostgreSQL data source, for which the SDK has no type."""

    def __init__(self, sql: str, *, over_time: bool, ref_id: str = "A") -> None:
        self._sql = sql
        self._format = "time_series" if over_time else "table"
        self._ref_id = ref_id

    def build(self) -> Sql:
        """Return the query itself."""
        return self

    def to_json(self) -> dict[str, object]:
        """Return the query's JSON in a dashboard."""
        return {
            "datasource": POSTGRES,
            "editorMode": "code",
            "format": self._format,
            "rawQuery": True,
            "rawSql": self._sql,
            "refId": self._ref_id,
        }


class Mark(AnnotationQuery, Builder[AnnotationQuery]):
    """Marks on all lines, from SQL with the columns time, text and tags.

    The SDK has no type for SQL.
    """

    def __init__(self, name: str, sql: str, *, colour: str) -> None:
        super().__init__(name=name, datasource=POSTGRES, enable=True, icon_color=colour)
        self._sql = Sql(sql, over_time=False, ref_id=name)

    def build(self) -> Mark:
        """Return the marks themselves."""
        return self

    def to_json(self) -> dict[str, object]:
        """Return the JSON of the annotation in a dashboard."""
        return {**super().to_json(), "target": self._sql.to_json()}


def promql(expression: str, legend: str, *, ref_id: str = "A", instant: bool = False) -> Builder[Dataquery]:
    """Build a PromQL query; an instant one returns only the newest value."""
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


def promql_by_legend(expressions: Mapping[str, str]) -> list[Builder[Dataquery]]:
    """Build a PromQL query for each expression, by legend."""
    return [
        promql(expression, legend, ref_id=chr(ord("A") + index))
        for index, (legend, expression) in enumerate(expressions.items())
    ]
