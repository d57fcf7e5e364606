/** The input of the page from `tests/dashboards/draw.py`: a dashboard, its variables, its query results. */
import type { DataFrameJSON } from '@grafana/data';
import type { Dashboard, Panel, RowPanel } from '@grafana/schema';

export interface PanelResult {
  /** Results of the panel's queries; times in milliseconds. */
  frames: DataFrameJSON[];
  /** The error of a refused query. */
  error: string | null;
}

export interface Scene {
  dashboard: Dashboard;
  theme: 'dark' | 'light';
  /** In pixels. */
  width: number;
  /** In milliseconds since the epoch. */
  range: { from: number; to: number; text: string };
  /** The variables' row. */
  variables: Array<{ label: string; text: string }>;
  /** The value of `$name` in titles and links. */
  values: Record<string, string>;
  /** Results by panel id. */
  results: Record<string, PanelResult>;
}

declare global {
  interface Window {
    scene: Scene;
    /** Set when everything is drawn. */
    drawn: boolean;
  }
}

export const isRow = (panel: Panel | RowPanel): panel is RowPanel => panel.type === 'row';
