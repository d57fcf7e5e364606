/** What `tests/dashboards/draw.py` hands to the page: a dashboard, what is chosen in it, what its queries found. */
import type { DataFrameJSON } from '@grafana/data';
import type { Dashboard, Panel, RowPanel } from '@grafana/schema';

export interface PanelResult {
  /** Results of the panel's queries; times in milliseconds. */
  frames: DataFrameJSON[];
  /** What a query was refused with. */
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
  /** What `$name` stands for in titles and links. */
  values: Record<string, string>;
  /** By the panel's id. */
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
