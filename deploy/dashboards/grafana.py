"""Builders for dashboards: variables, links and rows.

They know Grafana, and no metric: the callers write the queries.
"""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as models

from deploy.dashboards.panels import Panel
from deploy.dashboards.queries import POSTGRES, POSTGRES_UID, PROMETHEUS_UID, Mark

_TAG: Final = "kafka-client-telemetry"


def choice(
    name: str,
    label: str,
    description: str,
    query: str,
    *,
    several: bool = True,
    hidden: bool = False,
    all_value: str | None = "NULL",
) -> dashboard.QueryVariable:
    """Build a variable from SQL with the columns ``__text`` and ``__value``.

    ``several``: several values or all may be chosen, and all are at first. ``all_value`` is what
    queries get for "All"; None: the list of all values.
    """
    variable = (
        dashboard.QueryVariable(name)
        .label(label)
        .description(description)
        .datasource(POSTGRES)
        .query(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.DISABLED)
        .multi(several)
        .include_all(several)
    )
    if hidden:
        variable = variable.hide(models.VariableHide.HIDE_VARIABLE)
    if several:
        everything = models.VariableOption(selected=True, text=["All"], value=["$__all"])
        variable = variable.current(everything)
        if all_value is not None:
            variable = variable.all_value(all_value)
    return variable


class Dashboard:
    """A dashboard; panels are added from left to right and from top to bottom."""

    def __init__(self, uid: str, title: str, description: str, *, start: str = "now-6h") -> None:
        self._builder = (
            dashboard.Dashboard(title)
            .uid(uid)
            .description(description)
            .tags([_TAG])
            .readonly()
            .refresh("1m")
            .time(start, "now")
            .timezone("browser")
            .tooltip(models.DashboardCursorSync.CROSSHAIR)
            .link(
                dashboard.DashboardLink("Client telemetry")
                .type(models.DashboardLinkType.DASHBOARDS)
                .tags([_TAG])
                .as_dropdown(as_dropdown=True)
                .keep_time(keep_time=True)
                .include_vars(include_vars=True)
                .icon("external link")
                .tooltip("The other dashboards, with this time range and these choices")
            )
        )
        self._panels = 0

    def sources(self, *, postgres: bool = True, prometheus: bool = False) -> Dashboard:
        """Add the variables of the data sources: the roll-up's, and Prometheus of the receiver."""
        if postgres:
            self._builder.with_variable(
                dashboard.DatasourceVariable("postgres")
                .label("PostgreSQL")
                .description("Where the roll-up keeps its tables")
                .type("grafana-postgresql-datasource")
                # Without it Grafana takes the first by name of several data sources.
                .current(
                    models.VariableOption(selected=True, text="Kafka client telemetry", value=POSTGRES_UID)
                )
            )
        if prometheus:
            self._builder.with_variable(
                dashboard.DatasourceVariable("prometheus")
                .label("Prometheus")
                .description("What scrapes the receivers' /metrics")
                .type("prometheus")
                .current(models.VariableOption(selected=True, text="Prometheus", value=PROMETHEUS_UID))
            )
        return self

    def resolution(self) -> Dashboard:
        """Add the variable of the shortest step of lines."""
        words = ["1m", "5m", "15m", "1h"]
        self._builder.with_variable(
            dashboard.CustomVariable("resolution")
            .label("At least")
            .description(
                "The shortest step of lines. Totals are pushed once in a push interval (5 minutes unless a "
                "subscription says else): in shorter steps one client's rate has peaks and holes."
            )
            .values(",".join(words))
            .multi(multi=False)
            .include_all(include_all=False)
            .options([models.VariableOption(selected=word == "5m", text=word, value=word) for word in words])
            .current(models.VariableOption(selected=True, text="5m", value="5m"))
        )
        return self

    def variables(self, *variables: Builder[models.VariableModel]) -> Dashboard:
        """Add variables."""
        for variable in variables:
            self._builder.with_variable(variable)
        return self

    def marks(self, *marks: Mark) -> Dashboard:
        """Add marks on all lines."""
        for mark in marks:
            self._builder.annotation(mark)
        return self

    def panel(self, panel: Panel) -> Dashboard:
        """Add a panel; before the first row it has no heading."""
        self._panels += 1
        built = panel.build()
        built.id_val = self._panels
        self._builder.with_panel(_Built(built))
        return self

    def row(self, title: str, *panels: Panel) -> Dashboard:
        """Add a heading and panels below it."""
        self._panels += 1
        self._builder.with_row(dashboard.Row(title).id(self._panels))
        for panel in panels:
            self.panel(panel)
        return self

    def build(self) -> models.Dashboard:
        """Return the dashboard as Grafana's model."""
        return self._builder.build()


class _Built(Builder[models.Panel]):
    def __init__(self, panel: models.Panel) -> None:
        self._panel = panel

    def build(self) -> models.Panel:
        return self._panel
