// What an upgrade of the brokers would break.
import { pages } from './api.js';
import { html } from './dom.js';
import { softwareOf } from './page-clients.js';
import { useResource } from './resource.js';
import { href, replaceQuery, route, scope } from './router.js';
import { plural, quoted, time } from './text.js';
import { Failure, Listing, Text } from './widgets.js';

/** @typedef {import('../types/rest').UpgradeView} Upgrade */

const EVERY_MS = 60_000;
const DEFAULT = '4.0';
const COLUMNS = [['Client id'], ['Software'], ['Principal'], ['Owner'], ['Would no longer be answered'], ['Last seen']];

export function UpgradeCheck() {
  const to = route.value.query.to || DEFAULT;
  const { data, error } = useResource((signal) => load(to, signal), [to, scope.value], { every: EVERY_MS });
  return html`<section>
    <h2>Upgrade check</h2>
    <label>Brokers to Kafka <input size="6" value=${to} onChange=${(/** @type {{currentTarget: HTMLInputElement}} */ event) => replaceQuery({ to: event.currentTarget.value })} /></label>
    <${Failure} error=${error} />
    ${data && !error && !data.length && html`<p>Every request of the last 30 days is answered by Kafka <${Text} text=${to} /> too.</p>`}
    ${data && !error && data.length > 0 && html`<p>${plural(data.length, 'kind of client', 'kinds of clients')} would break:</p>
      <${Listing} label="Clients that would break" columns=${COLUMNS}>${data.map((entry) => html`<${Row} key=${[entry.principal, entry.client_id, softwareOf(entry)].join(' ')} entry=${entry} />`)}<//>`}
  </section>`;
}

/** @param {{entry: Upgrade}} props */
function Row({ entry }) {
  const seen = entry.breaks.map((found) => found.last_seen).sort().pop();
  return html`<tr>
    <td><a href=${href(['clients'], { client_id: quoted(entry.client_id) })}><${Text} text=${entry.client_id} none="(no client id)" /></a></td>
    <td><${Text} text=${softwareOf(entry)} none="unknown" /></td>
    <td><${Text} text=${entry.principal} /></td>
    <td><${Text} text=${entry.owner} /></td>
    <td class="wrap">${entry.breaks.map((found) => html`<div key=${found.api}>${found.api} ${found.lowest}, needs ${found.needs ?? 'another API'} from ${found.dropped_in} on (${found.why})</div>`)}</td>
    <td>${time(seen)}</td>
  </tr>`;
}

/** @param {string} to @param {AbortSignal} signal @returns {Promise<Upgrade[]>} */
async function load(to, signal) {
  const found = [];
  for await (const page of pages('v1/upgrade-check', { query: { to, scope: scope.value }, signal }, 1000)) found.push(...page.items);
  return found;
}
