// What a person does with the console, in a real browser: node scenarios.mjs NAME BASE CHROMIUM
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';

import { chromium } from 'playwright-core';

const PAGES = ['overview', 'clients', 'clients?by=version', 'connections', 'subscriptions', 'subscriptions?new=1', 'versions', 'destinations', 'doctor'];
const VIEWS = [
  { viewport: { width: 360, height: 740 }, colorScheme: 'light' },
  { viewport: { width: 1280, height: 800 }, colorScheme: 'dark' },
  { viewport: { width: 3840, height: 2160 }, colorScheme: 'light' },
];
const ROW = 'tbody tr:not(.space)';

const [name, base, executablePath] = process.argv.slice(2);
const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
const problems = [];

/** Open a page that reports everything that goes wrong in it. */
async function open(path, view = VIEWS[1], expected = () => false) {
  const page = await browser.newPage(view);
  page.setDefaultTimeout(120_000);
  page.on('pageerror', (error) => problems.push(`${path}: ${error.stack}`));
  page.on('dialog', (dialog) => dialog.accept());
  page.on('console', (message) => {
    if (message.type() === 'error' && !expected(message.text())) problems.push(`${path}: ${message.text()}`);
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(base)) problems.push(`${path}: asks for ${request.url()}`);
  });
  await page.goto(`${base}/#/${path}`);
  await page.waitForSelector('h1');
  return page;
}

/** Fail on whatever axe finds, and on content that is wider than the window. */
async function check(page, path) {
  await page.waitForLoadState('load');
  // The policy of the page lets no script in; this is the browser's own way.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document));
  for (const { id, help, nodes } of violations) {
    problems.push(`${path}: ${id}: ${help}: ${nodes.map((node) => node.html).slice(0, 3).join(' ')}`);
  }
  const [content, width] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  if (content > width) problems.push(`${path}: ${content} pixels wide in a window of ${width}`);
}

/** Save a picture for the docs into the folder CONSOLE_PICTURES, if it is given. */
async function picture(page, file) {
  const folder = process.env.CONSOLE_PICTURES;
  if (folder) await page.screenshot({ path: `${folder}/${file}.png` });
}

const scenarios = {
  async pages() {
    const [client] = (await (await fetch(`${base}/v1/clients?limit=1`)).json()).items;
    const all = [...PAGES, `clients/${client.client_instance_id}`, 'subscriptions/producers', 'nonsense'];
    for (const view of VIEWS) {
      // Beyond some width, windows differ in the size of letters only.
      for (const path of view.viewport.width > 2000 ? ['overview', 'clients'] : all) {
        const page = await open(path, view);
        await page.waitForSelector('section, .table');
        await check(page, path);
        await page.close();
      }
    }
  },

  async empty() {
    for (const path of PAGES) {
      const page = await open(path);
      await page.waitForSelector('section, .table');
      await check(page, path);
      await page.close();
    }
    for (const path of ['clients', 'subscriptions']) {
      const page = await open(path);
      await page.waitForSelector('.empty .command');
      assert.match(await page.textContent('.command'), /curl -X PUT http:\/\/127\.0\.0\.1:\d+\/v1\/subscriptions/);
    }
  },

  async many() {
    const page = await open('clients');
    await page.waitForSelector(ROW);
    const usable = await page.evaluate(() => performance.now());
    const first = await page.evaluate(() =>
      performance.getEntriesByType('resource').filter((entry) => !/after=/.test(entry.name)).map((entry) => entry.transferSize),
    );
    const [{ transferSize }] = await page.evaluate(() => performance.getEntriesByType('navigation').map(({ transferSize }) => ({ transferSize })));
    const bytes = first.reduce((sum, size) => sum + size, transferSize);
    const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime);
    console.log(`${bytes} bytes until the first rows, first paint after ${Math.round(paint)} ms, rows after ${Math.round(usable)} ms`);
    // One of the first clients has an id of 32,000 bytes.
    assert(bytes <= 100_000 + 32_000, `${bytes} bytes until the first rows`);
    await page.waitForFunction(() => document.querySelector('.sum').textContent === '5,000 known');
    // One of four has never pushed, the others once.
    await page.getByRole('img', { name: 'pushes in 0 of the last 60 minutes' }).first().waitFor();
    await page.getByRole('img', { name: 'pushes in 1 of the last 60 minutes' }).first().waitFor();
    const frames = await page.evaluate(async () => {
      const table = document.querySelector('.table');
      const start = performance.now();
      let count = 0;
      let most = 0;
      while (table.scrollTop + table.clientHeight < table.scrollHeight - 1 && count < 2_000) {
        table.scrollTop += 1_000;
        await new Promise(requestAnimationFrame);
        most = Math.max(most, document.querySelectorAll('tbody tr').length);
        count += 1;
      }
      return { count, most, perSecond: Math.round((count * 1000) / (performance.now() - start)) };
    });
    console.log(`${frames.perSecond} frames a second while scrolling`);
    assert(frames.most < 200, `${frames.most} rows are in the document`);
    await page.waitForFunction(() => [...document.querySelectorAll('tbody tr')].some((row) => row.ariaRowIndex === '5001' || row.getAttribute('aria-rowindex') === '5001'));
    const typed = await page.evaluate(async () => {
      const input = document.querySelector('input[type=search]');
      const took = [];
      for (const text of ['o', 'or', 'orders-4', 'orders-47', 'orders-471', 'team-6 librdkafka', '']) {
        const begun = performance.now();
        input.value = text;
        input.dispatchEvent(new Event('input', { bubbles: true }));
        // The second frame begins after the first one is painted.
        await new Promise(requestAnimationFrame);
        await new Promise(requestAnimationFrame);
        took.push(performance.now() - begun);
      }
      return took.sort((left, right) => left - right).map(Math.round);
    });
    console.log(`${typed[3]} ms from a key until 5,000 rows are filtered and painted, at most ${typed[6]}`);
    await page.fill('input[type=search]', 'orders-4711');
    await page.waitForFunction((row) => document.querySelectorAll(row).length === 1, ROW);
    assert.match(page.url(), /q=orders-4711/);
    await page.reload();
    await page.waitForFunction(() => document.querySelector('.sum')?.textContent === '1 of 5,000 known');
    assert.match(await page.textContent(ROW), /orders-4711/);
  },

  async hostile() {
    const page = await open('clients');
    await page.waitForSelector(ROW);
    const texts = await page.$$eval(`${ROW} td:first-child`, (cells) => cells.slice(0, 5).map((cell) => cell.textContent));
    assert.equal(texts[0], "<script>document.title='owned'</script>");
    assert.equal(texts[2], '\\u202egnp.sredro\\u0000\\u200b');
    assert(texts[3].length < 300, 'a long client id is cut');
    assert.equal(texts[4], '(no client id)');
    for (let index = 0; index < 5; index += 1) {
      await page.goto(`${base}/#/clients`);
      await page.waitForSelector(ROW);
      await page.locator(`${ROW} td:first-child a`).nth(index).click();
      await page.waitForSelector('.facts');
      await check(page, `hostile client ${index}`);
      const links = await page.$$eval('.links a', (found) => found.map((link) => link.href));
      // A URL of 32,000 characters is no link, and an empty client id has none.
      assert.equal(links.length, index < 3 ? 1 : 0);
      for (const link of links) assert.match(link, /^https:\/\/grafana\.example\/d\/client\?var-client=[\w%.'()*-]+&p=User%3Ateam-\d$/);
    }
    assert.equal(await page.locator('main script, main img').count(), 0);
    assert.doesNotMatch(await page.title(), /^owned$/);
  },

  async login() {
    const page = await open('clients', VIEWS[1], (text) => text.includes('401'));
    await page.waitForSelector('input[name=token]');
    await check(page, 'login');
    await page.fill('input[name=token]', 'not-one-of-the-tokens');
    await page.click('button.main');
    await page.waitForSelector('.notice.bad');
    await page.fill('input[name=token]', 'viewer-token-of-the-tests');
    await page.click('button.main');
    await page.waitForSelector(ROW);
    assert.equal(await page.evaluate(() => document.cookie), '');
    assert.doesNotMatch(await page.evaluate(() => location.href + JSON.stringify(localStorage)), /token-of/);
    await page.goto(`${base}/#/subscriptions/producers`);
    await page.getByText('Your role may only read').waitFor();
    assert.equal(await page.getByRole('button', { name: 'Save' }).count(), 0);
    await page.getByRole('button', { name: 'Log out' }).click();
    await page.waitForSelector('input[name=token]');
    await page.fill('input[name=token]', 'editor-token-of-the-tests');
    await page.click('button.main');
    await page.getByRole('button', { name: 'Save' }).waitFor();
    await page.getByLabel('Description').fill('by a session');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Saved.').waitFor();
  },

  async editor() {
    const other = await open('subscriptions');
    await other.waitForSelector('table');
    const page = await open('subscriptions?new=1', VIEWS[1], (text) => text.includes('412') || text.includes('422'));
    await page.getByRole('textbox', { name: 'Name' }).fill('by hand');
    await page.getByRole('button', { name: 'Add a condition' }).click();
    await page.getByLabel('Pattern for client_id').fill('orders-(');
    await page.getByRole('alert').first().waitFor();
    await page.getByLabel('Pattern for client_id').fill('orders-1.');
    await page.getByText('10 of 30').waitFor();
    await page.getByRole('link', { name: 'orders-11' }).waitFor();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.waitForURL(/by%20hand/);
    // The event stream tells other pages.
    await other.getByRole('link', { name: 'by hand' }).waitFor();

    await page.getByLabel('Push interval').fill('30');
    const headers = { 'content-type': 'application/json' };
    await fetch(`${base}/v1/subscriptions/by%20hand`, { method: 'PATCH', headers, body: '{"description": "by another"}' });
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('has changed').waitFor();
    const kept = await (await fetch(`${base}/v1/subscriptions/by%20hand`)).json();
    assert.equal(kept.description, 'by another');
    // What was typed stays, and is now compared with the other's change.
    await page.locator('.diff', { hasText: 'by another' }).waitFor();
    await page.getByLabel('Description').fill('by another');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Saved.').waitFor();
    const saved = await (await fetch(`${base}/v1/subscriptions/by%20hand`)).json();
    assert.deepEqual([saved.interval_ms, saved.description], [30_000, 'by another']);
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.waitForURL(/#\/subscriptions$/);
    await other.getByRole('link', { name: 'by hand' }).waitFor({ state: 'detached' });
  },

  async culprit() {
    const page = await open('overview');
    // From the first page: who is throttled, whose it is, and what to do.
    const notice = page.locator('section:not(.findings) > .notice', { hasText: 'throttled' });
    await notice.getByText('User:team-6').waitFor();
    await notice.getByText('Raise its quota').waitFor();
    await notice.getByText('is 250 ms, since').waitFor();
    // And what the roll-up knows of it, since when.
    const finding = page.locator('.findings .notice');
    await finding.getByText('the brokers delayed it by up to 250 ms').waitFor();
    await finding.getByText('and 10 more, owner payments').waitFor();
    await finding.getByText('What to change').click();
    await finding.getByText('<b>The quota is below what it sends</b>').waitFor();
    await finding.getByText('What to change').click();
    await picture(page, 'console');
    await notice.getByRole('link', { name: 'orders-13' }).click();
    await page.waitForSelector('.chart canvas');
    await page.locator('.values td', { hasText: '250 ms' }).waitFor();
    await page.locator('.findings').getByText('producer_byte_rate').waitFor();
    assert.deepEqual(await page.$$eval('.links a', (links) => links.map((link) => [link.textContent, link.href])), [
      ['Grafana ↗', 'https://grafana.example/d/client?var-client=orders-13&p=User%3Ateam-6'],
    ]);
    await check(page, 'culprit');
    const charts = await page.locator('.chart').count();
    await page.getByLabel('Search metrics').fill('record.send');
    await page.getByLabel('Chart of producer.record.send.rate').uncheck();
    await page.waitForFunction((before) => document.querySelectorAll('.chart').length === before - 1, charts);
    await page.reload();
    await page.waitForSelector('.chart canvas');
    assert.equal(await page.locator('.chart').count(), charts - 1);
  },

  async cluster() {
    const page = await open('clients');
    await page.waitForSelector(ROW);
    await page.getByLabel('Receivers').selectOption('cluster');
    await page.waitForURL(/scope=cluster/);
    await page.getByText('did not answer').waitFor();
    await page.waitForSelector(ROW);
    await page.locator(`${ROW} td:first-child a`, { hasText: 'orders-11' }).click();
    await page.waitForURL(/clients\/.*scope=cluster/);
    await page.getByText('receiver-1').first().waitFor();
    await page.locator('.values td', { hasText: '120' }).first().waitFor();
    for (const name of ['Overview', 'Destinations', 'Doctor']) {
      await page.getByRole('link', { name, exact: true }).first().click();
      await page.getByRole('heading', { name, level: 1 }).waitFor();
      await page.getByText('did not answer').waitFor();
      assert.match(page.url(), /scope=cluster/);
      await check(page, `cluster ${name}`);
    }
    await page.getByRole('link', { name: 'Connections', exact: true }).click();
    await page.getByText('did not answer').waitFor();
    await page.getByRole('columnheader', { name: 'Receiver' }).waitFor();
    await check(page, 'cluster');
  },

  async ten() {
    const [client] = (await (await fetch(`${base}/v1/clients?limit=1`)).json()).items;
    const paths = ['overview', 'overview', 'clients', 'clients', 'clients', 'connections', 'versions', 'doctor', `clients/${client.client_instance_id}`, 'subscriptions'];
    const pages = await Promise.all(paths.map((path) => open(path)));
    await Promise.all(pages.map((page) => page.waitForSelector('section, .table')));
    for (const page of pages) await page.waitForFunction(() => !/…/.test(document.querySelector('.sum')?.textContent ?? ''));
    console.log('open');
    await pages[0].waitForTimeout(120_000);
    console.log('measured');
  },

  async bridge() {
    const page = await open('clients');
    await page.locator(`${ROW} td:first-child a`, { hasText: 'by-bridge' }).click();
    await page.getByText('Its broker decides, and does otherwise:').waitFor();
    await page.locator('li', { hasText: 'the broker does not read the store sqlite' }).waitFor();
    await page.getByText('a bridge shows pushes only').waitFor();
    for (const unseen of ['Next request', 'Latest answer', 'Open connections']) {
      assert.equal(await page.getByText(unseen, { exact: true }).count(), 0, unseen);
    }
    await check(page, 'bridge');
  },

  async stale() {
    const page = await open('overview', VIEWS[1], (text) => text.includes('ERR_INTERNET_DISCONNECTED') || text.includes('net::'));
    await page.waitForSelector('.figures');
    await page.context().setOffline(true);
    await page.getByText('does not answer').waitFor();
    await page.context().setOffline(false);
    await page.getByText('does not answer').waitFor({ state: 'detached' });
  },
};

try {
  await scenarios[name]();
} catch (error) {
  problems.push(error.stack);
} finally {
  await browser.close();
}
for (const problem of problems) console.error(problem);
process.exitCode = problems.length ? 1 : 0;
