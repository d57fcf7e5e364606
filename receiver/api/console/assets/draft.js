// A subscription while it is edited: texts of fields, and what they mean for REST. Pure.

/** @typedef {import('../types/rest').SubscriptionView} SubscriptionView */
/** @typedef {{selector: string, pattern: string}} Condition */

/** The selectors of a subscription. A test compares them with the receiver's. */
export const SELECTORS = [
  'client_instance_id',
  'client_id',
  'client_software_name',
  'client_software_version',
  'client_source_address',
  'client_source_port',
  'principal',
  'listener',
  'security_protocol',
  'client_rack',
  'group_id',
  'group_member_id',
  'transactional_id',
  'application_id',
];

/**
 * @typedef {object} Draft
 * @property {string} name
 * @property {string} metrics A prefix a line.
 * @property {string} seconds The push interval.
 * @property {Condition[]} match
 * @property {boolean} enabled
 * @property {string} expires A local time, as `datetime-local` has it; empty: never.
 * @property {string} temporality
 * @property {string} labels `key=value` a line.
 * @property {string} description
 */

/** @type {Draft} */
export const NEW = {
  name: '',
  metrics: '*',
  seconds: '60',
  match: [],
  enabled: true,
  expires: '',
  temporality: '',
  labels: '',
  description: '',
};

/** @param {SubscriptionView} subscription @returns {Draft} */
export function draftOf(subscription) {
  return {
    name: subscription.name,
    metrics: subscription.metrics.join('\n'),
    seconds: String(subscription.interval_ms / 1000),
    match: Object.entries(subscription.match).map(([selector, pattern]) => ({ selector, pattern })),
    enabled: subscription.enabled,
    expires: subscription.expires_at ? localTime(new Date(subscription.expires_at)) : '',
    temporality: subscription.temporality ?? '',
    labels: Object.entries(subscription.labels).map(([key, value]) => `${key}=${value}`).join('\n'),
    description: subscription.description,
  };
}

/**
 * The body for REST, without the name.
 * @param {Draft} draft
 */
export function bodyOf(draft) {
  return {
    metrics: lines(draft.metrics),
    interval_ms: Math.round(Number(draft.seconds) * 1000),
    match: Object.fromEntries(draft.match.filter(({ pattern }) => pattern).map(({ selector, pattern }) => [selector, pattern])),
    enabled: draft.enabled,
    expires_at: draft.expires ? new Date(draft.expires).toISOString() : null,
    temporality: draft.temporality || null,
    labels: Object.fromEntries(lines(draft.labels).map(label)),
    description: draft.description,
  };
}

/**
 * What differs between two bodies, a line for each field or key.
 * @param {Record<string, any>} before @param {Record<string, any>} after
 * @returns {{field: string, before: string | null, after: string | null}[]}
 */
export function differences(before, after) {
  return Object.keys(after).flatMap((field) => {
    if (field === 'metrics') return members(field, before[field] ?? [], after[field]);
    if (field === 'match' || field === 'labels') return keys(field, before[field] ?? {}, after[field]);
    const [old, now] = [before[field] ?? null, after[field] ?? null];
    const same = field === 'expires_at' ? instant(old) === instant(now) : old === now;
    return same ? [] : [{ field, before: shown(old), after: shown(now) }];
  });
}

/** @param {string} field @param {string[]} before @param {string[]} after */
function members(field, before, after) {
  const all = [...new Set([...before, ...after])];
  return all
    .filter((member) => before.includes(member) !== after.includes(member))
    .map((member) => ({ field, before: before.includes(member) ? member : null, after: after.includes(member) ? member : null }));
}

/** @param {string} field @param {Record<string, string>} before @param {Record<string, string>} after */
function keys(field, before, after) {
  return [...new Set([...Object.keys(before), ...Object.keys(after)])]
    .filter((key) => before[key] !== after[key])
    .map((key) => ({ field: `${field}.${key}`, before: before[key] ?? null, after: after[key] ?? null }));
}

/** @param {string | null} text */
function instant(text) {
  return text === null ? null : Math.floor(new Date(text).getTime() / 60_000);
}

/** @param {unknown} value */
function shown(value) {
  return value === null || value === '' ? null : String(value);
}

/** @param {string} text */
function lines(text) {
  return text.split('\n').map((line) => line.trim()).filter(Boolean);
}

/** @param {string} line @returns {[string, string]} */
function label(line) {
  const at = line.indexOf('=');
  return at < 0 ? [line, ''] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
}

/** @param {Date} date */
function localTime(date) {
  const local = new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return local.toISOString().slice(0, 16);
}
