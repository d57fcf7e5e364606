// What happens in the receiver, as its stream of events says it.
import { signal } from '@preact/signals';
import { loginNeeded } from './api.js';

/** @typedef {import('../types/rest').EventView} EventView */
/** @typedef {(event: EventView | {type: 'lost'}) => void} Listener */

const TYPES = [
  'subscription_created',
  'subscription_changed',
  'subscription_deleted',
  'subscription_expired',
  'owner_created',
  'owner_changed',
  'owner_deleted',
  'client_created',
  'client_forgotten',
];
const RETRY_MS = 5_000;
// A stream ends every 25 seconds, and the browser connects again after a tenth of a second.
const STALE_MS = 5_000;

/** Whether events arrive. When they don't, what is shown may be old. */
export const stale = signal(false);

/** @type {Set<Listener>} */
const listeners = new Set();
/** @type {string | null} */
let lastId = null;
/** @type {number | undefined} */
let patience;

/**
 * Call a function for each event until the returned function is called. After an event `lost`,
 * read everything again.
 * @param {Listener} listener
 */
export function onEvent(listener) {
  listeners.add(listener);
  return () => {
    listeners.delete(listener);
  };
}

/** Connect, and stay connected. */
export function connect() {
  if (loginNeeded.peek()) {
    setTimeout(connect, RETRY_MS);
    return;
  }
  const source = new EventSource(lastId === null ? 'v1/events' : `v1/events?after=${encodeURIComponent(lastId)}`);
  source.onopen = () => {
    clearTimeout(patience);
    patience = undefined;
    stale.value = false;
  };
  source.onerror = () => {
    patience ??= setTimeout(() => (stale.value = true), STALE_MS);
    // Such as after 429, when the browser gives up.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, RETRY_MS);
  };
  source.addEventListener('lost', (message) => deliver(message, { type: 'lost' }));
  for (const type of TYPES) {
    source.addEventListener(type, (message) => deliver(message, JSON.parse(message.data)));
  }
}

/** @param {MessageEvent} message @param {EventView | {type: 'lost'}} event */
function deliver(message, event) {
  if (message.lastEventId) lastId = message.lastEventId;
  for (const listener of listeners) listener(event);
}
