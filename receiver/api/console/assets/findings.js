// What the roll-up knows to be wrong, since when, and what to change.
import { read } from './api.js';
import { html } from './dom.js';
import { useResource } from './resource.js';
import { href } from './router.js';
import { plural, quoted, time, visible } from './text.js';
import { Failure, Text } from './widgets.js';

/** @typedef {import('../types/rest').FindingsView} Answer */
/** @typedef {import('../types/rest').FindingView} Finding */
/** @typedef {import('../types/rest').AdviceView} Advice */
/** @typedef {import('../types/rest').NamesView} Names */
/** @typedef {import('../types/rest').ClientView} ClientView */

// The roll-up looks once a minute.
const EVERY_MS = 30_000;
const MOST = 10;
// REST takes patterns of at most so many characters.
const LONGEST_PATTERN = 1024;

/** @type {Record<string, import('./widgets.js').Tone>} */
const TONES = { critical: 'bad', warning: 'warn', info: 'idle' };

/**
 * The open findings: of a client, or the worst of all.
 * @param {{client?: ClientView}} props
 */
export function Findings({ client }) {
  const query = client ? queryOf(client) : { severity: 'warning' };
  const { data, error } = /** @type {import('./resource.js').Resource<Answer>} */ (
    useResource((signal) => read('v1/findings', { query: { ...query, limit: MOST }, signal }), [JSON.stringify(query)], { every: EVERY_MS })
  );
  return html`<section class="findings">
    <h2>Findings</h2>
    <${Failure} error=${error} shown=${data !== undefined} />
    ${data && html`<${Answered} answer=${data} client=${client} />`}
  </section>`;
}

/** @param {ClientView} client */
function queryOf(client) {
  const patterns = { client_id: quoted(client.client_id), principal: quoted(client.principal) };
  return Object.fromEntries(Object.entries(patterns).filter(([, pattern]) => pattern && pattern.length <= LONGEST_PATTERN));
}

/** @param {{answer: Answer, client?: ClientView}} props */
function Answered({ answer, client }) {
  const { items, total, problem } = answer;
  if (problem !== null) return html`<p class=${answer.configured ? 'notice warn' : 'note'}>Not known: ${visible(problem, 1000)}</p>`;
  if (!items.length) return html`<p>The roll-up has no open finding${client ? ' about it' : ' of a warning or worse'}.</p>`;
  return html`${items.map((finding) => html`<${One} key=${`${finding.kind} ${finding.summary} ${finding.began_at}`} finding=${finding} open=${client !== undefined} />`)}
    ${total > items.length && html`<p class="note">and ${plural(total - items.length, 'more', 'more')}: <a href="v1/findings?limit=1000">all of them</a></p>`}`;
}

/** @param {{finding: Finding, open: boolean}} props */
function One({ finding, open }) {
  return html`<div class=${`notice ${TONES[finding.severity] ?? 'idle'}`}>
    <p><strong>${visible(finding.kind).replaceAll('_', ' ')}</strong> (${visible(finding.severity)}): <${Text} text=${finding.summary} />, since ${time(finding.began_at)}.
      ${!open && html` <${Who} finding=${finding} />`}</p>
    ${finding.advice.length > 0 && html`<details open=${open}><summary>What to change</summary>${finding.advice.map((advice) => html`<${Change} key=${advice.rule} advice=${advice} />`)}</details>`}
  </div>`;
}

/** The clients of a finding, and their owners. @param {{finding: Finding}} props */
function Who({ finding }) {
  const { client_ids: ids, owners } = finding;
  return html`<span class="note">${ids.first.map((id, index) => html`${index ? ', ' : ''}<a key=${id} href=${href(['clients'], { client_id: quoted(id) })}><${Text} text=${id} none="(no client id)" /></a>`)}
    ${ids.count > ids.first.length && ` and ${ids.count - ids.first.length} more`}${owners.count > 0 && html`, owner ${owners.first.map((name) => visible(name)).join(', ')}`}</span>`;
}

/** @param {{advice: Advice}} props */
function Change({ advice }) {
  return html`<p>${visible(advice.now, 1000)}. ${visible(advice.why, 1000)}</p>
    <ul>${Object.entries(advice.change).map(([library, change]) => html`<li key=${library}>${library === 'all' ? '' : `${visible(library)}: `}<code>${visible(change, 1000)}</code></li>`)}</ul>
    <p class="note">It can't see: ${visible(advice.cannot_see, 1000)}. Source: ${visible(advice.source, 1000)}</p>`;
}
