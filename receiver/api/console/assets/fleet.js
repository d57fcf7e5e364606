// The client instances that pass the filters, all of them in memory: searching waits for nobody.
import { batch, signal } from '@preact/signals';
import { pages, read } from './api.js';
import { onEvent } from './live.js';
import { pauseAfter } from './resource.js';

/** @typedef {import('../types/rest').ClientView} ClientView */
/** @typedef {import('../types/rest').MemberView} MemberView */

const REFRESH_MS = 10_000;
// One after the other: when many clients come together, the whole list is read instead.
const MOST_SINGLE_READS = 20;

/** Filters of REST, in the order in which they are shown. */
export const FILTERS = /** @type {const} */ ([
  'state',
  'client_id',
  'software',
  'version',
  'principal',
  'listener',
  'owner',
  'subscription',
]);

/** @type {import('@preact/signals').Signal<ClientView[]>} */
export const clients = signal([]);
/** @type {import('@preact/signals').Signal<MemberView[]>} */
export const members = signal([]);
/** Whether all pages of the list have been read. */
export const complete = signal(false);
/** @type {import('@preact/signals').Signal<Error | null>} */
export const failure = signal(null);
/** Milliseconds since the epoch at which the list was read last. */
export const readAt = signal(0);

let filters = /** @type {Record<string, string>} */ ({});
/** @type {AbortController | null} */
let reading = null;
/** @type {Set<string>} */
const created = new Set();
/** @type {number | undefined} */
let next;
/** @type {number | undefined} */
let soon;

/**
 * Read the clients that pass these filters, and keep the list up to date until the returned
 * function is called.
 * @param {Record<string, string>} wanted
 */
export function watchClients(wanted) {
  if (JSON.stringify(wanted) !== JSON.stringify(filters)) {
    filters = wanted;
    batch(() => {
      clients.value = [];
      complete.value = false;
      failure.value = null;
    });
  }
  load();
  const stop = onEvent(follow);
  return () => {
    clearTimeout(next);
    clearTimeout(soon);
    soon = undefined;
    stop();
    reading?.abort();
  };
}

async function load() {
  reading?.abort();
  clearTimeout(next);
  const { signal: abort } = (reading = new AbortController());
  const begun = performance.now();
  /** @type {ClientView[]} */
  const found = [];
  try {
    // The list that is shown stays until the new one is whole, except at the very first.
    for await (const page of pages('v1/clients', { query: filters, signal: abort })) {
      found.push(...page.items);
      members.value = page.members ?? [];
      if (!complete.peek()) clients.value = found.slice();
    }
    batch(() => {
      clients.value = found;
      complete.value = true;
      failure.value = null;
      readAt.value = Date.now();
    });
  } catch (error) {
    if (!abort.aborted) failure.value = /** @type {Error} */ (error);
  }
  if (!abort.aborted) again(pauseAfter(REFRESH_MS, performance.now() - begun));
}

/** @param {number} pauseMs */
function again(pauseMs) {
  next = setTimeout(() => (document.hidden ? again(pauseMs) : load()), pauseMs);
}

/** @type {import('./live.js').Listener} */
function follow(event) {
  if (event.type === 'client_forgotten') {
    clients.value = clients.value.filter((client) => client.client_instance_id !== event.client_instance_id);
  } else if (event.type === 'client_created' && event.client_instance_id) {
    created.add(event.client_instance_id);
  } else if (event.type !== 'lost') {
    return;
  }
  const lost = event.type === 'lost';
  soon ??= setTimeout(() => {
    soon = undefined;
    if (lost || created.size > MOST_SINGLE_READS || Object.keys(filters).some((name) => name !== 'scope')) load();
    else readCreated();
    created.clear();
  }, 500);
}

function readCreated() {
  for (const id of created) {
    // Events are this receiver's own.
    read(`v1/clients/${id}`, { query: { scope: filters.scope } }).then(
      (client) => {
        const others = clients.value.filter((known) => known.client_instance_id !== id);
        clients.value = [...others, client];
      },
      // It may be gone again. The next reading of the list says so.
      () => {},
    );
  }
}
