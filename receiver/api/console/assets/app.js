// The frame of all pages: navigation, theme, and what to say when the receiver is away.
import { signal } from '@preact/signals';
import { render } from 'preact';
import { useEffect } from 'preact/hooks';
import { loginNeeded, readSession } from './api.js';
import { html } from './dom.js';
import { connect, stale } from './live.js';
import { Caller, Login } from './login.js';
import { ClientPage } from './page-client.js';
import { ClientsPage } from './page-clients.js';
import { ConnectionsPage } from './page-connections.js';
import { DestinationsPage } from './page-destinations.js';
import { DoctorPage } from './page-doctor.js';
import { OverviewPage } from './page-overview.js';
import { SubscriptionsPage } from './page-subscriptions.js';
import { VersionsPage } from './page-versions.js';
import { href, route } from './router.js';
import { Empty, Title } from './widgets.js';

/** @type {Record<string, {title: string, page: () => unknown}>} */
const PAGES = {
  overview: { title: 'Overview', page: OverviewPage },
  clients: { title: 'Clients', page: () => (route.value.parts[1] ? html`<${ClientPage} />` : html`<${ClientsPage} />`) },
  connections: { title: 'Connections', page: ConnectionsPage },
  subscriptions: { title: 'Subscriptions', page: SubscriptionsPage },
  versions: { title: 'Versions', page: VersionsPage },
  destinations: { title: 'Destinations', page: DestinationsPage },
  doctor: { title: 'Doctor', page: DoctorPage },
};
const HOME = 'overview';
const THEMES = ['system', 'light', 'dark'];

const theme = signal(localStorage.getItem('theme') ?? THEMES[0]);

function App() {
  useEffect(() => {
    // Without an answer the page says so where it shows what it reads.
    readSession().catch(() => {});
    connect();
  }, []);
  useEffect(() => {
    document.documentElement.dataset.theme = theme.value;
    localStorage.setItem('theme', theme.value);
  }, [theme.value]);
  return html`
    <${Navigation} />
    <main id="main" tabindex="-1">
      <div role="status">
        ${stale.value && html`<p class="notice warn">No events arrive from the receiver, so what is shown may be old. Trying again.</p>`}
      </div>
      ${loginNeeded.value ? html`<${Login} />` : html`<${Page} key=${route.value.parts.join('/')} />`}
    </main>
  `;
}

/** @param {Event} event */
function toMain(event) {
  event.preventDefault();
  document.getElementById('main')?.focus();
}

function Page() {
  const name = route.value.parts[0] || HOME;
  if (!Object.hasOwn(PAGES, name)) {
    return html`<${Title} text="Not found" /><${Empty} title="There is no such page"><p><a href="#/">To the first page</a></p><//>`;
  }
  const { page } = PAGES[name];
  return html`<${page} />`;
}

function Navigation() {
  const current = route.value.parts[0] || HOME;
  return html`<nav aria-label="Pages">
    <a class="skip" href=${location.hash || '#/'} onClick=${toMain}>To the content</a>
    <a class="brand" href="#/">Kafka Client Telemetry</a>
    <ul>
      ${Object.entries(PAGES).map(
        ([name, { title }]) => html`<li key=${name}>
          <a href=${href([name])} aria-current=${name === current ? 'page' : undefined}>${title}</a>
        </li>`,
      )}
    </ul>
    <label class="theme">Theme <select value=${theme.value} onChange=${(/** @type {{currentTarget: HTMLSelectElement}} */ event) => (theme.value = event.currentTarget.value)}>
      ${THEMES.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
    </select></label>
    <${Caller} />
  </nav>`;
}

const root = /** @type {HTMLElement} */ (document.getElementById('console'));
root.textContent = '';
render(html`<${App} />`, root);
