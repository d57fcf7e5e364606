// The clients: search, filters as in REST, groups.
import { useEffect, useMemo } from 'preact/hooks';
import { session } from './api.js';
import { Minutes } from './chart.js';
import { html } from './dom.js';
import { FILTERS, clients, complete, failure, members, watchClients } from './fleet.js';
import { href, replaceQuery, route } from './router.js';
import { Scope } from './scope.js';
import { Table } from './table.js';
import { ago, count, quoted, span } from './text.js';
import { Empty, Failure, Members, State, Text, Title } from './widgets.js';

/** @typedef {import('../types/rest').ClientView} ClientView */

const STATES = ['pushing', 'waiting', 'silent', 'failing', 'unsubscribed', 'terminated'];

/** What rows can be put together by, and the filters that lead to the rows of a group. */
const GROUPS = /** @type {const} */ ({
  version: { title: 'Software and version', of: (/** @type {ClientView} */ client) => softwareOf(client) },
  principal: { title: 'Principal', of: (/** @type {ClientView} */ client) => client.principal },
  owner: { title: 'Owner', of: (/** @type {ClientView} */ client) => client.owner ?? '' },
  client_id: { title: 'Client id', of: (/** @type {ClientView} */ client) => client.client_id },
  listener: { title: 'Listener', of: (/** @type {ClientView} */ client) => client.listener },
});

/** @param {{client_software_name: string, client_software_version: string}} client */
export function softwareOf(client) {
  return `${client.client_software_name} ${client.client_software_version}`.trim();
}

/** @param {{client: {client_instance_id: string, client_id: string}}} props */
export function ClientLink({ client }) {
  return html`<a href=${href(['clients', client.client_instance_id])}><${Text} text=${client.client_id} none="(no client id)" /></a>`;
}

/** @type {import('./table.js').Column<ClientView>[]} */
const COLUMNS = [
  { key: 'client_id', title: 'Client id', by: (client) => client.client_id, show: (client) => html`<${ClientLink} client=${client} />`, width: '20%' },
  { key: 'software', title: 'Software', by: softwareOf, show: (client) => html`<${Text} text=${softwareOf(client)} none="unknown" />`, width: '17%' },
  { key: 'state', title: 'State', by: (client) => client.state, show: (client) => html`<${State} state=${client.state} />`, width: '8.5rem' },
  { key: 'principal', title: 'Principal', by: (client) => client.principal, show: (client) => html`<${Text} text=${client.principal} />`, minor: true },
  { key: 'owner', title: 'Owner', by: (client) => client.owner, show: (client) => html`<${Text} text=${client.owner} />`, minor: true },
  { key: 'address', title: 'Address', by: (client) => client.source_address, show: (client) => html`<${Text} text=${client.source_address} />`, minor: true },
  { key: 'group_id', title: 'Group', by: (client) => client.group_id, show: (client) => html`<${Text} text=${client.group_id} />`, minor: true },
  { key: 'interval', title: 'Every', by: (client) => client.push_interval_ms, show: (client) => span(client.push_interval_ms && client.push_interval_ms / 1000), number: true, minor: true, width: '4.5rem' },
  { key: 'minutes', title: 'Last hour', show: (client) => html`<${Minutes} minutes=${client.pushed_minutes} />`, width: '8rem', minor: true },
  { key: 'pushes', title: 'Pushes', by: (client) => client.pushes, show: (client) => count(client.pushes), number: true, width: '5rem', minor: true },
  { key: 'last_push', title: 'Last push', by: (client) => client.last_push_age_s, show: (client) => ago(client.last_push_age_s), number: true, width: '7rem' },
];

export function ClientsPage() {
  const { query } = route.value;
  const wanted = Object.fromEntries([...FILTERS, 'scope'].flatMap((name) => (query[name] ? [[name, query[name]]] : [])));
  useEffect(() => watchClients(wanted), [JSON.stringify(wanted)]);
  const rows = useMemo(() => searched(clients.value, query.q ?? ''), [clients.value, query.q]);
  const filtered = FILTERS.some((name) => query[name]);
  return html`
    <${Title} text="Clients">
      <span class="sum" role="status">${summary(rows.length, clients.value.length, filtered)}</span>
    <//>
    <${Failure} error=${failure.value} shown=${clients.value.length > 0} />
    <${Members} members=${members.value} />
    <${Toolbar} query=${query} />
    ${complete.value && !clients.value.length && !failure.value
      ? html`<${NoClients} filtered=${filtered} />`
      : query.by && query.by in GROUPS
        ? html`<${Groups} rows=${rows} by=${query.by} />`
        : html`<${Table} label="Clients" columns=${COLUMNS} rows=${rows} id=${idOf} sorted=${query.sort}
            onSort=${(/** @type {string} */ sort) => replaceQuery({ sort })} />`}
  `;
}

/** @param {ClientView} client */
const idOf = (client) => client.client_instance_id;

/** @param {number} shown @param {number} all @param {boolean} filtered */
function summary(shown, all, filtered) {
  const of = filtered ? 'that pass the filters' : 'known';
  if (!complete.value) return `${count(all)} read …`;
  return shown === all ? `${count(all)} ${of}` : `${count(shown)} of ${count(all)} ${of}`;
}

/** @type {WeakMap<ClientView, string>} */
const contents = new WeakMap();

/** What is searched of a client: put together once, and not with each key. @param {ClientView} client */
function contentOf(client) {
  const known = contents.get(client);
  if (known !== undefined) return known;
  const { client_id, principal, owner, source_address, group_id, client_instance_id } = client;
  const content = [client_id, softwareOf(client), principal, owner, source_address, group_id, client_instance_id].join('\n').toLowerCase();
  contents.set(client, content);
  return content;
}

/** @param {ClientView[]} all @param {string} text */
function searched(all, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return all;
  return all.filter((client) => words.every((word) => contentOf(client).includes(word)));
}

/** @param {{query: Record<string, string>}} props */
function Toolbar({ query }) {
  /** @param {string} name */
  const change = (name) => (/** @type {{currentTarget: HTMLInputElement}} */ event) =>
    replaceQuery({ [name]: event.currentTarget.value });
  const patterns = FILTERS.filter((name) => name !== 'state');
  return html`<search class="toolbar">
    <input type="search" placeholder="Search" aria-label="Search in what is listed" value=${query.q ?? ''} onInput=${change('q')} />
    <label>State <select value=${query.state ?? ''} onChange=${change('state')}>
      <option value="">all</option>
      ${STATES.map((state) => html`<option key=${state} value=${state}>${state}</option>`)}
    </select></label>
    <label>Group by <select value=${query.by ?? ''} onChange=${change('by')}>
      <option value="">nothing</option>
      ${Object.entries(GROUPS).map(([name, group]) => html`<option key=${name} value=${name}>${group.title}</option>`)}
    </select></label>
    <${Scope} />
    <details open=${patterns.some((name) => query[name])}>
      <summary>Filters</summary>
      <p class="note">Regular expressions for the whole value, as in REST: <code>orders-.*</code></p>
      <div class="fields">
        ${patterns.map(
          (name) => html`<label key=${name}>${name.replace('_', ' ')}
            <input value=${query[name] ?? ''} onChange=${change(name)} spellcheck=${false} autocomplete="off" /></label>`,
        )}
      </div>
    </details>
  </search>`;
}

/** @typedef {{name: string, clients: ClientView[]}} Group */

/** @param {{rows: ClientView[], by: string}} props */
function Groups({ rows, by }) {
  const group = GROUPS[/** @type {keyof typeof GROUPS} */ (by)];
  const groups = useMemo(() => grouped(rows, group.of), [rows, group]);
  return html`<${Table} label=${`Clients by ${group.title}`} columns=${groupColumns(group.title, by)} rows=${groups}
    id=${(/** @type {Group} */ entry) => entry.name} sorted=${route.value.query.sort ?? '-clients'}
    onSort=${(/** @type {string} */ sort) => replaceQuery({ sort })} />`;
}

/** @param {ClientView[]} rows @param {(client: ClientView) => string} of @returns {Group[]} */
export function grouped(rows, of) {
  /** @type {Map<string, ClientView[]>} */
  const found = new Map();
  for (const client of rows) {
    const name = of(client);
    const members = found.get(name);
    if (members) members.push(client);
    else found.set(name, [client]);
  }
  return [...found].map(([name, members]) => ({ name, clients: members }));
}

/** @param {string} title @param {string} by @returns {import('./table.js').Column<Group>[]} */
function groupColumns(title, by) {
  /** @param {Group} entry @param {string} state */
  const inState = (entry, state) => entry.clients.filter((client) => client.state === state).length;
  return [
    { key: 'name', title, by: (entry) => entry.name, show: (entry) => html`<a href=${href(['clients'], groupQuery(by, entry))}><${Text} text=${entry.name} none="unknown" /></a>`, width: '45%' },
    { key: 'clients', title: 'Clients', by: (entry) => entry.clients.length, show: (entry) => count(entry.clients.length), number: true },
    ...['pushing', 'silent', 'failing'].map((state) => ({
      key: state,
      title: state,
      by: (/** @type {Group} */ entry) => inState(entry, state),
      show: (/** @type {Group} */ entry) => count(inState(entry, state)),
      number: true,
    })),
  ];
}

/** The filters that leave the clients of a group. @param {string} by @param {Group} entry */
function groupQuery(by, entry) {
  const [client] = entry.clients;
  if (by !== 'version') return { [by]: quoted(entry.name) };
  return { software: quoted(client.client_software_name), version: quoted(client.client_software_version) };
}

/** @param {{filtered: boolean}} props */
function NoClients({ filtered }) {
  if (filtered) {
    return html`<${Empty} title="No client passes the filters"><p><a href=${href(['clients'])}>Show all clients</a></p><//>`;
  }
  const command = `curl -X PUT ${new URL('v1/subscriptions/all', document.baseURI)} -H 'Content-Type: application/json' \\
  -d '{"metrics": ["*"], "interval_ms": 60000}'`;
  const may = session.value?.role !== 'viewer';
  return html`<${Empty} title="No client has asked for its subscription yet" command=${may ? command : undefined}>
    <p>A client appears here with its first telemetry request. It needs a connection through a listener of the
    sidecar (<a href=${href(['doctor'])}>is everything right?</a>), software that can push (KIP-714), and a
    subscription that matches it (<a href=${href(['subscriptions'])}>subscriptions</a>).</p>
  <//>`;
}
