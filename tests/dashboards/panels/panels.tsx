/** Draws a panel of each type with Grafana's own component. */
import {
  dateTime,
  FieldType,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  renderTextPanelMarkdown,
  VizOrientation,
  type DataFrame,
  type FieldDisplay,
} from '@grafana/data';
import type { Panel } from '@grafana/schema';
import { BarGauge, BigValue, TimeSeries, VizRepeater } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import type { ReactElement } from 'react';

import { fieldConfigOf, interpolate, theme } from './fields';

export interface Props {
  panel: Panel;
  frames: DataFrame[];
  width: number;
  height: number;
}

const { from, to } = window.scene.range;
const range = { from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } };
const REDUCE = { values: false, calcs: ['lastNotNull'], fields: '' };
const LEGEND = { showLegend: true, displayMode: 'list', placement: 'bottom', calcs: [] };

/** Makes values that are not finite gaps in a line, like Grafana's panel. */
const finite = (frame: DataFrame): DataFrame => ({
  ...frame,
  fields: frame.fields.map((field) =>
    field.type === FieldType.number
      ? { ...field, values: field.values.map((value) => (Number.isFinite(value) ? value : null)) }
      : field
  ),
});

function GraphPanel({ panel, frames, width, height }: Props): ReactElement {
  const options = panel.options as any;
  return (
    <TimeSeries
      frames={frames.map(finite)}
      structureRev={1}
      width={width}
      height={height}
      timeRange={range}
      timeZone="utc"
      legend={{ ...LEGEND, ...options?.legend }}
      options={options}
    />
  );
}

function displayValues({ panel, frames }: Props, sparkline: boolean): FieldDisplay[] {
  const options = panel.options as any;
  return getFieldDisplayValues({
    fieldConfig: fieldConfigOf(panel),
    reduceOptions: { ...REDUCE, ...options?.reduceOptions },
    replaceVariables: interpolate,
    theme,
    data: frames,
    sparkline,
    timeZone: 'utc',
  });
}

function StatPanel(props: Props): ReactElement {
  const options = { colorMode: 'value', graphMode: 'area', justifyMode: 'auto', textMode: 'auto', wideLayout: true, ...(props.panel.options as any) };
  const values = displayValues(props, options.graphMode !== 'none');
  return (
    <VizRepeater<FieldDisplay, any>
      getValues={() => values}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderValue={({ value, width, height, alignmentFactors, count }) => (
        <BigValue
          value={value.display}
          count={count}
          sparkline={value.sparkline}
          colorMode={options.colorMode}
          graphMode={options.graphMode}
          justifyMode={options.justifyMode}
          textMode={options.textMode}
          alignmentFactors={alignmentFactors}
          text={options.text}
          width={width}
          height={height}
          theme={theme}
          disableWideLayout={!options.wideLayout}
        />
      )}
      width={props.width}
      height={props.height}
      source={props.frames}
      autoGrid
      itemSpacing={3}
      renderCounter={0}
      orientation={options.orientation ?? VizOrientation.Auto}
    />
  );
}

function BarGaugePanel(props: Props): ReactElement {
  const options = { displayMode: 'gradient', valueMode: 'color', namePlacement: 'auto', showUnfilled: true, ...(props.panel.options as any) };
  const values = displayValues(props, false);
  return (
    <VizRepeater<FieldDisplay, any>
      getValues={() => values}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderValue={({ value, width, height, orientation, alignmentFactors, count }) => (
        <BarGauge
          value={value.display}
          field={value.field}
          display={value.view?.getFieldDisplayProcessor(value.colIndex ?? 0)}
          width={width}
          height={height}
          orientation={orientation}
          alignmentFactors={alignmentFactors}
          text={options.text}
          displayMode={options.displayMode}
          valueDisplayMode={options.valueMode}
          namePlacement={options.namePlacement}
          showUnfilled={options.showUnfilled}
          itemSpacing={8}
          theme={theme}
        />
      )}
      width={props.width}
      height={props.height}
      source={props.frames}
      itemSpacing={8}
      minVizWidth={8}
      minVizHeight={16}
      maxVizHeight={300}
      renderCounter={0}
      orientation={options.orientation ?? VizOrientation.Auto}
    />
  );
}

function TablePanel({ panel, frames, width, height }: Props): ReactElement {
  const options = panel.options as any;
  return (
    <TableNG
      data={frames[options?.frameIndex ?? 0]}
      width={width}
      height={height}
      noHeader={options?.showHeader === false}
      cellHeight={options?.cellHeight}
      sortBy={options?.sortBy}
      fieldConfig={fieldConfigOf(panel)}
      timeRange={range}
      enablePagination={options?.enablePagination}
      structureRev={1}
      transparent={panel.transparent}
      initialRowIndex={undefined}
    />
  );
}

function TextPanel({ panel, height }: Props): ReactElement {
  const options = panel.options as any;
  const html = renderTextPanelMarkdown(interpolate(options?.content ?? ''));
  return <div className="markdown-html" style={{ height, overflow: 'hidden' }} dangerouslySetInnerHTML={{ __html: html }} />;
}

const DRAWN_BY: Record<string, (props: Props) => ReactElement> = {
  timeseries: GraphPanel,
  stat: StatPanel,
  bargauge: BarGaugePanel,
  table: TablePanel,
  text: TextPanel,
};

export function PanelContent(props: Props): ReactElement {
  const Drawn = DRAWN_BY[props.panel.type];
  if (Drawn === undefined) {
    throw new Error(`panel ${props.panel.title}: no component draws type ${props.panel.type}`);
  }
  const isEmpty = !props.frames.some((frame) => frame.length > 0 && frame.fields.some((field) => field.type !== FieldType.time));
  if (isEmpty && props.panel.type !== 'text') {
    const text = (props.panel.fieldConfig?.defaults as any)?.noValue || 'No data';
    return <div className="nothing" style={{ height: props.height }}>{text}</div>;
  }
  return <Drawn {...props} />;
}
