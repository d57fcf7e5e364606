// Small parts of pages.
import { useEffect, useRef } from 'preact/hooks';
import { html } from './dom.js';
import { visible } from './text.js';

/** @typedef {'good' | 'warn' | 'bad' | 'idle'} Tone */

/** @type {Record<string, Tone>} */
const TONES = {
  pushing: 'good',
  active: 'good',
  running: 'good',
  closed: 'good',
  waiting: 'idle',
  unsubscribed: 'idle',
  terminated: 'idle',
  no_telemetry: 'idle',
  disabled: 'idle',
  stopped: 'idle',
  silent: 'warn',
  expired: 'warn',
  half_open: 'warn',
  failing: 'bad',
  failed: 'bad',
  open: 'bad',
};

/** A state as a word with a mark, because colours alone say nothing to many. @param {{state: string}} props */
export function State({ state }) {
  const tone = TONES[state] ?? 'idle';
  return html`<span class="state ${tone}">${state.replaceAll('_', ' ')}</span>`;
}

/**
 * A text that a client or an operator has chosen. Its direction is its own.
 * @param {{text: unknown, none?: string}} props
 */
export function Text({ text, none = '–' }) {
  if (text == null || text === '') return html`<span class="none">${none}</span>`;
  return html`<bdi>${visible(text)}</bdi>`;
}

/** The heading of a page. It gets the focus, so that screen readers say that the page is another. */
export function Title(/** @type {{text: string, children?: unknown}} */ { text, children }) {
  const heading = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    document.title = `${text} · Kafka Client Telemetry`;
    heading.current?.focus({ preventScroll: true });
  }, [text]);
  return html`<header class="title"><h1 ref=${heading} tabindex="-1">${text}</h1>${children}</header>`;
}

/** What went wrong, and what is still shown. @param {{error?: Error | null, shown?: boolean}} props */
export function Failure({ error, shown = false }) {
  if (!error) return null;
  const old = shown ? ' What is shown was read before.' : '';
  return html`<p class="notice bad" role="alert">${visible(error.message, 1000)}${old}</p>`;
}

/** Texts as a list of warnings. @param {{texts: string[], tone?: Tone}} props */
export function Notices({ texts, tone = 'warn' }) {
  return texts.map((text) => html`<p class="notice ${tone}" key=${text}>${visible(text, 2000)}</p>`);
}

/** A command to copy. @param {{text: string}} props */
export function Command({ text }) {
  return html`<pre class="command" tabindex="0"><code>${text}</code></pre>`;
}

/**
 * What to do where there is nothing to show.
 * @param {{title: string, command?: string, children?: unknown}} props
 */
export function Empty({ title, command, children }) {
  return html`<section class="empty">
    <h2>${title}</h2>
    ${children}
    ${command && html`<${Command} text=${command} />`}
  </section>`;
}

/** A number with its name. @param {{name: string, value: unknown, link?: string, tone?: Tone | ''}} props */
export function Figure({ name, value, link, tone = '' }) {
  const inside = html`<span class="value">${value}</span> <span class="name">${name}</span>`;
  return link
    ? html`<a class="figure ${tone}" href=${link}>${inside}</a>`
    : html`<div class="figure ${tone}">${inside}</div>`;
}

/** Names and values. @param {{entries: [string, unknown][]}} props */
export function Facts({ entries }) {
  return html`<dl class="facts">
    ${entries.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

/** A part of a whole. @param {{part: number, whole: number, label: string}} props */
export function Bar({ part, whole, label }) {
  return html`<meter min="0" max=${Math.max(whole, 1)} value=${part} aria-label=${label}></meter>`;
}

/**
 * A short table, which scrolls where the window is narrow.
 * @param {{label: string, columns: [string, string?][], children?: unknown}} props Each column: title, class.
 */
export function Listing({ label, columns, children }) {
  return html`<div class="plain" tabindex="0" role="region" aria-label=${label}><table class="plain">
    <thead><tr>${columns.map(([title, kind]) => html`<th key=${title} scope="col" class=${kind}>${title}</th>`)}</tr></thead>
    <tbody>${children}</tbody>
  </table></div>`;
}

/** Receivers of the cluster that did not answer. @param {{members: import('../types/rest').MemberView[]}} props */
export function Members({ members }) {
  const away = members.filter((member) => !member.answered);
  return html`<${Notices} texts=${away.map((member) => `${member.url} did not answer, and what it knows is missing: ${member.problem}`)} />`;
}
