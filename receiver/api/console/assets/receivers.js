// The state of this receiver, or of each one of the cluster.
import { read } from './api.js';
import { useResource } from './resource.js';
import { scope } from './router.js';
import { time } from './text.js';

/** @typedef {import('../types/rest').ReceiverView} Receiver */
/** @typedef {import('../types/rest').ReceiversView} Receivers */

const EVERY_MS = 5_000;
const EXPIRES_SOON_MS = 30 * 86_400_000;

/** The receivers of the scope, read every few seconds. */
export function useReceivers() {
  return /** @type {import('./resource.js').Resource<Receivers>} */ (
    useResource((signal) => read('v1/receivers', { query: { scope: scope.value }, signal }), [scope.value], { every: EVERY_MS, after: () => true })
  );
}

/** Add a number of each receiver up. @param {Receiver[]} receivers @param {(receiver: Receiver) => number} of */
export function sum(receivers, of) {
  return receivers.reduce((all, receiver) => all + of(receiver), 0);
}

/**
 * What should be corrected, in words.
 * @param {Receiver[]} receivers
 */
export function problemsOf(receivers) {
  const all = receivers.map((receiver) => ({ receiver, ...ofOne(receiver) }));
  /** @param {'bad' | 'warn'} tone */
  const texts = (tone) => [
    ...new Set(all.flatMap((entry) => entry[tone].map((text) => (scope.value ? `${entry.receiver.receiver}: ${text}` : text)))),
  ];
  return { bad: texts('bad'), warn: texts('warn') };
}

/** @param {Receiver} receiver @returns {{bad: string[], warn: string[]}} */
function ofOne({ status }) {
  const listeners = status.listeners.flatMap((listener) =>
    [listener.bypass, listener.crossed, listener.hidden_telemetry]
      .filter((text) => text !== null)
      .map((text) => `Listener ${listener.name}: ${text}`),
  );
  const certificates = status.certificates
    .filter((certificate) => new Date(certificate.expires_at).getTime() - Date.now() < EXPIRES_SOON_MS)
    .map((certificate) => `The certificate of ${certificate.listener} (${certificate.side}) expires on ${time(certificate.expires_at)}.`);
  const subscriptions = status.subscriptions;
  const unmatched = subscriptions.unmatched.map((name) => `The subscription ${name} matches no known client.`);
  return {
    bad: [status.problem, subscriptions.problem].filter((text) => text !== null),
    // A warning may say the same as a listener.
    warn: [...status.warnings, ...listeners, ...certificates, ...unmatched],
  };
}
