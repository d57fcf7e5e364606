// The editor of a subscription: while one types, which clients it matches and what it costs.
import { useEffect, useState } from 'preact/hooks';
import { Problem, mayChange, send } from './api.js';
import { html } from './dom.js';
import { NEW, SELECTORS, bodyOf, differences, draftOf } from './draft.js';
import { onEvent } from './live.js';
import { ClientLink } from './page-clients.js';
import { go, href } from './router.js';
import { bytes, count, span, time } from './text.js';
import { Failure, Notices, State, Text, Title } from './widgets.js';

/** @typedef {import('../types/rest').SubscriptionView} SubscriptionView */
/** @typedef {import('../types/rest').DryRunView} DryRun */
/** @typedef {import('./draft.js').Draft} Draft */
/** @typedef {{subscription: SubscriptionView, tag: string}} Stored */

const PAUSE_MS = 250;

/** @param {{name: string | null}} props null: a new one. */
export function Editor({ name }) {
  const [stored, setStored] = useState(/** @type {Stored | null} */ (null));
  const [draft, setDraft] = useState(/** @type {Draft | null} */ (name === null ? NEW : null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [notes, setNotes] = useState(/** @type {string[]} */ ([]));
  const [newer, setNewer] = useState(false);
  const load = async (/** @type {boolean} */ keepDraft) => {
    if (name === null) return;
    try {
      const found = await readStored(name);
      setStored(found);
      setError(null);
      setNewer(false);
      if (!keepDraft) setDraft(draftOf(found.subscription));
    } catch (problem) {
      setError(/** @type {Error} */ (problem));
    }
  };
  useEffect(() => {
    load(false);
    return onEvent((event) => {
      if (event.type.startsWith('subscription') && 'subscription' in event && event.subscription === name) setNewer(true);
    });
  }, [name]);
  /** @param {Partial<Draft>} changes */
  const change = (changes) => draft && setDraft({ ...draft, ...changes });
  const changes = draft ? differences(stored ? stored.subscription : {}, bodyOf(draft)) : [];
  const save = async () => {
    if (!draft) return;
    setError(null);
    const target = name ?? draft.name.trim();
    // A change that somebody made meanwhile is not overwritten (RFC 9110, section 13.1).
    const headers = stored ? { 'if-match': stored.tag } : /** @type {Record<string, string>} */ ({ 'if-none-match': '*' });
    try {
      const answer = await send('PUT', pathOf(target), { body: bodyOf(draft), headers });
      const saved = await answer.json();
      const asked = Number(answer.headers.get('kafka-telemetry-asked-within-ms'));
      // Its new entity tag comes first: the next change needs it.
      if (name !== null) await load(false);
      setNotes([`Saved. Every connected client asks for it within ${span(asked / 1000)}.`, ...(saved.warnings ?? [])]);
      if (name === null) go(href(['subscriptions', target]));
    } catch (problem) {
      setError(/** @type {Error} */ (problem));
      if (problem instanceof Problem && problem.status === 412) await load(true).then(() => setError(/** @type {Error} */ (problem)));
    }
  };
  const remove = async () => {
    if (!stored || !confirm(`Delete the subscription ${stored.subscription.name}?`)) return;
    try {
      await send('DELETE', pathOf(stored.subscription.name), { headers: { 'if-match': stored.tag } });
      go(href(['subscriptions']));
    } catch (problem) {
      setError(/** @type {Error} */ (problem));
    }
  };
  return html`
    <${Title} text=${name ?? 'New subscription'}>
      ${stored && html`<${State} state=${stored.subscription.state} />
        <span class="sum">${stored.subscription.changed_at ? `changed ${time(stored.subscription.changed_at)}` : ''}${stored.subscription.changed_by ? html` by <${Text} text=${stored.subscription.changed_by} />` : ''}</span>`}
    <//>
    <p><a href=${href(['subscriptions'])}>All subscriptions</a></p>
    <${Failure} error=${error} />
    <${Notices} texts=${notes} tone="good" />
    ${newer && !changes.length && html`<p class="notice warn">It was changed elsewhere. <button type="button" onClick=${() => load(false)}>Show the change</button></p>`}
    ${newer && changes.length > 0 && html`<p class="notice warn">It was changed elsewhere. <button type="button" onClick=${() => load(true)}>Compare with the change</button></p>`}
    ${draft && html`<div class="columns">
      <${Form} draft=${draft} change=${change} isNew=${name === null} error=${error} />
      <div class="stack">
        <${Effect} draft=${draft} name=${name} />
        <${Changes} changes=${changes} />
        ${mayChange.value
          ? html`<div class="buttons">
              <button type="button" class="main" disabled=${!changes.length || (name === null && !draft.name.trim())} onClick=${save}>Save</button>
              ${stored && html`<button type="button" disabled=${!changes.length} onClick=${() => setDraft(draftOf(stored.subscription))}>Undo</button>
                <button type="button" onClick=${remove}>Delete</button>`}
            </div>`
          : html`<p class="note">Your role may only read: nothing here can be saved.</p>`}
      </div>
    </div>`}
  `;
}

/** @param {string} name */
function pathOf(name) {
  return `v1/subscriptions/${name.split('/').map(encodeURIComponent).join('/')}`;
}

/** @param {string} name @returns {Promise<Stored>} */
async function readStored(name) {
  const answer = await send('GET', pathOf(name));
  return { subscription: await answer.json(), tag: answer.headers.get('etag') ?? '' };
}

/** @typedef {{draft: Draft, change: (changes: Partial<Draft>) => void, isNew: boolean, error: Error | null}} FormProps */

/** @param {FormProps} props */
function Form({ draft, change, isNew, error }) {
  const errors = error instanceof Problem ? error.errors : [];
  /** @param {keyof Draft} field */
  const set = (field) => (/** @type {{currentTarget: HTMLInputElement}} */ event) => change({ [field]: event.currentTarget.value });
  /** @param {string} field */
  const wrong = (field) => {
    const found = errors.filter((entry) => entry.field.split(/[.[]/)[0] === field);
    return found.length > 0 && html`<span class="wrong">${found.map((entry) => entry.detail).join('; ')}</span>`;
  };
  return html`<section class="form">
    ${isNew && html`<label>Name <input value=${draft.name} onInput=${set('name')} required />${wrong('name')}</label>`}
    <label><span>Metrics: a prefix a line, <code>*</code> for all metrics</span>
      <textarea value=${draft.metrics} onInput=${set('metrics')} spellcheck=${false} rows="4"></textarea>${wrong('metrics')}</label>
    <label>Push interval in seconds <input type="number" min="0.1" max="3600" step="any" value=${draft.seconds} onInput=${set('seconds')} />${wrong('interval_ms')}</label>
    <${Match} draft=${draft} change=${change} />${wrong('match')}
    <label class="check"><input type="checkbox" checked=${draft.enabled} onChange=${(/** @type {{currentTarget: HTMLInputElement}} */ event) => change({ enabled: event.currentTarget.checked })} /> Enabled</label>
    <label>Expires <input type="datetime-local" value=${draft.expires} onInput=${set('expires')} />${wrong('expires_at')}</label>
    <label>Counters <select value=${draft.temporality} onChange=${set('temporality')}>
      <option value="">as the receiver prefers</option><option value="delta">delta</option><option value="cumulative">cumulative</option>
    </select></label>
    <label><span>Labels: <code>key=value</code> a line</span> <textarea value=${draft.labels} onInput=${set('labels')} rows="2" spellcheck=${false}></textarea>${wrong('labels')}</label>
    <label>Description <textarea value=${draft.description} onInput=${set('description')} rows="2"></textarea>${wrong('description')}</label>
  </section>`;
}

/** @param {{draft: Draft, change: (changes: Partial<Draft>) => void}} props */
function Match({ draft, change }) {
  /** @param {number} index @param {Partial<import('./draft.js').Condition>} changes */
  const set = (index, changes) => change({ match: draft.match.map((entry, at) => (at === index ? { ...entry, ...changes } : entry)) });
  const free = SELECTORS.find((selector) => !draft.match.some((entry) => entry.selector === selector)) ?? SELECTORS[0];
  return html`<fieldset>
    <legend>Clients: all of these regular expressions (RE2) match the whole value</legend>
    ${draft.match.map((entry, index) => html`<div class="condition" key=${index}>
      <select aria-label="Selector" value=${entry.selector} onChange=${(/** @type {{currentTarget: HTMLSelectElement}} */ event) => set(index, { selector: event.currentTarget.value })}>
        ${SELECTORS.flatMap((selector) => [selector, `${selector}!`]).map((selector) => html`<option key=${selector} value=${selector}>${selector.endsWith('!') ? `not ${selector.slice(0, -1)}` : selector}</option>`)}
      </select>
      <input aria-label=${`Pattern for ${entry.selector}`} value=${entry.pattern} spellcheck=${false} onInput=${(/** @type {{currentTarget: HTMLInputElement}} */ event) => set(index, { pattern: event.currentTarget.value })} />
      <button type="button" aria-label="Remove" onClick=${() => change({ match: draft.match.filter((_, at) => at !== index) })}>✕</button>
    </div>`)}
    ${!draft.match.length && html`<p class="note">None: it matches every client.</p>`}
    <button type="button" onClick=${() => change({ match: [...draft.match, { selector: free === 'client_instance_id' ? 'client_id' : free, pattern: '' }] })}>Add a condition</button>
  </fieldset>`;
}

/** What it would do, asked anew after each pause in typing. @param {{draft: Draft, name: string | null}} props */
function Effect({ draft, name }) {
  const [result, setResult] = useState(/** @type {DryRun | null} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const body = JSON.stringify({ ...bodySafely(draft), ...(name === null ? {} : { name }) });
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(() => {
      send('POST', 'v1/explain', { body: JSON.parse(body), signal: abort.signal })
        .then((answer) => answer.json())
        .then(
          (found) => {
            setResult(found);
            setError(null);
          },
          (problem) => abort.signal.aborted || setError(problem),
        );
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [body]);
  return html`<section aria-live="polite">
    <h2>What it would do</h2>
    <${Failure} error=${error} />
    ${result && !error && html`
      <p><strong>${count(result.matched)} of ${count(result.clients)}</strong> known clients match.
        ${result.bytes_per_second !== null && html` They push about ${bytes(result.bytes_per_second)} a second, ${count(result.series)} data points a push in all.`}
        ${result.bytes_per_second === null && result.matched > 0 && ' No such client has pushed yet, so the cost is unknown.'}
        ${result.matched > 0 && ` Each asks within ${span(result.asked_within_ms / 1000)}.`}</p>
      ${result.examples.length > 0 && html`<ul class="examples">${result.examples.map((client) => html`<li key=${client.client_instance_id}><${ClientLink} client=${client} /></li>`)}
        ${result.matched > result.examples.length && html`<li class="note">and ${count(result.matched - result.examples.length)} more</li>`}</ul>`}
      <${Notices} texts=${result.warnings} />`}
  </section>`;
}

/** A body with what can be read; REST says what is wrong with the rest. @param {Draft} draft */
function bodySafely(draft) {
  try {
    return bodyOf(draft);
  } catch {
    return { ...bodyOf({ ...draft, expires: '' }), expires_at: draft.expires };
  }
}

/** @param {{changes: ReturnType<typeof differences>}} props */
function Changes({ changes }) {
  if (!changes.length) return html`<section><h2>Changes</h2><p class="note">None.</p></section>`;
  return html`<section>
    <h2>Changes</h2>
    <ul class="diff">${changes.map((entry, index) => html`<li key=${index}><span class="field">${entry.field}</span>
      ${entry.before !== null && html`<del><${Text} text=${entry.before} /></del>`}
      ${entry.after !== null && html`<ins><${Text} text=${entry.after} /></ins>`}</li>`)}</ul>
  </section>`;
}
