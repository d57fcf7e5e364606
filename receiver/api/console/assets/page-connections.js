// The connections and what they move: open ones, closed ones, and sums by principal and others.
import { useMemo } from 'preact/hooks';
import { pages } from './api.js';
import { html } from './dom.js';
import { softwareOf } from './page-clients.js';
import { useResource } from './resource.js';
import { href, replaceQuery, route, scope } from './router.js';
import { Scope } from './scope.js';
import { Table } from './table.js';
import { bytes, count, quoted, span, time } from './text.js';
import { Empty, Failure, Members, State, Text, Title } from './widgets.js';

/** @typedef {import('../types/rest').ConnectionView} Connection */
/** @typedef {import('../types/rest').GroupView} Group */
/** @typedef {import('../types/rest').MemberView} Member */
/**
 * @template Row
 * @typedef {import('./table.js').Column<Row>} Column
 */

const EVERY_MS = 15_000;

/** What REST adds connections up by. */
const GROUPS = /** @type {const} */ (['principal', 'client_id', 'software', 'address', 'listener', 'owner']);

/** @type {Column<Connection | Group>[]} */
const TRAFFIC = [
  { key: 'minute', title: 'Last minute', by: (row) => row.last_minute && row.last_minute.bytes_in + row.last_minute.bytes_out, show: (row) => bytes(row.last_minute && row.last_minute.bytes_in + row.last_minute.bytes_out), number: true, width: '7.5rem' },
  { key: 'in', title: 'From client', by: (row) => row.bytes_in, show: (row) => bytes(row.bytes_in), number: true, width: '7rem', minor: true },
  { key: 'out', title: 'To client', by: (row) => row.bytes_out, show: (row) => bytes(row.bytes_out), number: true, width: '7rem', minor: true },
  { key: 'requests', title: 'Requests', by: (row) => row.requests, show: (row) => count(row.requests), number: true, width: '6rem', minor: true },
];

/** @type {Column<Connection>[]} */
const COLUMNS = [
  {
    key: 'client_id',
    title: 'Client id',
    by: (row) => row.client_id,
    show: (row) =>
      row.client_instance_id
        ? html`<a href=${href(['clients', row.client_instance_id])}><${Text} text=${row.client_id} none="(no client id)" /></a>`
        : html`<${Text} text=${row.client_id} none="(no client id)" />`,
    width: '18%',
  },
  { key: 'software', title: 'Software', by: softwareOf, show: (row) => html`<${Text} text=${softwareOf(row)} none="unknown" />`, minor: true },
  { key: 'state', title: 'Telemetry', by: (row) => row.state, show: (row) => html`<${State} state=${row.state} />`, width: '8.5rem' },
  { key: 'principal', title: 'Principal', by: (row) => row.principal, show: (row) => html`<${Text} text=${row.principal} />`, minor: true },
  { key: 'address', title: 'Address', by: (row) => row.source_address, show: (row) => html`<${Text} text=${`${row.source_address}:${row.source_port ?? '–'}`} />`, minor: true },
  ...TRAFFIC,
  { key: 'idle', title: 'Idle', by: (row) => row.idle_ms, show: (row) => span(row.idle_ms === null ? null : row.idle_ms / 1000), number: true, width: '5rem', minor: true },
  { key: 'since', title: 'Age', by: (row) => row.age_ms, show: (row) => html`<span title=${time(row.since)}>${span(row.age_ms / 1000)}</span>`, number: true, width: '5.5rem', minor: true },
];

/** @type {Column<Connection>} */
const RECEIVER = { key: 'receiver', title: 'Receiver', by: (row) => row.receiver ?? null, show: (row) => html`<${Text} text=${row.receiver} />`, minor: true };

/** @type {Column<Connection>} */
const REASON = { key: 'reason', title: 'Closed', by: (row) => row.closed_at, show: (row) => html`${time(row.closed_at)}: <${Text} text=${row.reason} />`, width: '16rem' };

export function ConnectionsPage() {
  const { q = '', sort = '-minute', by, closed } = route.value.query;
  const { data, error } = useResource((signal) => load(by, closed, signal), [scope.value, by, closed], { every: EVERY_MS });
  const all = data?.items ?? [];
  const rows = useMemo(() => searched(all, q), [data, q]);
  // Links in them have the scope.
  const columns = useMemo(() => columnsOf(by, closed), [by, closed, scope.value]);
  const what = by ? 'groups' : closed ? 'closed' : 'open';
  /** @param {string} name */
  const change = (name) => (/** @type {{currentTarget: HTMLInputElement}} */ event) => replaceQuery({ [name]: event.currentTarget.value });
  return html`
    <${Title} text="Connections"><span class="sum" role="status">${data ? `${count(rows.length)} of ${count(all.length)} ${what}` : 'reading …'}</span><//>
    <${Failure} error=${error} shown=${data !== undefined} />
    <${Members} members=${data?.members ?? []} />
    <search class="toolbar">
      <input type="search" placeholder="Search" aria-label="Search in what is listed" value=${q} onInput=${change('q')} />
      <label>Sum by <select value=${by ?? ''} onChange=${change('by')}>
        <option value="">nothing</option>
        ${GROUPS.map((name) => html`<option key=${name} value=${name}>${name.replace('_', ' ')}</option>`)}
      </select></label>
      <label>Show <select value=${closed ?? ''} onChange=${change('closed')}><option value="">open ones</option><option value="true">the last that closed</option></select></label>
      <${Scope} />
    </search>
    ${data && !all.length
      ? html`<${Empty} title=${closed ? 'No connection has closed' : 'No client is connected'}><p>Clients connect to the address of a listener. Does the broker advertise it?
          <a href=${href(['doctor'])}>See the listeners</a>.</p><//>`
      : html`<${Table} label="Connections" columns=${columns} rows=${rows} id=${idOf} sorted=${sort}
          onSort=${(/** @type {string} */ next) => replaceQuery({ sort: next })} />`}
  `;
}

/** @param {Connection & Group} row */
function idOf(row) {
  return row.id ? `${row.receiver ?? ''} ${row.id}` : GROUPS.map((name) => row[name] ?? '').join(' ');
}

/** @param {string | undefined} by @param {string | undefined} closed @returns {Column<any>[]} */
function columnsOf(by, closed) {
  if (!by) return [...COLUMNS, ...(closed ? [REASON] : []), ...(scope.value ? [RECEIVER] : [])];
  const name = /** @type {typeof GROUPS[number]} */ (by);
  return [
    { key: 'name', title: name.replace('_', ' '), by: (row) => row[name], show: (row) => groupName(name, row), width: '30%' },
    { key: 'connections', title: 'Connections', by: (row) => row.connections, show: (row) => count(row.connections), number: true },
    ...TRAFFIC,
  ];
}

/** @param {typeof GROUPS[number]} by @param {Group} row */
function groupName(by, row) {
  const text = html`<${Text} text=${row[by]} none="unknown" />`;
  // REST has no filter by address, and software is its name and version.
  return by === 'address' || by === 'software' || !row[by] ? text : html`<a href=${href(['clients'], { [by]: quoted(String(row[by])) })}>${text}</a>`;
}

/**
 * @param {string | undefined} by @param {string | undefined} closed @param {AbortSignal} signal
 * @returns {Promise<{items: (Connection & Group)[], members: Member[]}>}
 */
async function load(by, closed, signal) {
  const found = [];
  /** @type {Member[]} */
  let members = [];
  const query = { scope: scope.value, by, closed };
  for await (const page of pages('v1/connections', { query, signal }, 1000)) {
    found.push(...page.items);
    members = page.members ?? [];
  }
  return { items: found, members };
}

/** @param {(Connection & Group)[]} all @param {string} text */
function searched(all, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return all;
  return all.filter((row) => {
    const software = row.id ? softwareOf(row) : row.software;
    const content = [row.client_id, software, row.principal, row.source_address, row.address, row.listener].join('\n').toLowerCase();
    return words.every((word) => content.includes(word));
  });
}
