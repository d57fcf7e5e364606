// One client: who it is, what it is asked for and why, and when it pushes next.
import { pages, read } from './api.js';
import { html } from './dom.js';
import { Findings } from './findings.js';
import { Links } from './links.js';
import { softwareOf } from './page-clients.js';
import { useResource } from './resource.js';
import { href, route, scope } from './router.js';
import { SignOf, useSigns } from './signs.js';
import { ago, count, plural, quoted, span, time, visible } from './text.js';
import { ValuesOf } from './values.js';
import { Command, Facts, Failure, Listing, Members, Notices, State, Text, Title } from './widgets.js';

/** @typedef {import('../types/rest').ClientView} ClientView */
/** @typedef {import('../types/rest').ClientExplanationView} Explanation */
/** @typedef {import('../types/rest').ConnectionView} ConnectionView */
/** @typedef {{client: ClientView, explanation: Explanation, connections: ConnectionView[]}} Known */

const EVERY_MS = 5_000;

export function ClientPage() {
  const id = route.value.parts[1];
  const { data, error } = useResource((signal) => load(id, signal), [id, scope.value], { every: EVERY_MS, after: () => true });
  const name = data ? visible(data.client.client_id) || '(no client id)' : `Client ${visible(id)}`;
  return html`
    <${Title} text=${name}>${data && html`<${State} state=${data.client.state} />`}<//>
    <${Failure} error=${error} shown=${data !== undefined} />
    <${Members} members=${data?.client.members ?? []} />
    ${data && html`<${Links} client=${data.client} /><${Problems} client=${data.client} /><${Signs} id=${id} />
      <${Findings} client=${data.client} />
      <div class="columns">
        <${Identity} client=${data.client} />
        <${Next} client=${data.client} explanation=${data.explanation} />
      </div>
      <${ValuesOf} key=${id} id=${id} />
      <${Asked} explanation=${data.explanation} />
      ${data.client.via !== 'bridge' && html`<${Connections} connections=${data.connections} />`}
      <section><h2>From a terminal</h2><${Command} text=${`kafka-telemetry clients explain ${data.client.client_instance_id}`} /></section>`}
  `;
}

/** @param {string} id @param {AbortSignal} signal @returns {Promise<Known>} */
async function load(id, signal) {
  const query = { scope: scope.value };
  const path = `v1/clients/${encodeURIComponent(id)}`;
  const [client, explanation] = await Promise.all([read(path, { query, signal }), read(`${path}/explain`, { query, signal })]);
  /** @type {ConnectionView[]} */
  const connections = [];
  // REST takes patterns of at most 1,024 characters.
  const pattern = quoted(client.client_id);
  const filters = pattern && pattern.length <= 1024 ? { ...query, client_id: pattern } : query;
  for await (const page of pages('v1/connections', { query: filters, signal }, 1000)) {
    connections.push(...page.items.filter((connection) => connection.client_instance_id === id));
  }
  return { client, explanation, connections };
}

/** @param {{client: ClientView}} props */
function Problems({ client }) {
  const { reduced, plugin_behind: plugin } = client;
  const texts = [
    client.state === 'silent' && `It has sent no telemetry request for ${span(client.last_request_age_s)}, longer than one and a half push intervals. Is it running, and can it reach the sidecar?`,
    client.state === 'failing' && `The last answer to it was ${client.last_error}.`,
    client.state === 'unsubscribed' && 'No active subscription matches it, so it pushes nothing.',
    reduced && `It is asked for ${reduced.to === 'nothing' ? 'nothing' : 'standard metrics only'} for ${span(reduced.relaxes_in_s)}, because ${reduced.offence === 'too_large' ? 'several pushes in a row were too large' : 'it pushed too many bytes in a minute'}.`,
    client.interval_factor > 1 && `Its push interval is ${client.interval_factor} times as long, because ${plugin ? `the destination ${plugin} is behind` : 'a destination was behind'}.`,
    ...client.quirks,
  ].filter((text) => typeof text === 'string');
  return html`<${Notices} texts=${texts} tone=${client.state === 'failing' ? 'bad' : 'warn'} />`;
}

/** What its latest push shows. @param {{id: string}} props */
function Signs({ id }) {
  const own = useSigns().data?.items.filter((sign) => sign.client_instance_id === id) ?? [];
  return own.map((sign) => html`<${SignOf} key=${sign.kind} sign=${sign} />`);
}

/** @param {{client: ClientView}} props */
function Identity({ client }) {
  /** @param {string} name @param {string} value @param {string} shown */
  const others = (name, value, shown) => html`<a href=${href(['clients'], { [name]: quoted(value) })}><${Text} text=${shown} /></a>`;
  const version = client.client_software_version;
  /** @type {[string, unknown][]} */
  const entries = [
    ['Client id', html`<${Text} text=${client.client_id} none="(empty)" />`],
    ['Software', html`<a href=${href(['clients'], { software: quoted(client.client_software_name), version: version && quoted(version) })}><${Text} text=${softwareOf(client)} none="unknown" /></a>`],
    ['Principal', others('principal', client.principal, client.principal)],
    ['Owner', client.owner ? html`${others('owner', client.owner, client.owner)} <${Contact} team=${client.owner} />` : html`<span class="none">nobody declares it (<code>owners.path</code>)</span>`],
    ['Login', `${client.security_protocol}${client.sasl_mechanism ? `, ${client.sasl_mechanism}` : ''}`],
    ['Address', html`<${Text} text=${client.source_port === null ? client.source_address : `${client.source_address}:${client.source_port}`} />`],
    ...(client.receiver ? [/** @type {[string, unknown]} */ (['Receiver', html`<${Text} text=${client.receiver} />`])] : []),
    ['Listener', client.via === 'bridge' ? 'a bridge in the broker' : others('listener', client.listener, client.listener)],
    ['Consumer group', html`<${Text} text=${client.group_id} none="none revealed" />`],
    ['Member id', html`<${Text} text=${client.group_member_id} none="none revealed" />`],
    ['Transactional id', html`<${Text} text=${client.transactional_id} none="none revealed" />`],
    ['Streams application', html`<${Text} text=${client.application_id} none="none revealed" />`],
    ['Rack', html`<${Text} text=${client.client_rack} none="none revealed" />`],
    ['Client instance id', html`<code>${client.client_instance_id}</code>`],
  ];
  return html`<section><h2>Who it is</h2><${Facts} entries=${entries} /></section>`;
}

/** How to reach an owner. @param {{team: string}} props */
function Contact({ team }) {
  const { data } = useResource((signal) => loadOwners(signal), [], { every: 60_000 });
  const owner = data?.find((known) => known.team === team);
  return owner?.contact ? html`(<${Text} text=${owner.contact} />)` : null;
}

/** @param {AbortSignal} signal @returns {Promise<import('../types/rest').OwnerView[]>} */
async function loadOwners(signal) {
  const found = [];
  for await (const page of pages('v1/owners', { signal }, 1000)) found.push(...page.items);
  return found;
}

/** @param {{client: ClientView, explanation: Explanation}} props */
function Next({ client, explanation }) {
  const within = client.state === 'silent' ? 'overdue' : `within ${span(explanation.asked_within_ms / 1000)}`;
  /** @type {[string, unknown][]} */
  const entries = [
    ['Accepted pushes', count(client.pushes)],
    ['Last push', ago(client.last_push_age_s)],
    ['Last request', ago(client.last_request_age_s)],
  ];
  if (client.via === 'bridge') {
    entries.push(['Gets and answers', 'between it and its broker: a bridge shows pushes only']);
  } else {
    entries.push(
      ['Next request', client.terminating ? 'none: its last push was its last' : within],
      ['Latest answer', client.last_error === 'NONE' ? 'success' : client.last_error],
      ['What it is asked for', explanation.in_effect ? 'in effect' : 'changes with its next request'],
    );
  }
  return html`<section>
    <h2>Pushes</h2>
    ${client.pushes === 0 && html`<p>${whyNone(client, explanation)}</p>`}
    <${Facts} entries=${entries} />
  </section>`;
}

/** Why a client has not pushed. @param {ClientView} client @param {Explanation} explanation */
function whyNone(client, explanation) {
  if (explanation.requested_metrics.length === 0) return 'It has not pushed, because it is asked for no metrics.';
  if (client.state === 'waiting') {
    return `It has not pushed yet: the first push comes half a push interval to one and a half after it asked, so within ${span(explanation.asked_within_ms / 1000)}.`;
  }
  return 'None of its pushes was accepted.';
}

/** @param {{explanation: Explanation}} props */
function Asked({ explanation }) {
  const { interval_from: interval, temporality_from: temporality } = explanation;
  /** @param {string} origin @param {string[]} names */
  const because = (origin, names) =>
    names.length ? html` (${names.map((name, index) => html`${index ? ', ' : ''}<a key=${name} href=${href(['subscriptions', name])}><${Text} text=${name} /></a>`)})` : ` (${origin.replaceAll('_', ' ')})`;
  const not = explanation.subscriptions.filter((verdict) => !verdict.matches);
  const bridged = explanation.via === 'bridge';
  return html`<section>
    <h2>${bridged ? 'What this receiver would ask it for' : 'What it is asked for'}</h2>
    ${bridged && html`<p>Its broker decides${explanation.differs.length ? ', and does otherwise:' : '; no difference is known.'}</p>
      <ul>${explanation.differs.map((text) => html`<li key=${text}><${Text} text=${text} /></li>`)}</ul>`}
    <p>Every ${span(explanation.push_interval_ms / 1000)}${because(interval.origin, interval.subscriptions)},${' '}
      ${explanation.temporality} counters${because(temporality.origin, temporality.subscriptions)}:</p>
    ${explanation.metrics_from.length
      ? html`<ul>${explanation.metrics_from.map(
          (entry) => html`<li key=${entry.prefix}>${entry.prefix === '*' ? 'all metrics' : html`<code>${entry.prefix}</code>`}${because('', entry.subscriptions)}</li>`,
        )}</ul>`
      : html`<p>no metrics. <a href=${href(['subscriptions'])}>Create a subscription that matches it</a>.</p>`}
    ${not.length > 0 &&
    html`<details><summary>${plural(not.length, 'subscription does', 'subscriptions do')} not apply</summary>
      <ul>${not.map((verdict) => html`<li key=${verdict.name}><a href=${href(['subscriptions', verdict.name])}><${Text} text=${verdict.name} /></a>: ${verdict.reasons.map((reason) => visible(reason)).join('; ')}</li>`)}</ul>
    </details>`}
  </section>`;
}

/** @param {{connections: ConnectionView[]}} props */
function Connections({ connections }) {
  return html`<section>
    <h2>Open connections</h2>
    ${connections.length
      ? html`<${Listing} label="Open connections" columns=${[['Address'], ['Listener'], ['Protocol'], ['Since']]}>${connections.map(
            (connection) => html`<tr key=${connection.id}><td><${Text} text=${`${connection.source_address}:${connection.source_port ?? '–'}`} /></td>
              <td><${Text} text=${connection.listener} /></td><td>${connection.security_protocol}</td><td>${time(connection.since)}</td></tr>`,
          )}<//>`
      : html`<p>None of the open connections has sent its client instance id.</p>`}
  </section>`;
}

