/** Draws a panel of each type with Grafana's own component. Timelines and heatmaps have none, so rectangles draw them. */
import {
  dateTime,
  FieldType,
  getFieldDisplayName,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  renderTextPanelMarkdown,
  VizOrientation,
  type DataFrame,
  type Field,
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

interface Strip {
  name: string;
  times: number[];
  field: Field;
}

/** The series of a panel with their times: one row each. */
const stripsOf = (frames: DataFrame[]): Strip[] =>
  frames.flatMap((frame) => {
    const times = frame.fields.find((field) => field.type === FieldType.time)?.values ?? [];
    return frame.fields
      .filter((field) => field.type === FieldType.number)
      .map((field) => ({ name: getFieldDisplayName(field, frame, frames), times, field }));
  });

/** Draws a row of cells for each series; `fill` gives a value's colour and opacity. */
function Strips({ frames, width, height, fill }: Props & { fill: (value: number, field: Field) => [string, number] }): ReactElement {
  const strips = stripsOf(frames);
  const left = 190;
  const tall = (height - 8) / strips.length;
  const across = (time: number): number => left + ((time - from) / (to - from)) * (width - left - 8);
  return (
    <svg width={width} height={height} fontSize={12}>
      {strips.map(({ name, times, field }, row) => {
        const step = Math.min(...times.slice(1).map((time, index) => time - times[index]), to - from);
        return (
          <g key={name} transform={`translate(0, ${row * tall})`}>
            <text x={left - 8} y={tall / 2 + 4} textAnchor="end" fill={theme.colors.text.secondary}>{name.slice(0, 28)}</text>
            {times.map((time, index) => {
              const value = field.values[index];
              if (!Number.isFinite(value)) {
                return null;
              }
              const [colour, opacity] = fill(value, field);
              const wide = Math.max(1, across(Math.min(time + step, to)) - across(time));
              return <rect key={time} x={across(time)} y={1} width={wide} height={Math.max(1, tall - 3)} fill={colour} opacity={opacity} />;
            })}
          </g>
        );
      })}
    </svg>
  );
}

const StatesPanel = (props: Props): ReactElement => (
  <Strips {...props} fill={(value, field) => [field.display?.(value).color ?? theme.colors.text.primary, 0.8]} />
);

function CellsPanel(props: Props): ReactElement {
  const values = stripsOf(props.frames).flatMap(({ field }) => field.values.filter(Number.isFinite));
  const most = Math.max(...values, Number.MIN_VALUE);
  return <Strips {...props} fill={(value) => [theme.visualization.getColorByName('dark-orange'), Math.sqrt(value / most)]} />;
}

const DRAWN_BY: Record<string, (props: Props) => ReactElement> = {
  timeseries: GraphPanel,
  stat: StatPanel,
  bargauge: BarGaugePanel,
  'state-timeline': StatesPanel,
  heatmap: CellsPanel,
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
