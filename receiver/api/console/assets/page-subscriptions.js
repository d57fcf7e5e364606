// The subscriptions, and where to edit one.
import { useEffect, useState } from 'preact/hooks';
import { mayChange, pages } from './api.js';
import { html } from './dom.js';
import { useResource } from './resource.js';
import { href, route } from './router.js';
import { plural, span, time, visible } from './text.js';
import { Command, Empty, Failure, Listing, State, Text, Title } from './widgets.js';

/** @typedef {import('../types/rest').SubscriptionView} SubscriptionView */

export function SubscriptionsPage() {
  const { parts, query } = route.value;
  if (parts[1] !== undefined) return html`<${Editor} key=${parts[1]} name=${parts.slice(1).join('/')} />`;
  if (query.new !== undefined) return html`<${Editor} key="new" name=${null} />`;
  return html`<${List} />`;
}

/** The editor, which is loaded for the first look at a subscription. @param {{name: string | null}} props */
function Editor({ name }) {
  const [part, setPart] = useState(/** @type {typeof import('./editor.js') | null} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  useEffect(() => {
    import('./editor.js').then(setPart, () => setError(new Error('The editor can\'t be loaded. Load the console again.')));
  }, []);
  return part ? html`<${part.Editor} name=${name} />` : html`<${Title} text="Subscription" /><${Failure} error=${error} />`;
}

function List() {
  const { data, error } = useResource(loadSubscriptions, [], { after: (type) => type.startsWith('subscription') });
  return html`
    <${Title} text="Subscriptions">
      ${data && html`<span class="sum" role="status">${plural(data.length, 'subscription')}</span>`}
      ${mayChange.value && html`<a class="action" href=${href(['subscriptions'], { new: '1' })}>New subscription</a>`}
    <//>
    <${Failure} error=${error} shown=${data !== undefined} />
    ${data && !data.length && html`<${None} />`}
    ${data && data.length > 0 && html`<section><${Listing} label="Subscriptions" columns=${[['Name'], ['State'], ['Clients'], ['Metrics'], ['Every', 'number'], ['Expires'], ['Changed']]}>${data.map((subscription) => html`<${Row} key=${subscription.name} subscription=${subscription} />`)}<//></section>`}
  `;
}

/** @param {AbortSignal} signal @returns {Promise<SubscriptionView[]>} */
async function loadSubscriptions(signal) {
  const found = [];
  for await (const page of pages('v1/subscriptions', { signal }, 1000)) found.push(...page.items);
  return found;
}

/** @param {{subscription: SubscriptionView}} props */
function Row({ subscription }) {
  const match = Object.entries(subscription.match).map(([selector, pattern]) => `${selector}: ${visible(pattern, 80)}`);
  const metrics = subscription.metrics.map((prefix) => (prefix === '*' ? 'all metrics' : visible(prefix)));
  return html`<tr>
    <td><a href=${href(['subscriptions', subscription.name])}><${Text} text=${subscription.name} /></a></td>
    <td><${State} state=${subscription.state} /></td>
    <td class="wrap">${match.join(', ') || html`all clients; <a href=${href(['clients'], { subscription: subscription.name })}>show</a>`}
      ${match.length > 0 && html` <a href=${href(['clients'], { subscription: subscription.name })}>show</a>`}</td>
    <td class="wrap">${metrics.slice(0, 3).join(', ') || 'none'}${metrics.length > 3 ? ` and ${metrics.length - 3} more` : ''}</td>
    <td class="number">${span(subscription.interval_ms / 1000)}</td>
    <td>${subscription.expires_at ? time(subscription.expires_at) : 'never'}</td>
    <td>${subscription.changed_at ? time(subscription.changed_at) : '–'}${subscription.changed_by ? html` by <${Text} text=${subscription.changed_by} />` : ''}</td>
  </tr>`;
}

function None() {
  const command = `curl -X PUT ${new URL('v1/subscriptions/all', document.baseURI)} -H 'Content-Type: application/json' \\
  -d '{"metrics": ["*"], "interval_ms": 60000}'`;
  return html`<${Empty} title="There is no subscription, so no client pushes">
    ${mayChange.value && html`<p><a href=${href(['subscriptions'], { new: '1' })}>Create one here</a>, or in a terminal:</p>`}
    <${Command} text=${command} />
  <//>`;
}
