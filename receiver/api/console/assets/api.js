// The REST API. Paths are relative, so that the console also works below a path of a proxy.
import { computed, signal } from '@preact/signals';

/** @typedef {import('../types/rest').SessionView} SessionView */

/** What went wrong with a request, as the receiver's problem document (RFC 9457) says it. */
export class Problem extends Error {
  /**
   * @param {number} status 0: there was no answer.
   * @param {string} detail
   * @param {{field: string, value?: unknown, detail: string}[]} [errors]
   */
  constructor(status, detail, errors = []) {
    super(detail);
    this.status = status;
    this.errors = errors;
  }
}

/** Whether the receiver wants to know who asks. */
export const loginNeeded = signal(false);

/** @type {import('@preact/signals').Signal<SessionView | null>} */
export const session = signal(null);

/**
 * @typedef {object} Options
 * @property {Record<string, unknown>} [query] Parameters; those that are empty are left out.
 * @property {unknown} [body] Sent as JSON.
 * @property {Record<string, string>} [headers]
 * @property {AbortSignal} [signal]
 */

/**
 * Send a request and return the answer; raises Problem.
 * @param {string} method @param {string} path @param {Options} [options]
 */
export async function send(method, path, { query = {}, body, headers = {}, signal: abort } = {}) {
  const given = Object.entries(query).filter(([, value]) => value != null && value !== '');
  const parameters = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  const all = new Headers(headers);
  if (body !== undefined) all.set('content-type', 'application/json');
  const csrf = session.value?.csrf_token;
  if (csrf && method !== 'GET') all.set('kafka-telemetry-csrf', csrf);
  let answer;
  try {
    answer = await fetch(given.length ? `${path}?${parameters}` : path, {
      method,
      headers: all,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: abort,
      redirect: 'error',
    });
  } catch (error) {
    if (abort?.aborted) throw error;
    throw new Problem(0, 'The receiver does not answer.');
  }
  if (answer.ok) return answer;
  if (answer.status === 401) loginNeeded.value = true;
  const problem = await answer.json().catch(() => ({}));
  throw new Problem(answer.status, problem.detail ?? `The answer is ${answer.status}.`, problem.errors);
}

/** Learn who the receiver takes us for. */
export async function readSession() {
  session.value = await read('v1/session');
  loginNeeded.value = false;
}

/**
 * Exchange a token for a session cookie; raises Problem.
 * @param {string} token
 */
export async function logIn(token) {
  session.value = await (await send('POST', 'v1/session', { headers: { authorization: `Bearer ${token}` } })).json();
  loginNeeded.value = false;
}

export async function logOut() {
  await send('DELETE', 'v1/session');
  session.value = null;
  loginNeeded.value = true;
}

/** Whether we may change something. */
export const mayChange = computed(() => session.value?.role === 'editor');

/**
 * Read a document; raises Problem.
 * @param {string} path @param {Options} [options]
 * @returns {Promise<any>}
 */
export async function read(path, options) {
  return (await send('GET', path, options)).json();
}

/**
 * Read a list page by page. The first page is small, because somebody waits for it.
 * @param {string} path @param {Options} [options] @param {number} [first] @param {number} [following]
 * @returns {AsyncGenerator<{items: any[], next: string | null, members?: import('../types/rest').MemberView[]}>}
 */
export async function* pages(path, options = {}, first = 25, following = 1000) {
  let after;
  let limit = first;
  do {
    const page = await read(path, { ...options, query: { ...options.query, limit, after } });
    yield page;
    after = page.next;
    limit = following;
  } while (after != null);
}
