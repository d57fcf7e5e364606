// What the receiver knows to be wrong with its setup, and how to prove the rest.
import { html } from './dom.js';
import { Problems } from './page-overview.js';
import { useReceivers } from './receivers.js';
import { scope } from './router.js';
import { Scope } from './scope.js';
import { count, time } from './text.js';
import { Command, Failure, Listing, Members, Text, Title } from './widgets.js';

/** @typedef {import('./receivers.js').Receiver} Receiver */

export function DoctorPage() {
  const { data, error } = useReceivers();
  return html`
    <${Title} text="Doctor"><${Scope} /><//>
    <${Failure} error=${error} shown=${data !== undefined} />
    ${data && html`<${Members} members=${data.members ?? []} /><${Problems} receivers=${data.items} />
      ${data.items.map((receiver) => html`<${Listeners} key=${receiver.receiver} receiver=${receiver} /><${Certificates} key=${`${receiver.receiver} certificates`} receiver=${receiver} />`)}`}
    <section>
      <h2>Prove the whole setup</h2>
      <p>This page shows what the receiver sees from inside. The doctor connects as a client does, to the brokers and
        through each listener, and needs the configuration's files:</p>
      <${Command} text="kafka-telemetry doctor --config receiver.yaml" />
    </section>
  `;
}

/** @param {{text: string, receiver: Receiver}} props */
function Heading({ text, receiver: { receiver } }) {
  return html`<h2>${text}${scope.value && html` of <${Text} text=${receiver} />`}</h2>`;
}

/** @param {{receiver: Receiver}} props */
function Listeners({ receiver }) {
  const { status } = receiver;
  return html`<section>
    <${Heading} text="Listeners" receiver=${receiver} />
    <${Listing} label="Listeners" columns=${[['Name'], ['Clients connect to'], ['Broker'], ['Advertises'], ['Node'], ['Connections', 'number']]}>${status.listeners.map(
        (listener) => html`<tr key=${listener.name}>
          <td><${Text} text=${listener.name} /></td><td><${Text} text=${listener.bind} /></td><td><${Text} text=${listener.upstream} /></td>
          <td><${Text} text=${listener.broker.advertised} none="unknown" /></td>
          <td>${listener.broker.id === null ? 'unknown' : `${listener.broker.id}${listener.broker.proven ? ', proven' : ''}`}</td>
          <td class="number">${count(listener.connections)}</td>
        </tr>`,
      )}<//>
  </section>`;
}

/** @param {{receiver: Receiver}} props */
function Certificates({ receiver }) {
  const { status } = receiver;
  if (!status.certificates.length) return null;
  return html`<section>
    <${Heading} text="Certificates" receiver=${receiver} />
    <${Listing} label="Certificates" columns=${[['Of'], ['Shown to'], ['Expires']]}>${status.certificates.map(
        (certificate) => html`<tr key=${`${certificate.listener} ${certificate.side}`}><td><${Text} text=${certificate.listener} /></td><td>${certificate.side}</td><td>${time(certificate.expires_at)}</td></tr>`,
      )}<//>
  </section>`;
}
