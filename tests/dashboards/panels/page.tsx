/** The page: title, links, variables' row, panels on Grafana's grid. It draws `window.scene` and sets a flag at the end. */
import '@fontsource/inter/400.css';
import '@fontsource/inter/500.css';
import '@fontsource/roboto-mono/400.css';
import './chrome.css';

import { EventBusSrv, ThemeContext, type DataFrame } from '@grafana/data';
import type { Panel, RowPanel } from '@grafana/schema';
import { GlobalStyles, Icon, PanelChrome, PanelContextProvider } from '@grafana/ui';

import type { ReactElement } from 'react';
import { createRoot } from 'react-dom/client';

import { fieldsOf, interpolate, theme } from './fields';
import { PanelContent } from './panels';
import { isRow } from './scene';

const { scene } = window;

/** Grafana's grid: 24 columns, rows of 30 pixels, gaps of 8. */
const GAP = 8;
const COLUMN = (scene.width - 2 * 16 - 23 * GAP) / 24;
const across = (count: number): number => count * COLUMN + (count - 1) * GAP;
const down = (count: number): number => count * 30 + (count - 1) * GAP;

function Framed({ panel, frames }: { panel: Panel; frames: DataFrame[] }): ReactElement {
  const { x, y, w, h } = panel.gridPos!;
  const error = scene.results[String(panel.id)]?.error;
  return (
    <div style={{ position: 'absolute', left: x * (COLUMN + GAP), top: y * (30 + GAP) }}>
      <PanelChrome
        title={interpolate(panel.title)}
        description={panel.description}
        width={across(w)}
        height={down(h)}
        statusMessage={error ?? undefined}
        displayMode={panel.transparent ? 'transparent' : 'default'}
      >
        {(width, height) => <PanelContent panel={panel} frames={frames} width={width} height={height} />}
      </PanelChrome>
    </div>
  );
}

function Row({ row }: { row: RowPanel }): ReactElement {
  return (
    <div className="section" style={{ top: row.gridPos!.y * (30 + GAP) }}>
      <Icon name={row.collapsed ? 'angle-right' : 'angle-down'} /> {interpolate(row.title)}
      {row.collapsed ? <span> ({row.panels.length} panels)</span> : null}
    </div>
  );
}

function Page({ drawn }: { drawn: Array<[Panel, DataFrame[]]> }): ReactElement {
  const { dashboard } = scene;
  const rows = (dashboard.panels ?? []).filter(isRow);
  const bottom = Math.max(...(dashboard.panels ?? []).map((panel) => panel.gridPos!.y + panel.gridPos!.h));
  return (
    <>
      <header>
        <span>Dashboards ›</span> <b>{dashboard.title}</b>
        <div className="range"><Icon name="clock-nine" /> {scene.range.text} <span>UTC</span></div>
      </header>
      <div className="controls">
        {scene.variables.map(({ label, text }) => (
          <div className="variable" key={label}>
            <label>{label}</label>
            <div>{text} <Icon name="angle-down" /></div>
          </div>
        ))}
        <div className="links">
          {(dashboard.links ?? []).map((link) => (
            <a key={link.title}><Icon name={link.asDropdown ? 'bars' : 'external-link-alt'} /> {interpolate(link.title)}</a>
          ))}
        </div>
      </div>
      <main style={{ height: bottom * (30 + GAP) }}>
        {rows.map((row) => <Row key={row.gridPos!.y} row={row} />)}
        {drawn.map(([panel, frames]) => <Framed key={panel.id} panel={panel} frames={frames} />)}
      </main>
    </>
  );
}

async function draw(): Promise<void> {
  const panels = (scene.dashboard.panels ?? []).filter((panel): panel is Panel => !isRow(panel));
  const drawn = await Promise.all(
    panels.map(async (panel): Promise<[Panel, DataFrame[]]> => [
      panel,
      await fieldsOf(panel, scene.results[String(panel.id)] ?? { frames: [], error: null }),
    ])
  );
  document.body.style.width = `${scene.width}px`;
  await document.fonts.load('14px Inter');
  await document.fonts.load('500 14px Inter');
  createRoot(document.getElementById('root')!).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <PanelContextProvider value={{ eventsScope: 'global', eventBus: new EventBusSrv(), canExecuteActions: () => false }}>
        <Page drawn={drawn} />
      </PanelContextProvider>
    </ThemeContext.Provider>
  );
  // Legends and tables get their final size after a few frames.
  setTimeout(() => (window.drawn = true), 1500);
}

draw().catch((error) => {
  window.drawn = true;
  throw error;
});
