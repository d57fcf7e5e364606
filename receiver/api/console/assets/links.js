// Links from a client to its dashboards, logs and traces, as the configuration has them.
import { read } from './api.js';
import { html } from './dom.js';
import { useResource } from './resource.js';
import { Text } from './widgets.js';

/** @typedef {import('../types/rest').ClientView} ClientView */
/** @typedef {import('../types/rest').LinkView} Link */

const EVERY_MS = 60_000;
// Servers refuse longer ones.
const LONGEST = 8_000;

/**
 * A link's URL for a client; null: it lacks a value of it.
 * @param {string} url @param {ClientView} client
 */
export function filled(url, client) {
  const values = /** @type {Record<string, unknown>} */ (/** @type {unknown} */ (client));
  let lacks = false;
  const text = url.replace(/\{([a-z_]+)\}/g, (_, name) => {
    const value = values[name];
    // Browsers take a path's dots for another folder, also encoded ones.
    if (typeof value !== 'string' || /^\.{0,2}$/.test(value)) {
      lacks = true;
      return '';
    }
    return encodeURIComponent(value);
  });
  return lacks || text.length > LONGEST ? null : text;
}

/** @param {{client: ClientView}} props */
export function Links({ client }) {
  const { data } = /** @type {import('./resource.js').Resource<Link[]>} */ (
    useResource(async (signal) => (await read('v1/links', { signal })).items, [], { every: EVERY_MS })
  );
  const links = (data ?? []).flatMap(({ name, url }) => {
    const target = filled(url, client);
    return target === null ? [] : [{ name, target }];
  });
  if (!links.length) return null;
  return html`<p class="links">${links.map(
    ({ name, target }) => html`<a key=${name} href=${target} target="_blank" rel="noopener noreferrer"><${Text} text=${name} /> ↗</a> `,
  )}</p>`;
}
