// For whom the receiver answers.
import { html } from './dom.js';
import { replaceQuery, scope } from './router.js';

export function Scope() {
  return html`<label>Receivers <select value=${scope.value ?? ''}
    onChange=${(/** @type {{currentTarget: HTMLSelectElement}} */ event) => replaceQuery({ scope: event.currentTarget.value })}>
    <option value="">this one</option>
    <option value="cluster">the whole cluster</option>
  </select></label>`;
}
