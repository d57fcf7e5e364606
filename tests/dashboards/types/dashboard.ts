/**
 * The type of this project's dashboards: Grafana's own `Dashboard`, whose panels have types that Grafana has,
 * with their options and field options, and whose targets are queries of one of two data sources.
 *
 * Grafana's own types leave options open (`Record<string, unknown>`), because any plugin may add a panel type.
 */
import type * as bargauge from '@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen';
import type * as barchart from '@grafana/schema/dist/esm/raw/composable/barchart/panelcfg/x/BarChartPanelCfg_types.gen';
import type * as heatmap from '@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';
import type * as piechart from '@grafana/schema/dist/esm/raw/composable/piechart/panelcfg/x/PieChartPanelCfg_types.gen';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as statetimeline from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';
import type * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type * as text from '@grafana/schema/dist/esm/raw/composable/text/panelcfg/x/TextPanelCfg_types.gen';
import type * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
import type * as schema from '@grafana/schema';

/** Further members of Grafana 11 and its SDK, which Grafana 13 ignores. */
interface Grafana11TableOptions {
  footer?: { show: boolean; reducer: string[]; countRows?: boolean; enablePagination?: boolean; fields?: string | string[] };
}
interface Grafana11Variable {
  auto?: boolean;
  auto_count?: number;
  auto_min?: string;
}

/** The options of each panel type. Missing options get the type's defaults. */
interface PanelTypes {
  bargauge: { options: bargauge.Options; custom: {} };
  barchart: { options: barchart.Options; custom: barchart.FieldConfig };
  heatmap: { options: heatmap.Options; custom: heatmap.FieldConfig };
  piechart: { options: piechart.Options; custom: piechart.FieldConfig };
  stat: { options: stat.Options; custom: {} };
  'state-timeline': { options: statetimeline.Options; custom: statetimeline.FieldConfig };
  table: { options: table.Options & Grafana11TableOptions; custom: Partial<table.FieldConfig> };
  text: { options: text.Options; custom: {} };
  timeseries: { options: timeseries.Options; custom: timeseries.FieldConfig };
}

/** A query of the data source `grafana-postgresql-datasource`, for which no package has types. */
interface PostgresQuery extends schema.DataQuery {
  rawSql: string;
  rawQuery: true;
  editorMode: 'code';
  format: 'time_series' | 'table';
}

/** A query of the data source `prometheus`, for which no package has types either. */
interface PrometheusQuery extends schema.DataQuery {
  expr: string;
  legendFormat?: string;
  interval?: string;
  instant?: boolean;
  range?: boolean;
  exemplar?: boolean;
  editorMode?: 'code';
  format?: 'time_series' | 'table' | 'heatmap';
}

/** Marks on all lines, from a query of either data source. */
type Annotation = Omit<schema.AnnotationQuery, 'target'> & { target?: PostgresQuery };

type PanelOf<Type extends keyof PanelTypes> = Omit<schema.Panel, 'fieldConfig' | 'options' | 'targets' | 'type'> & {
  type: Type;
  options?: Partial<PanelTypes[Type]['options']>;
  targets?: Array<PostgresQuery | PrometheusQuery>;
  fieldConfig?: Omit<schema.FieldConfigSource, 'defaults'> & {
    defaults: Omit<schema.FieldConfig, 'custom'> & { custom?: PanelTypes[Type]['custom'] };
  };
};
type Panel = { [Type in keyof PanelTypes]: PanelOf<Type> }[keyof PanelTypes];

/** The same type as JSON, where a member of an enumeration is its string. */
type Json<Value> = 0 extends 1 & Value // only for `any`
  ? Value
  : Value extends string
    ? `${Value}`
    : Value extends object
      ? { [Key in keyof Value]: Json<Value[Key]> }
      : Value;

export type DashboardJson = Json<
  Omit<schema.Dashboard, 'annotations' | 'panels' | 'templating'> & {
    annotations?: { list?: Annotation[] };
    panels: Array<Panel | (Omit<schema.RowPanel, 'panels'> & { panels: Panel[] })>;
    templating?: { list?: Array<schema.VariableModel & Grafana11Variable> };
  }
>;
