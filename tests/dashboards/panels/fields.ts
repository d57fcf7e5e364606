/** Fields as a panel gets them: overrides, units, colours and transformations applied by Grafana's own code. */
import {
  applyFieldOverrides,
  cacheFieldDisplayNames,
  createTheme,
  dataFrameFromJSON,
  dataLinksOverrideProcessor,
  displayNameOverrideProcessor,
  FieldColorModeId,
  FieldConfigOptionsRegistry,
  getLinksSupplier,
  identityOverrideProcessor,
  numberOverrideProcessor,
  standardTransformers,
  standardTransformersRegistry,
  stringOverrideProcessor,
  thresholdsOverrideProcessor,
  transformDataFrame,
  unitOverrideProcessor,
  valueMappingsOverrideProcessor,
  type DataFrame,
  type FieldConfigPropertyItem,
  type FieldConfigSource,
} from '@grafana/data';
import type { Panel } from '@grafana/schema';
import { lastValueFrom } from 'rxjs';

import type { PanelResult } from './scene';

export const theme = createTheme({ colors: { mode: window.scene.theme } });

// Some have an older name too.
const transformations = new Map(Object.values(standardTransformers).map((one) => [one.id as string, one]));
standardTransformersRegistry.setInit(() =>
  [...transformations].map(([id, transformation]) => ({
    id,
    name: id,
    transformation: () => Promise.resolve(transformation as never),
    imageDark: '',
    imageLight: '',
    editor: () => null,
  }))
);

/** The value type of each standard property. */
const STANDARD = {
  displayName: displayNameOverrideProcessor,
  unit: unitOverrideProcessor,
  min: numberOverrideProcessor,
  max: numberOverrideProcessor,
  decimals: numberOverrideProcessor,
  fieldMinMax: identityOverrideProcessor,
  noValue: stringOverrideProcessor,
  mappings: valueMappingsOverrideProcessor,
  thresholds: thresholdsOverrideProcessor,
  color: identityOverrideProcessor,
  links: dataLinksOverrideProcessor,
  filterable: identityOverrideProcessor,
};

/** The defaults of each panel type's plugin, for options that the JSON leaves out. */
const CUSTOM_DEFAULTS: Record<string, Record<string, unknown>> = {
  timeseries: {
    drawStyle: 'line',
    lineInterpolation: 'linear',
    lineWidth: 1,
    fillOpacity: 0,
    gradientMode: 'none',
    showPoints: 'auto',
    pointSize: 5,
    spanNulls: false,
    stacking: { mode: 'none', group: 'A' },
    axisPlacement: 'auto',
    axisBorderShow: false,
    scaleDistribution: { type: 'linear' },
    barAlignment: 0,
    barWidthFactor: 0.6,
    hideFrom: { tooltip: false, viz: false, legend: false },
    thresholdsStyle: { mode: 'off' },
  },
  table: { align: 'auto', cellOptions: { type: 'auto' }, inspect: false },
};

const property = (id: string, process: unknown, isCustom: boolean): FieldConfigPropertyItem =>
  ({
    id,
    path: isCustom ? id.replace('custom.', '') : id,
    name: id,
    isCustom,
    process,
    shouldApply: () => true,
    settings: {},
    override: () => null,
    editor: () => null,
  }) as unknown as FieldConfigPropertyItem;

function registryFor(config: FieldConfigSource): FieldConfigOptionsRegistry {
  const custom = new Set(Object.keys(config.defaults.custom ?? {}).map((name) => `custom.${name}`));
  for (const rule of config.overrides) {
    for (const { id } of rule.properties) {
      if (id.startsWith('custom.')) {
        custom.add(id);
      }
    }
  }
  return new FieldConfigOptionsRegistry(() => [
    ...Object.entries(STANDARD).map(([id, process]) => property(id, process, false)),
    ...[...custom].map((id) => property(id, identityOverrideProcessor, true)),
  ]);
}

export const interpolate = (text?: string): string =>
  (text ?? '').replace(/\$(\w+)|\$\{(\w+)(?::\w+)?\}/g, (all, plain, braced) => window.scene.values[plain ?? braced] ?? all);

export function fieldConfigOf(panel: Panel): FieldConfigSource {
  const given = panel.fieldConfig ?? { defaults: {}, overrides: [] };
  const perSeries = panel.type === 'timeseries' || panel.type === 'piechart' || panel.type === 'barchart';
  return {
    defaults: {
      color: { mode: perSeries ? FieldColorModeId.PaletteClassic : FieldColorModeId.Thresholds },
      thresholds: { mode: 'absolute', steps: [{ value: -Infinity, color: 'green' }, { value: 80, color: 'red' }] } as never,
      ...(given.defaults as object),
      custom: { ...CUSTOM_DEFAULTS[panel.type], ...(given.defaults.custom as object) },
    },
    overrides: (given.overrides ?? []) as FieldConfigSource['overrides'],
  };
}

export async function fieldsOf(panel: Panel, result: PanelResult): Promise<DataFrame[]> {
  const frames = result.frames.map((frame) => dataFrameFromJSON(frame));
  const transformed = await lastValueFrom(
    transformDataFrame((panel.transformations ?? []) as never, frames, { interpolate })
  );
  const config = fieldConfigOf(panel);
  const applied = applyFieldOverrides({
    data: transformed,
    fieldConfig: config,
    fieldConfigRegistry: registryFor(config),
    replaceVariables: interpolate,
    theme,
    timeZone: 'utc',
  });
  for (const frame of applied) {
    for (const field of frame.fields) {
      // Grafana 13 migrates tables of Grafana 11 this way.
      if (field.config.custom?.hidden) {
        field.config.custom.hideFrom = { ...field.config.custom.hideFrom, viz: true };
      }
      field.getLinks ??= getLinksSupplier(frame, field, {}, interpolate);
    }
  }
  cacheFieldDisplayNames(applied);
  return applied;
}
