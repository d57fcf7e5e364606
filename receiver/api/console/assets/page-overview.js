// The overview: is everything right, and if not, where to look.
import { useRef } from 'preact/hooks';
import { pages } from './api.js';
import { html } from './dom.js';
import { Findings } from './findings.js';
import { softwareOf } from './page-clients.js';
import { problemsOf, sum, useReceivers } from './receivers.js';
import { useResource } from './resource.js';
import { href, scope } from './router.js';
import { Scope } from './scope.js';
import { SignList } from './signs.js';
import { bytes, count, plural, quoted } from './text.js';
import { Bar, Command, Facts, Failure, Figure, Listing, Members, Notices, State, Text, Title } from './widgets.js';

/** @typedef {import('./receivers.js').Receiver} Receiver */
/** @typedef {{receivers: Receiver[]}} Props */

const TRAFFIC_EVERY_MS = 15_000;

export function OverviewPage() {
  const { data, error } = useReceivers();
  const receivers = data?.items ?? [];
  const versions = [...new Set(receivers.map((receiver) => receiver.status.version))];
  return html`
    <${Title} text="Overview">${data && html`<span class="sum">version <${Text} text=${versions.join(', ')} /></span>`}<${Scope} /><//>
    <${Failure} error=${error} shown=${data !== undefined} />
    ${data && html`<${Members} members=${data.members ?? []} /><${Problems} receivers=${receivers} /><${Figures} receivers=${receivers} />
      <${SignList} /><${Findings} />
      <div class="columns"><${Versions} receivers=${receivers} /><${Destinations} receivers=${receivers} />
        ${receivers.map((receiver) => html`<${Machine} key=${receiver.receiver} receiver=${receiver} />`)}</div>`}
  `;
}

/**
 * Pushes a second between the last two readings, as the destinations are offered them.
 * @param {Receiver[]} receivers
 */
function usePushRate(receivers) {
  const seen = useRef(/** @type {{receivers: Receiver[], of: string, at: number, offered: number, rate: number | null}} */ ({ receivers: [], of: '', at: 0, offered: 0, rate: null }));
  if (receivers !== seen.current.receivers) {
    const known = receivers.filter((receiver) => receiver.status.destinations.length);
    const offered = sum(known, (receiver) => Math.max(...receiver.status.destinations.map((plugin) => plugin.offered)));
    const of = known.map((receiver) => receiver.receiver).join(' ');
    const at = performance.now();
    const rate = of && of === seen.current.of ? Math.max(0, ((offered - seen.current.offered) * 1000) / (at - seen.current.at)) : null;
    seen.current = { receivers, of, at, offered, rate };
  }
  return seen.current.rate;
}

/** What clients moved in the last minute; undefined: not known yet. */
function useBytesOfMinute() {
  const { data } = useResource((signal) => loadTraffic(signal), [scope.value], { every: TRAFFIC_EVERY_MS });
  return data;
}

/** @param {AbortSignal} signal */
async function loadTraffic(signal) {
  let moved = 0;
  for await (const page of pages('v1/connections', { query: { by: 'listener', scope: scope.value }, signal }, 1000)) {
    for (const { last_minute: minute } of page.items) moved += minute ? minute.bytes_in + minute.bytes_out : 0;
  }
  return moved;
}

/** @param {Props} props */
export function Problems({ receivers }) {
  const { bad, warn } = problemsOf(receivers);
  if (!bad.length && !warn.length) return html`<p class="notice good">Nothing needs to be corrected.</p>`;
  return html`<section aria-label="What should be corrected"><${Notices} texts=${bad} tone="bad" /><${Notices} texts=${warn} /></section>`;
}

/** @param {Props} props */
function Figures({ receivers }) {
  const rate = usePushRate(receivers);
  const moved = useBytesOfMinute();
  /** @param {string} state @param {'good' | 'warn' | 'bad' | ''} tone */
  const figure = (state, tone) => {
    const number = sum(receivers, ({ status: { clients } }) => clients.by_state[/** @type {keyof typeof clients.by_state} */ (state)] ?? 0);
    return html`<${Figure} key=${state} name=${state} value=${count(number)} tone=${number ? tone : ''} link=${href(['clients'], { state })} />`;
  };
  // Receivers may share a store.
  const active = Math.max(0, ...receivers.map(({ status }) => status.subscriptions.by_state.active ?? 0));
  return html`<div class="figures">
    <${Figure} name="clients" value=${count(sum(receivers, ({ status }) => status.clients.known))} link=${href(['clients'])} />
    ${figure('pushing', 'good')}${figure('silent', 'warn')}${figure('failing', 'bad')}${figure('waiting', '')}
    <${Figure} name="disconnected since the start" value=${count(sum(receivers, ({ status }) => status.clients.disconnected))} link=${href(['connections'], { closed: 'true' })} />
    <${Figure} name="pushes a second" value=${rate === null ? '–' : rate < 10 ? rate.toFixed(1) : count(rate)} />
    <${Figure} name="connections" value=${count(sum(receivers, ({ status }) => status.connections))} link=${href(['connections'])} />
    <${Figure} name="traffic of the last minute" value=${bytes(moved)} link=${href(['connections'], { by: 'principal' })} />
    <${Figure} name="active subscriptions" value=${count(active)} link=${href(['subscriptions'])} />
  </div>`;
}

/** @param {Props} props */
function Versions({ receivers }) {
  /** @type {Map<string, import('../types/rest').VersionView>} */
  const found = new Map();
  for (const version of receivers.flatMap((receiver) => receiver.status.clients.versions)) {
    const known = found.get(softwareOf(version));
    found.set(softwareOf(version), { ...version, clients: version.clients + (known?.clients ?? 0) });
  }
  const versions = [...found.values()].sort((left, right) => right.clients - left.clients).slice(0, 5);
  const all = sum(receivers, ({ status }) => status.clients.known);
  return html`<section>
    <h2><a href=${href(['versions'])}>Versions</a></h2>
    ${versions.length
      ? html`<${Listing} label="Versions" columns=${[['Software'], ['Clients', 'number'], ['Share']]}>${versions.map(
            (version) => html`<tr key=${softwareOf(version)}>
              <td class="wrap"><a href=${href(['clients'], { software: quoted(version.client_software_name), version: quoted(version.client_software_version) })}><${Text} text=${softwareOf(version)} none="unknown" /></a></td>
              <td class="number">${count(version.clients)}</td>
              <td><${Bar} part=${version.clients} whole=${all} label=${`Share of ${softwareOf(version)}`} /></td></tr>`,
          )}<//>`
      : html`<p>No client is known yet. <a href=${href(['clients'])}>How a client appears</a></p>`}
  </section>`;
}

/** @param {Props} props */
function Destinations({ receivers }) {
  const plugins = receivers.flatMap(({ receiver, status }) => status.destinations.map((plugin) => ({ receiver, plugin })));
  return html`<section>
    <h2><a href=${href(['destinations'])}>Destinations</a></h2>
    ${plugins.length
      ? html`<${Listing} label="Destinations" columns=${[['Name'], ['State'], ['Waiting', 'number'], ['Delivered', 'number']]}>${plugins.map(
            ({ receiver, plugin }) => html`<tr key=${`${receiver} ${plugin.name}`}><td><${Text} text=${plugin.name} />${scope.value && html` <span class="note"><${Text} text=${receiver} /></span>`}</td>
              <td><${State} state=${plugin.circuit === 'closed' ? plugin.state : plugin.circuit} /></td>
              <td class="number">${count(plugin.waiting.pushes)}</td><td class="number">${count(plugin.exported)}</td></tr>`,
          )}<//>`
      : html`<p>There is none, so pushes are checked and dropped. Add one to the configuration, such as:</p>
          <${Command} text=${'plugins:\n  - {type: otlp, endpoint: "http://127.0.0.1:4317", protocol: grpc}'} />`}
  </section>`;
}

/** @param {{receiver: Receiver}} props */
function Machine({ receiver: { receiver, status } }) {
  const { running, expected } = status.relays;
  const restarts = Object.entries(status.restarts).filter(([, number]) => number > 0);
  const proven = status.listeners.filter((listener) => listener.broker.proven).length;
  /** @type {[string, unknown][]} */
  const entries = [
    ['Listeners', status.listeners.map((listener) => `${listener.name} ${listener.bind} → ${listener.upstream}`).join(', ') || '–'],
    ['Brokers', status.listeners.length ? html`${proven} of ${status.listeners.length} have proven their node id (<a href=${href(['doctor'])}>doctor</a>)` : '–'],
    ['Relays', `${running} of ${expected} run`],
    ['Restarts', restarts.map(([kind, number]) => plural(number, kind)).join(', ') || 'none'],
    ['Memory', bytes(status.processes.reduce((all, process) => all + process.resident_bytes, 0))],
  ];
  return html`<section><h2>${scope.value ? html`<${Text} text=${receiver} />` : 'This receiver'}</h2><${Facts} entries=${entries} /></section>`;
}
