"""Owns the shape of dashboards: panels, variables and links as every dashboard here has them.

It knows Grafana and no metric; what is asked of a database comes from the callers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, text, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models
from grafana_foundation_sdk.models import text as text_models

__all__ = [
    "NOT_SENT",
    "POSTGRES",
    "PROMETHEUS",
    "Dashboard",
    "Sql",
    "choice",
    "column",
    "lines",
    "link_to_client",
    "note",
    "number",
    "promql",
    "rows",
]

POSTGRES: Final = models.DataSourceRef(type_val="grafana-postgresql-datasource", uid="${postgres}")
PROMETHEUS: Final = models.DataSourceRef(type_val="prometheus", uid="${prometheus}")

#: What a panel says of a metric that the clients in view have not got.
NOT_SENT: Final = "not sent by these clients"

_TAG: Final = "kafka-client-telemetry"
_NO_DATA: Final = "no data"
#: Steps a panel has at most: at six days and more they are hours, which minutes kept for seven days allow.
_STEPS: Final = 240
#: Longer holes in a line are drawn as holes: three push intervals of five minutes.
_SPAN_NULLS_MS: Final = 900_000

Panel = Builder[models.Panel]


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


def lines(
    title: str,
    description: str,
    unit: str,
    queries: Sequence[Builder[Dataquery]],
    *,
    width: int = 12,
    stacked: bool = False,
    source: models.DataSourceRef = POSTGRES,
) -> Panel:
    """Values over time.

    Args:
        title: Its title.
        description: What it tells, and what to make of it.
        unit: Grafana's id of the unit.
        queries: What it draws.
        width: In 24ths of the window.
        stacked: Whether the series are parts of a whole.
        source: The data source of all queries.
    """
    return (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(source)
        .unit(unit)
        .min(0)
        .height(8)
        .span(width)
        .no_value(_NO_DATA)
        .max_data_points(_STEPS)
        .interval("${resolution}" if source is POSTGRES else "15s")
        .draw_style(common_models.GraphDrawStyle.LINE)
        .line_width(1)
        .fill_opacity(40 if stacked else 8)
        .show_points(common_models.VisibilityMode.AUTO)
        .span_nulls(_SPAN_NULLS_MS)
        .stacking(
            common.StackingConfig()
            .group("A")
            .mode(common_models.StackingMode.NORMAL if stacked else common_models.StackingMode.NONE)
        )
        .legend(
            common.VizLegendOptions()
            .show_legend(show_legend=True)
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
            .calcs([])
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
        .override_by_regexp("/^not sent by /", [_value("color", {"mode": "fixed", "fixedColor": "text"})])
        .targets(list(queries))
    )


def number(
    title: str,
    description: str,
    unit: str,
    query: Builder[Dataquery],
    *,
    width: int = 4,
    source: models.DataSourceRef = POSTGRES,
    warn_from: float | None = None,
) -> Panel:
    """One number; NaN means that no client in view sends it, null that nothing came.

    Args:
        title: Its title.
        description: What it tells.
        unit: Grafana's id of the unit.
        query: One row with one number.
        width: In 24ths of the window.
        source: The data source.
        warn_from: From which value on it is orange.
    """
    steps = [models.Threshold(value=None, color="text")]
    if warn_from is not None:
        steps.append(models.Threshold(value=warn_from, color="orange"))
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(source)
        .unit(unit)
        .height(4)
        .span(width)
        .no_value(_NO_DATA)
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .color_mode(common_models.BigValueColorMode.VALUE)
        .text_mode(common_models.BigValueTextMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["last"]).values(values=False).fields("/.*/"))
        .thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
        .mappings(
            [
                _special(models.SpecialValueMatch.NA_N, NOT_SENT),
                _special(models.SpecialValueMatch.NULL, _NO_DATA),
            ]
        )
        .targets([query])
    )


def rows(
    title: str,
    description: str,
    queries: Sequence[Builder[Dataquery]],
    columns: dict[str, list[models.DynamicConfigValue]],
    *,
    width: int = 24,
    height: int = 9,
    source: models.DataSourceRef = POSTGRES,
    transformations: Sequence[models.DataTransformerConfig] = (),
) -> Panel:
    """A table.

    Args:
        title: Its title.
        description: What it tells.
        queries: What its rows are.
        columns: Properties by the column's name in the query, see :func:`column`.
        width: In 24ths of the window.
        height: In rows of the grid.
        source: The data source.
        transformations: What Grafana makes of the rows before it shows them.
    """
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(source)
        .unit("string")
        .height(height)
        .span(width)
        .no_value(_NO_DATA)
        .filterable(filterable=True)
        .cell_height(common_models.TableCellHeight.SM)
        .footer(common.TableFooterOptions().show(show=False).reducer([]))
        .mappings([_special(models.SpecialValueMatch.NA_N, NOT_SENT)])
        .targets(list(queries))
    )
    for transformation in transformations:
        panel = panel.with_transformation(transformation)
    for name, properties in columns.items():
        panel = panel.override_by_name(name, properties)
    return panel


def column(
    heading: str,
    unit: str | None = None,
    *,
    width: int | None = None,
    links: Sequence[dict[str, object]] = (),
    colours: dict[str, str] | None = None,
    hidden: bool = False,
) -> list[models.DynamicConfigValue]:
    """How a table's column is shown.

    Args:
        heading: What stands above it.
        unit: Grafana's id of its unit.
        width: In pixels.
        links: Where its cells lead, see :func:`link_to_client`.
        colours: Colours of cells by their text.
        hidden: Whether it is only for the rows' order.
    """
    properties = [_value("displayName", heading)]
    if unit is not None:
        properties.append(_value("unit", unit))
    if width is not None:
        properties.append(_value("custom.width", width))
    if hidden:
        properties.append(_value("custom.hidden", hidden))
    if links:
        properties.append(_value("links", list(links)))
    if colours:
        results = {
            word: models.ValueMappingResult(text=word, color=colour, index=index)
            for index, (word, colour) in enumerate(colours.items())
        }
        properties.append(_value("mappings", [models.ValueMap(options=results)]))
        properties.append(_value("custom.cellOptions", {"type": "color-text"}))
    return properties


def link_to_client(field: str = "client_id") -> list[dict[str, object]]:
    """The link from a client id in a table to its own dashboard.

    Args:
        field: The column with the client id.
    """
    url = (
        f"/d/kct-one-client?${{__url_time_range}}&${{postgres:queryparam}}&${{cluster:queryparam}}"
        f"&var-client=${{__data.fields.{field}:percentencode}}"
    )
    return [{"title": "One client", "url": url, "targetBlank": False}]


def note(title: str, markdown: str, *, width: int = 24, height: int = 4) -> Panel:
    """Words on a dashboard."""
    return (
        text.Panel()
        .title(title)
        .description("How to read this dashboard.")
        .mode(text_models.TextMode.MARKDOWN)
        .content(markdown)
        .height(height)
        .span(width)
    )


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
    """A variable whose values a query finds.

    Args:
        name: Its name in queries.
        label: Its name for people.
        description: What it chooses.
        query: SQL with one column.
        several: Whether several or all may be chosen; all is what is chosen at first.
        hidden: Whether it is only for queries.
        all_value: What queries get for "All"; None for the list of all values.
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
    """A dashboard to which panels are added from the left to the right and from the top down."""

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
        """Let the data sources be chosen.

        Args:
            postgres: That of the roll-up; with it goes how fine lines are drawn.
            prometheus: That which scrapes the receiver.
        """
        if postgres:
            self._builder.with_variable(
                dashboard.DatasourceVariable("postgres")
                .label("PostgreSQL")
                .description("Where the roll-up keeps its tables")
                .type("grafana-postgresql-datasource")
            )
        if prometheus:
            self._builder.with_variable(
                dashboard.DatasourceVariable("prometheus")
                .label("Prometheus")
                .description("What scrapes the receivers' /metrics")
                .type("prometheus")
            )
        return self

    def resolution(self) -> Dashboard:
        """Let it be chosen how fine lines are drawn at the most."""
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

    def row(self, title: str, *panels: Panel) -> Dashboard:
        """Add a heading and panels below it."""
        self._panels += 1
        self._builder.with_row(dashboard.Row(title).id(self._panels))
        for panel in panels:
            self._panels += 1
            built = panel.build()
            built.id_val = self._panels
            self._builder.with_panel(_Built(built))
        return self

    def build(self) -> models.Dashboard:
        """The dashboard as Grafana's model."""
        return self._builder.build()


class _Built(Builder[models.Panel]):
    """A panel that is built already, for a builder of dashboards."""

    def __init__(self, panel: models.Panel) -> None:
        self._panel = panel

    def build(self) -> models.Panel:
        return self._panel


def _special(match: models.SpecialValueMatch, words: str) -> models.SpecialValueMap:
    result = models.ValueMappingResult(text=words, color="text", index=0)
    return models.SpecialValueMap(options=models.DashboardSpecialValueMapOptions(match=match, result=result))


def _value(name: str, value: object) -> models.DynamicConfigValue:
    return models.DynamicConfigValue(id_val=name, value=value)
