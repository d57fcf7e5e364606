// What the clients' latest pushes show to be wrong, and what to do.
import { read } from './api.js';
import { html } from './dom.js';
import { ClientLink, softwareOf } from './page-clients.js';
import { useResource } from './resource.js';
import { scope } from './router.js';
import { plural, time, visible } from './text.js';
import { Failure, Text } from './widgets.js';

/** @typedef {import('../types/rest').SignsView} Signs */
/** @typedef {import('../types/rest').SignView} Sign */

const EVERY_MS = 10_000;
const FIRST = 10;

/** The signs of all clients. */
export function useSigns() {
  return /** @type {import('./resource.js').Resource<Signs>} */ (
    useResource((signal) => read('v1/signs', { query: { limit: 1000, scope: scope.value }, signal }), [scope.value], { every: EVERY_MS })
  );
}

/** @param {Sign} sign */
function shownValue(sign) {
  const unit = (sign.unit ?? '').replace(/[{}]/g, '').replace(/^1$/, '');
  return `${sign.value.toLocaleString('en', { maximumSignificantDigits: 4 })} ${unit}`.trim();
}

/** One sign, with the client where it is not clear. @param {{sign: Sign, named?: boolean}} props */
export function SignOf({ sign, named = false }) {
  const tone = sign.kind === 'failing_records' ? 'bad' : 'warn';
  return html`<div class=${`notice ${tone}`}>
    ${named && html`<p><strong><${ClientLink} client=${sign} /></strong> <span class="note"><${Text} text=${softwareOf(sign)} />, <${Text} text=${sign.principal} />${sign.owner && html`, owner <${Text} text=${sign.owner} />`}</span></p>`}
    <p><strong>${sign.kind.replaceAll('_', ' ')}</strong>: ${sign.meaning} <code>${visible(sign.metric.replace(/^org\.apache\.kafka\./, ''))}</code> is ${shownValue(sign)}, since ${time(sign.since)}.</p>
    <p>${sign.advice}</p>
  </div>`;
}

/** The most urgent signs of all clients. */
export function SignList() {
  const { data, error } = useSigns();
  if (!data) return html`<${Failure} error=${error} />`;
  const rest = data.items.length - FIRST;
  return html`<section>
    <h2>What clients show</h2>
    <${Failure} error=${error} shown />
    ${data.items.length
      ? data.items.slice(0, FIRST).map((sign) => html`<${SignOf} key=${`${sign.client_instance_id} ${sign.kind}`} sign=${sign} named />`)
      : html`<p>${data.read ? `The latest pushes of ${plural(data.read, 'client')} show nothing wrong.` : 'No push is kept yet, so nothing can be said.'}</p>`}
    ${rest > 0 && html`<p class="note">and ${plural(rest, 'more', 'more')}: <a href=${`v1/signs?limit=1000${scope.value ? '&scope=cluster' : ''}`}>all of them</a></p>`}
    ${data.read < data.clients && html`<p class="note">Of ${plural(data.clients - data.read, 'client')} no push is kept.</p>`}
  </section>`;
}
