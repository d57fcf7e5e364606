"""Builders for the panels of all dashboards: lines, states, heatmaps, numbers, tables and notes.

They know Grafana, and no metric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeVar

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    stat,
    statetimeline,
    table,
    text,
    timeseries,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models import text as text_models

from deploy.dashboards.queries import POSTGRES, Sql

#: Shown in a panel and in a cell if no client in view has the metric.
_NOT_SENT_BY_THESE: Final = "not sent by these clients"
_NOT_SENT: Final = "not sent"

NO_DATA: Final = "no data"
#: Shown where no row means that nothing is wrong. A query that failed shows the same
#: words, so they do not say that all is well.
NOTHING_FOUND: Final = "nothing found, or no answer: see Status"
#: Shown in a column of text without a value: a client without a group is not missing data.
_NONE: Final = "-"
#: The least width that Grafana gives a column, in pixels.
_COLUMN: Final = 150
#: The most steps of time in a panel.
_STEPS: Final = 240
#: The most columns of a heatmap, which reads every client's series.
_CELLS: Final = 60
#: Longer gaps are drawn as gaps: three push intervals of five minutes.
_SPAN_NULLS_MS: Final = 900_000

#: What a link takes along.
_KEPT: Final = "${__url_time_range}&${postgres:queryparam}&${cluster:queryparam}"

Panel = Builder[models.Panel]

_Queries = str | Builder[Dataquery] | Sequence[Builder[Dataquery]]
_Panel = TypeVar("_Panel", timeseries.Panel, statetimeline.Panel, heatmap.Panel, stat.Panel, table.Panel)


def _panel(
    panel: _Panel,
    title: str,
    description: str,
    unit: str,
    queries: _Queries,
    *,
    size: tuple[int, int],
    source: models.DataSourceRef = POSTGRES,
    nothing: str = NO_DATA,
    over_time: bool = False,
) -> _Panel:
    """Begin a panel. The size is its width, in 24ths of the window, and its height."""
    if isinstance(queries, str):
        queries = Sql(queries, over_time=over_time)
    width, height = size
    return (
        panel.title(title)
        .description(description)
        .datasource(source)
        .unit(unit)
        .span(width)
        .height(height)
        .no_value(nothing)
        .targets([queries] if isinstance(queries, Builder) else list(queries))
    )


def _thresholds(least: str, colours: Mapping[float, str]) -> dashboard.ThresholdsConfig:
    """Colour values, each from a number on; ``least`` is the colour below all of them."""
    steps = [models.Threshold(value=None, color=least)]
    steps += [models.Threshold(value=value, color=colour) for value, colour in colours.items()]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _patterns(colours: Mapping[str, str]) -> list[models.RegexMap]:
    """Colour texts by the pattern that they match, a regular expression between slashes."""
    return [
        models.RegexMap(
            options=models.DashboardRegexMapOptions(
                pattern=pattern, result=models.ValueMappingResult(color=colour, index=index)
            )
        )
        for index, (pattern, colour) in enumerate(colours.items())
    ]


def lines(
    title: str,
    description: str,
    unit: str,
    queries: str | Sequence[Builder[Dataquery]],
    *,
    width: int = 12,
    stacked: bool = False,
    source: models.DataSourceRef = POSTGRES,
    decimals: int | None = None,
    most: float | None = None,
    nothing: str = NO_DATA,
    warnings: Mapping[float, str] | None = None,
    smallest_first: bool = False,
    band: tuple[str, str] | None = None,
) -> Panel:
    """Build a panel of lines over time. The width is in 24ths of the window.

    The unit is Grafana's id. ``stacked``: the series add up to a whole. ``most`` is the end of the
    axis if no value is larger; ``nothing`` is shown without any series. ``warnings`` has the
    colours of dashed lines at values that are a problem. ``smallest_first`` is the legend's order.
    ``band`` has the names of the lower and the upper line of an area that is filled.
    """
    panel = timeseries.Panel().min(0).max_data_points(_STEPS)
    panel = (
        _panel(
            panel, title, description, unit, queries,
            size=(width, 9), source=source, nothing=nothing, over_time=True,
        )
        .interval("${resolution}" if source is POSTGRES else "15s")
        .draw_style(common_models.GraphDrawStyle.LINE)
        .line_width(1)
        # Fills of lines that do not add up lie on each other, and their colours mix.
        .fill_opacity(50 if stacked else 0)
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
            # Only a table can be sorted by value.
            .display_mode(common_models.LegendDisplayMode.TABLE)
            .placement(common_models.LegendPlacement.BOTTOM)
            .calcs(["lastNotNull", "max"])
            .sort_by("Max")
            .sort_desc(sort_desc=not smallest_first)
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
        .override_by_regexp(
            "/^not sent by /",
            [
                _value("color", {"mode": "fixed", "fixedColor": "text"}),
                # Only in the legend, because an empty series would be drawn on top of the stack.
                _value("custom.stacking", {"group": "A", "mode": "none"}),
                _value("custom.lineWidth", 0),
                _value("custom.showPoints", "never"),
                _value("custom.fillOpacity", 0),
            ],
        )
    )  # fmt: skip
    if band is not None:
        lower, upper = band
        grey = [_value("color", {"mode": "fixed", "fixedColor": "text"}), _value("custom.lineWidth", 0)]
        panel = panel.override_by_name(lower, grey).override_by_name(
            upper, [*grey, _value("custom.fillBelowTo", lower), _value("custom.fillOpacity", 20)]
        )
    if decimals is not None:
        panel = panel.decimals(decimals)
    if most is not None:
        panel = panel.axis_soft_max(most)
    if warnings:
        panel = panel.thresholds(_thresholds("transparent", warnings)).thresholds_style(
            common.GraphThresholdsStyleConfig().mode(common_models.GraphThresholdsStyleMode.DASHED)
        )
    return panel


def states(
    title: str,
    description: str,
    queries: str | Sequence[Builder[Dataquery]],
    colours: Mapping[float, str],
    *,
    width: int = 12,
    source: models.DataSourceRef = POSTGRES,
    nothing: str = NO_DATA,
) -> Panel:
    """Build a timeline with a row for each series, coloured by what happened in each step.

    ``colours`` has the least value of each state but the first, which is green. Steps of the same
    state are drawn as one.
    """
    return (
        _panel(
            statetimeline.Panel(), title, description, "short", queries,
            size=(width, 9), source=source, nothing=nothing, over_time=True,
        )
        .max_data_points(_STEPS)
        .interval("${resolution}" if source is POSTGRES else "5m")
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
        .thresholds(_thresholds("green", colours))
        .merge_values(merge_values=True)
        .show_value(common_models.VisibilityMode.NEVER)
        .row_height(0.8)
        .line_width(0)
        .fill_opacity(80)
        .legend(
            common.VizLegendOptions()
            .show_legend(show_legend=True)
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
            .calcs([])
        )
        .tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.SINGLE))
    )  # fmt: skip


def cells(
    title: str,
    description: str,
    unit: str,
    queries: str | Sequence[Builder[Dataquery]],
    *,
    width: int = 12,
    source: models.DataSourceRef = POSTGRES,
) -> Panel:
    """Build a heatmap with a row for each series and a cell for each step, coloured by value."""
    return (
        _panel(
            heatmap.Panel(), title, description, unit, queries,
            size=(width, 9), source=source, over_time=True,
        )
        .max_data_points(_CELLS)
        .interval("${resolution}" if source is POSTGRES else "1m")
        .calculate(calculate=False)
        .color(
            heatmap.HeatmapColorOptions()
            .mode(heatmap_models.HeatmapColorMode.SCHEME)
            # Grafana inverts schemes of one hue in its dark theme: there large values are light.
            .scheme("RdYlGn")
            .fill("dark-red")
            .scale(heatmap_models.HeatmapColorScale.EXPONENTIAL)
            .exponent(0.5)
            .steps(64)
            .min(0)
        )
        .cell_values(heatmap.CellValues().unit(unit))
        .rows_frame(heatmap.RowsHeatmapOptions().layout(common_models.HeatmapCellLayout.AUTO))
        .y_axis(heatmap.YAxisConfig().axis_placement(common_models.AxisPlacement.LEFT))
        .show_value(common_models.VisibilityMode.NEVER)
        .mode(common_models.TooltipDisplayMode.SINGLE)
        .show_color_scale(show_color_scale=True)
        .show_legend()
    )  # fmt: skip


def number(
    title: str,
    description: str,
    unit: str,
    query: str | Builder[Dataquery],
    *,
    width: int = 4,
    source: models.DataSourceRef = POSTGRES,
    warnings: Mapping[float, str] | None = None,
    nothing: str = NO_DATA,
) -> Panel:
    """Build a panel of one number: NaN if no client in view has the metric, null without data.

    The query returns one row with one number. ``warnings`` has its colours, by the number from
    which it has them.
    """
    return (
        _panel(stat.Panel(), title, description, unit, query, size=(width, 4), source=source, nothing=nothing)
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .color_mode(common_models.BigValueColorMode.VALUE)
        .text_mode(common_models.BigValueTextMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["last"]).values(values=False).fields(""))
        .thresholds(_thresholds("text", warnings or {}))
        .mappings(
            [
                _special(models.SpecialValueMatch.NA_N, _NOT_SENT_BY_THESE),
                _special(models.SpecialValueMatch.NULL, NO_DATA),
            ]
        )
    )


def banner(description: str, query: str, *, good: str, url: str) -> Panel:
    """Build a line of text over the whole width: green if it matches ``good``, else orange.

    Without an answer it is red. ``good`` is a regular expression between slashes. A click leads to
    ``url``.
    """
    nothing = "The roll-up's database gave no answer: panels below show nothing, or what they had."
    return (
        _panel(stat.Panel(), "Status", description, "string", query, size=(24, 2), nothing=nothing)
        # A missing value matches no mapping, and has this colour.
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.FIXED).fixed_color("red"))
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .color_mode(common_models.BigValueColorMode.BACKGROUND)
        .text_mode(common_models.BigValueTextMode.VALUE)
        .justify_mode(common_models.BigValueJustifyMode.AUTO)
        .text(common.VizTextDisplayOptions().value_size(16))
        .reduce_options(
            common.ReduceDataOptions().calcs(["lastNotNull"]).values(values=False).fields("/^banner$/")
        )
        .mappings(list(_patterns({good: "green", "/.+/": "orange"})))
        .override_by_name(
            "banner", [_value("links", [{"title": "What to do", "url": url, "targetBlank": True}])]
        )
    )


def rows(
    title: str,
    description: str,
    queries: str | Sequence[Builder[Dataquery]],
    columns: dict[str, list[models.DynamicConfigValue]],
    *,
    width: int = 24,
    height: int = 9,
    source: models.DataSourceRef = POSTGRES,
    transformations: Sequence[models.DataTransformerConfig] = (),
    nothing: str = NO_DATA,
    order: tuple[str, Literal["ascending", "descending"]] | None = None,
) -> Panel:
    """Build a table; ``columns`` has the properties of :func:`column` by the name in the query.

    ``nothing`` is shown if it has no rows. ``order`` has the heading of the column that orders
    the rows, if no query does.
    """
    panel = (
        _panel(
            table.Panel(), title, description, "string", queries,
            size=(width, height), source=source, nothing=nothing,
        )
        .filterable(filterable=True)
        .cell_height(common_models.TableCellHeight.SM)
        .footer(common.TableFooterOptions().show(show=False).reducer([]))
        .mappings([_special(models.SpecialValueMatch.NA_N, _NOT_SENT)])
    )  # fmt: skip
    if order is not None:
        heading, way = order
        panel = panel.sort_by(
            [common.TableSortByFieldState().display_name(heading).desc(desc=way == "descending")]
        )
    for transformation in transformations:
        panel = panel.with_transformation(transformation)
    for name, properties in columns.items():
        panel = panel.override_by_name(name, properties)
        if any(setting.id_val == "links" for setting in properties):
            panel = panel.override_by_name(f"{name}_key", column(f"{name}_key", hidden=True))
    return panel


def column(
    heading: str,
    unit: str | None = None,
    *,
    width: int | None = None,
    links: Sequence[dict[str, object]] = (),
    colours: dict[str, str] | None = None,
    patterns: dict[str, str] | None = None,
    warnings: Mapping[float, str] | None = None,
    hidden: bool = False,
) -> list[models.DynamicConfigValue]:
    """Return the properties of a table's column.

    The unit is Grafana's id; None is text. Empty cells of texts and times show a
    dash. The width is in pixels,
    at least the heading's. Colours are by the cell's text, by patterns that it matches, or of
    ``warnings`` from a number on. A hidden column only orders the rows.
    """
    # The heading and the symbol of its filter must fit.
    least = 8 * len(heading) + 44
    properties = [_value("displayName", heading)]
    if unit is None or unit.startswith("dateTime"):
        properties.append(_value("noValue", _NONE))
    if unit is not None:
        properties.append(_value("unit", unit))
    if width is not None:
        properties.append(_value("custom.width", max(width, least)))
    elif least > _COLUMN:
        properties.append(_value("custom.minWidth", least))
    if hidden:
        properties.append(_value("custom.hidden", hidden))
    if links:
        properties.append(_value("links", list(links)))
    if patterns:
        properties.append(_value("mappings", _patterns(patterns)))
    if warnings:
        steps: list[dict[str, object]] = [{"value": None, "color": "text"}]
        steps += [{"value": value, "color": colour} for value, colour in warnings.items()]
        properties.append(_value("thresholds", {"mode": "absolute", "steps": steps}))
    if patterns or warnings:
        properties.append(_value("custom.cellOptions", {"type": "color-text"}))
        mode = {"mode": "thresholds"} if warnings else {"mode": "fixed", "fixedColor": "text"}
        properties.append(_value("color", mode))
    if colours:
        results = {
            word: models.ValueMappingResult(text=word, color=colour, index=index)
            for index, (word, colour) in enumerate(colours.items())
        }
        properties.append(_value("mappings", [models.ValueMap(options=results)]))
        properties.append(_value("custom.cellOptions", {"type": "color-text"}))
        # For cells without a colour of their own.
        properties.append(_value("color", {"mode": "fixed", "fixedColor": "text"}))
    return properties


def link_to_client() -> list[dict[str, object]]:
    """Return the link from a table's column ``client_id`` to the dashboard *One client*."""
    return link("client_id", "kct-one-client", "client", title="One client")


def link(field: str, uid: str, variable: str, *, title: str = "Show this one") -> list[dict[str, object]]:
    """Return the link from a table's cell to a dashboard that selects the cell's value.

    The table has the hidden column ``{field}_key`` with the variable's value.
    """
    url = f"/d/{uid}?{_KEPT}&var-{variable}=${{__data.fields.{field}_key:percentencode}}"
    return [{"title": title, "url": url, "targetBlank": False}]


def link_to_path(field: str, *, title: str = "Show it") -> list[dict[str, object]]:
    """Return the link from a table's cell to the dashboard that the row names.

    The table has the hidden column ``{field}_key`` with a dashboard's uid and its variables, such
    as ``kct-one-client?var-client=7b``. The query makes it of constants and of keys, which are
    hexadecimal digits.
    """
    return [{"title": title, "url": f"/d/${{__data.fields.{field}_key:raw}}&{_KEPT}", "targetBlank": False}]


def note(title: str, markdown: str, *, width: int = 24, height: int = 4) -> Panel:
    """Build a panel of text."""
    return (
        text.Panel()
        .title(title)
        .description("How to read this dashboard.")
        .mode(text_models.TextMode.MARKDOWN)
        .content(markdown)
        .height(height)
        .span(width)
    )


def _special(match: models.SpecialValueMatch, words: str) -> models.SpecialValueMap:
    result = models.ValueMappingResult(text=words, color="text", index=0)
    return models.SpecialValueMap(options=models.DashboardSpecialValueMapOptions(match=match, result=result))


def _value(name: str, value: object) -> models.DynamicConfigValue:
    return models.DynamicConfigValue(id_val=name, value=value)
