// The overview: is everything right, and if not, where to look.
import { useRef } from 'preact/hooks';
import { read } from './api.js';
import { html } from './dom.js';
import { Findings } from './findings.js';
import { useResource } from './resource.js';
import { href } from './router.js';
import { SignList } from './signs.js';
import { bytes, count, plural, time } from './text.js';
import { Command, Facts, Failure, Figure, Listing, Notices, State, Text, Title } from './widgets.js';

/** @typedef {import('../types/rest').StatusView} StatusView */

const EVERY_MS = 5_000;
const EXPIRES_SOON_MS = 30 * 86_400_000;

/** The receiver's status, read every few seconds. */
export function useStatus() {
  return /** @type {import('./resource.js').Resource<StatusView>} */ (
    useResource((signal) => read('v1/status', { signal }), [], { every: EVERY_MS, after: () => true })
  );
}

export function OverviewPage() {
  const { data, error } = useStatus();
  const rate = usePushRate(data);
  return html`
    <${Title} text="Overview">${data && html`<span class="sum">version <${Text} text=${data.version} /></span>`}<//>
    <${Failure} error=${error} shown=${data !== undefined} />
    ${data && html`<${Problems} status=${data} /><${Figures} status=${data} rate=${rate} />
      <${SignList} /><${Findings} />
      <div class="columns"><${Destinations} status=${data} /><${Machine} status=${data} /></div>`}
  `;
}

/**
 * Pushes a second between the last two readings, as the destinations are offered them.
 * @param {StatusView | undefined} status
 */
function usePushRate(status) {
  const seen = useRef(/** @type {{status?: StatusView, at: number, offered: number, rate: number | null}} */ ({ at: 0, offered: 0, rate: null }));
  if (status && status !== seen.current.status) {
    const offered = Math.max(0, ...status.destinations.map((plugin) => plugin.offered));
    const at = performance.now();
    const known = seen.current.status !== undefined && status.destinations.length > 0;
    const rate = known ? Math.max(0, ((offered - seen.current.offered) * 1000) / (at - seen.current.at)) : null;
    seen.current = { status, at, offered, rate };
  }
  return seen.current.rate;
}

/** What should be corrected, in words. @param {StatusView} status */
export function problemsOf(status) {
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
    warn: [...new Set([...status.warnings, ...listeners, ...certificates, ...unmatched])],
  };
}

/** @param {{status: StatusView}} props */
export function Problems({ status }) {
  const { bad, warn } = problemsOf(status);
  if (!bad.length && !warn.length) return html`<p class="notice good">Nothing needs to be corrected.</p>`;
  return html`<section aria-label="What should be corrected"><${Notices} texts=${bad} tone="bad" /><${Notices} texts=${warn} /></section>`;
}

/** @param {{status: StatusView, rate: number | null}} props */
function Figures({ status, rate }) {
  const states = status.clients.by_state;
  /** @param {string} state @param {'good' | 'warn' | 'bad' | ''} tone */
  const figure = (state, tone) => {
    const number = states[/** @type {keyof typeof states} */ (state)] ?? 0;
    return html`<${Figure} key=${state} name=${state} value=${count(number)} tone=${number ? tone : ''} link=${href(['clients'], { state })} />`;
  };
  return html`<div class="figures">
    <${Figure} name="clients" value=${count(status.clients.known)} link=${href(['clients'])} />
    ${figure('pushing', 'good')}${figure('silent', 'warn')}${figure('failing', 'bad')}${figure('waiting', '')}
    <${Figure} name="pushes a second" value=${rate === null ? '–' : rate < 10 ? rate.toFixed(1) : count(rate)} />
    <${Figure} name="connections" value=${count(status.connections)} link=${href(['connections'])} />
    <${Figure} name="active subscriptions" value=${count(status.subscriptions.by_state.active ?? 0)} link=${href(['subscriptions'])} />
  </div>`;
}

/** @param {{status: StatusView}} props */
function Destinations({ status }) {
  return html`<section>
    <h2><a href=${href(['destinations'])}>Destinations</a></h2>
    ${status.destinations.length
      ? html`<${Listing} label="Destinations" columns=${[['Name'], ['State'], ['Waiting', 'number'], ['Delivered', 'number']]}>${status.destinations.map(
            (plugin) => html`<tr key=${plugin.name}><td><${Text} text=${plugin.name} /></td>
              <td><${State} state=${plugin.circuit === 'closed' ? plugin.state : plugin.circuit} /></td>
              <td class="number">${count(plugin.waiting.pushes)}</td><td class="number">${count(plugin.exported)}</td></tr>`,
          )}<//>`
      : html`<p>There is none, so pushes are checked and dropped. Add one to the configuration, such as:</p>
          <${Command} text=${'plugins:\n  - {type: otlp, endpoint: "http://127.0.0.1:4317", protocol: grpc}'} />`}
  </section>`;
}

/** @param {{status: StatusView}} props */
function Machine({ status }) {
  const { running, expected } = status.relays;
  const restarts = Object.entries(status.restarts).filter(([, number]) => number > 0);
  /** @type {[string, unknown][]} */
  const entries = [
    ['Listeners', status.listeners.map((listener) => `${listener.name} ${listener.bind} → ${listener.upstream}`).join(', ') || '–'],
    ['Relays', `${running} of ${expected} run`],
    ['Restarts', restarts.map(([kind, number]) => plural(number, kind)).join(', ') || 'none'],
    ['Memory', bytes(status.processes.reduce((sum, process) => sum + process.resident_bytes, 0))],
  ];
  return html`<section><h2>This receiver</h2><${Facts} entries=${entries} /></section>`;
}
