// The destinations: what waits, what was lost and why.
import { html } from './dom.js';
import { useReceivers } from './receivers.js';
import { scope } from './router.js';
import { Scope } from './scope.js';
import { bytes, count, plural, span } from './text.js';
import { Bar, Command, Empty, Facts, Failure, Members, Notices, State, Text, Title } from './widgets.js';

/** @typedef {import('../types/rest').PluginView} PluginView */

export function DestinationsPage() {
  const { data, error } = useReceivers();
  const plugins = (data?.items ?? []).flatMap(({ receiver, status }) => status.destinations.map((plugin) => ({ receiver, plugin })));
  return html`
    <${Title} text="Destinations"><${Scope} /><//>
    <${Failure} error=${error} shown=${data !== undefined} />
    <${Members} members=${data?.members ?? []} />
    ${data && !plugins.length
      ? html`<${Empty} title="There is no destination">
          <p>Pushes are checked and dropped. Add a destination to <code>plugins</code> and reload, such as:</p>
          <${Command} text=${'plugins:\n  - {type: otlp, endpoint: "http://127.0.0.1:4317", protocol: grpc}'} />
        <//>`
      : null}
    <div class="columns">${plugins.map(({ receiver, plugin }) => html`<${Destination} key=${`${receiver} ${plugin.name}`} receiver=${receiver} plugin=${plugin} />`)}</div>
  `;
}

/** @param {{receiver: string, plugin: PluginView}} props */
function Destination({ receiver, plugin }) {
  const { waiting, spool, queue } = plugin;
  const dropped = Object.entries(plugin.dropped).filter(([, number]) => number > 0);
  const problems = [
    plugin.last_error !== null && plugin.consecutive_failures > 0 && `${plural(plugin.consecutive_failures, 'failure')} in a row, the last: ${plugin.last_error}`,
    spool?.problem,
    plugin.files_problem,
    waiting.full_in_s !== null && `At this rate it is full in ${span(waiting.full_in_s)}; then pushes are dropped.`,
  ].filter((text) => typeof text === 'string');
  /** @type {[string, unknown][]} */
  const entries = [
    ['Waiting', `${plural(waiting.pushes, 'push', 'pushes')}, ${bytes(waiting.bytes)}`],
    ['In memory', `${count(queue.pushes)} of ${count(queue.max_pushes)}, ${bytes(queue.bytes)} of ${bytes(queue.max_bytes)}`],
    ['On disk', spool ? `${count(spool.pushes)}, ${bytes(spool.bytes)} of ${bytes(spool.max_bytes)}` : 'no spool'],
    ['Oldest push', plugin.lag_s ? span(plugin.lag_s) : '–'],
    ['Delivered', `${count(plugin.exported)} of ${count(plugin.offered)} pushes`],
    ['Rejected data points', count(plugin.rejected_points)],
    ['Never delivered', dropped.map(([reason, number]) => `${count(number)} ${reason.replaceAll('_', ' ')}`).join(', ') || 'none'],
    ['Last error', html`<${Text} text=${plugin.last_error} none="none" />`],
  ];
  return html`<section>
    <h2><${Text} text=${plugin.name} /> <span class="note">${plugin.type}, ${plugin.delivery.replaceAll('_', ' ')}${scope.value && html`, <${Text} text=${receiver} />`}</span></h2>
    <p>Plugin <${State} state=${plugin.state} />, circuit <${State} state=${plugin.circuit} />${waiting.away_s > 0 ? ` for ${span(waiting.away_s)}` : ''}</p>
    <${Notices} texts=${problems} tone=${plugin.circuit === 'open' ? 'bad' : 'warn'} />
    <p>${waiting.used_percent} % of ${spool ? 'the spool' : 'the memory'} used
      <${Bar} part=${waiting.used_percent} whole=${100} label=${`Used part of ${plugin.name}`} /></p>
    <${Facts} entries=${entries} />
  </section>`;
}
