// Draws scenes in Chromium: node shoot.mjs CHROMIUM PAGE_FOLDER SCENE.json PICTURE.png [SCENE.json PICTURE.png ...]
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

import { chromium } from 'playwright-core';
import UPNG from 'upng-js';

const COLOURS = 256;
const ICONS = '/public/build/img/icons/';

const [executablePath, folder, ...pairs] = process.argv.slice(2);
const script = await readFile(join(folder, 'page.js'), 'utf8');
const css = await readFile(join(folder, 'page.css'), 'utf8');
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
let failed = false;
try {
  for (let index = 0; index < pairs.length; index += 2) {
    const scene = JSON.parse(await readFile(pairs[index], 'utf8'));
    // The whole page is in view, because a table below the fold draws no rows.
    const rows = Math.max(...scene.dashboard.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
    const viewport = { width: scene.width, height: rows * 38 + 200 };
    const page = await browser.newPage({ viewport, timezoneId: 'UTC' });
    page.on('pageerror', (error) => {
      failed = true;
      console.error(`${pairs[index + 1]}: ${error.stack}`);
    });
    page.on('console', (message) => {
      if (process.env.DRAW_VERBOSE) console.error(message.text());
    });
    // Grafana's server has the icons as files. Here they come from the package. Fonts are in the page.
    await page.route('http://grafana.invalid/**', async (route) => {
      const { pathname } = new URL(route.request().url());
      if (pathname === '/') {
        await route.fulfill({ contentType: 'text/html', body: '<!doctype html><body><div id="root"></div></body>' });
      } else if (pathname.startsWith(ICONS)) {
        await route.fulfill({ path: join(folder, 'icons', pathname.slice(ICONS.length)) });
      } else {
        await route.abort();
      }
    });
    await page.goto('http://grafana.invalid/');
    await page.addStyleTag({ content: css });
    await page.evaluate((value) => (window.scene = value), scene);
    await page.addScriptTag({ content: script });
    await page.waitForFunction(() => window.drawn, undefined, { timeout: 60_000 });
    const height = await page.evaluate(() => document.getElementById('root').scrollHeight);
    const clip = { x: 0, y: 0, width: scene.width, height };
    const picture = UPNG.decode(await page.screenshot({ clip }));
    const pixels = UPNG.toRGBA8(picture)[0];
    await writeFile(pairs[index + 1], Buffer.from(UPNG.encode([pixels], picture.width, picture.height, COLOURS)));
    await page.close();
  }
} finally {
  await browser.close();
}
process.exitCode = failed ? 1 : 0;
