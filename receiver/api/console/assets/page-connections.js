// The open connections.
import { useMemo } from 'preact/hooks';
import { pages } from './api.js';
import { html } from './dom.js';
import { useResource } from './resource.js';
import { href, replaceQuery, route, scope } from './router.js';
import { Scope } from './scope.js';
import { Table } from './table.js';
import { count, time } from './text.js';
import { Empty, Failure, Members, State, Text, Title } from './widgets.js';

/** @typedef {import('../types/rest').ConnectionView} ConnectionView */

const EVERY_MS = 15_000;

/** @param {ConnectionView} row */
const softwareOf = (row) => `${row.client_software_name} ${row.client_software_version}`.trim();

/** @type {import('./table.js').Column<ConnectionView>[]} */
const COLUMNS = [
  {
    key: 'client_id',
    title: 'Client id',
    by: (row) => row.client_id,
    show: (row) =>
      row.client_instance_id
        ? html`<a href=${href(['clients', row.client_instance_id])}><${Text} text=${row.client_id} none="(no client id)" /></a>`
        : html`<${Text} text=${row.client_id} none="(no client id)" />`,
    width: '20%',
  },
  { key: 'software', title: 'Software', by: softwareOf, show: (row) => html`<${Text} text=${softwareOf(row)} none="unknown" />`, width: '18%' },
  { key: 'state', title: 'Telemetry', by: (row) => row.state, show: (row) => html`<${State} state=${row.state} />`, width: '9rem' },
  { key: 'principal', title: 'Principal', by: (row) => row.principal, show: (row) => html`<${Text} text=${row.principal} />`, minor: true },
  { key: 'address', title: 'Address', by: (row) => row.source_address, show: (row) => html`<${Text} text=${`${row.source_address}:${row.source_port ?? '–'}`} />` },
  { key: 'listener', title: 'Listener', by: (row) => row.listener, show: (row) => html`<${Text} text=${row.listener} />`, minor: true },
  { key: 'since', title: 'Since', by: (row) => row.since, show: (row) => time(row.since), number: true, width: '12rem', minor: true },
];

/** @type {import('./table.js').Column<ConnectionView>} */
const RECEIVER = { key: 'receiver', title: 'Receiver', by: (row) => row.receiver ?? null, show: (row) => html`<${Text} text=${row.receiver} />`, minor: true };

export function ConnectionsPage() {
  const { data, error } = useResource(loadConnections, [scope.value], { every: EVERY_MS });
  const all = data?.connections ?? [];
  const { q = '', sort } = route.value.query;
  const rows = useMemo(() => searched(all, q), [data, q]);
  return html`
    <${Title} text="Connections"><span class="sum" role="status">${data ? `${count(rows.length)} of ${count(all.length)} open` : 'reading …'}</span><//>
    <${Failure} error=${error} shown=${data !== undefined} />
    <${Members} members=${data?.members ?? []} />
    <search class="toolbar"><input type="search" placeholder="Search" aria-label="Search in what is listed" value=${q}
      onInput=${(/** @type {{currentTarget: HTMLInputElement}} */ event) => replaceQuery({ q: event.currentTarget.value })} /><${Scope} /></search>
    ${data && !all.length
      ? html`<${Empty} title="No client is connected"><p>Clients connect to the address of a listener. Does the broker advertise it?
          <a href=${href(['doctor'])}>See the listeners</a>.</p><//>`
      : html`<${Table} label="Connections" columns=${scope.value ? [...COLUMNS, RECEIVER] : COLUMNS} rows=${rows} id=${(/** @type {ConnectionView} */ row) => `${row.receiver ?? ''} ${row.id}`}
          sorted=${sort} onSort=${(/** @type {string} */ by) => replaceQuery({ sort: by })} />`}
  `;
}

/** @param {AbortSignal} signal @returns {Promise<{connections: ConnectionView[], members: import('../types/rest').MemberView[]}>} */
async function loadConnections(signal) {
  const found = [];
  /** @type {import('../types/rest').MemberView[]} */
  let members = [];
  for await (const page of pages('v1/connections', { query: { scope: scope.value }, signal }, 1000)) {
    found.push(...page.items);
    members = page.members ?? [];
  }
  return { connections: found, members };
}

/** @param {ConnectionView[]} all @param {string} text */
function searched(all, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return all.filter((row) => {
    const content = [row.client_id, softwareOf(row), row.principal, row.source_address, row.listener].join('\n').toLowerCase();
    return words.every((word) => content.includes(word));
  });
}
