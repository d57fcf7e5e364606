// What the receiver knows to be wrong with its setup, and how to prove the rest.
import { html } from './dom.js';
import { Problems, useStatus } from './page-overview.js';
import { count, time } from './text.js';
import { Command, Failure, Listing, Text, Title } from './widgets.js';

/** @typedef {import('../types/rest').StatusView} StatusView */

export function DoctorPage() {
  const { data, error } = useStatus();
  return html`
    <${Title} text="Doctor" />
    <${Failure} error=${error} shown=${data !== undefined} />
    ${data && html`<${Problems} status=${data} /><${Listeners} status=${data} /><${Certificates} status=${data} />`}
    <section>
      <h2>Prove the whole setup</h2>
      <p>This page shows what the receiver sees from inside. The doctor connects as a client does, to the brokers and
        through each listener, and needs the configuration's files:</p>
      <${Command} text="kafka-telemetry doctor --config receiver.yaml" />
    </section>
  `;
}

/** @param {{status: StatusView}} props */
function Listeners({ status }) {
  return html`<section>
    <h2>Listeners</h2>
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

/** @param {{status: StatusView}} props */
function Certificates({ status }) {
  if (!status.certificates.length) return null;
  return html`<section>
    <h2>Certificates</h2>
    <${Listing} label="Certificates" columns=${[['Of'], ['Shown to'], ['Expires']]}>${status.certificates.map(
        (certificate) => html`<tr key=${`${certificate.listener} ${certificate.side}`}><td><${Text} text=${certificate.listener} /></td><td>${certificate.side}</td><td>${time(certificate.expires_at)}</td></tr>`,
      )}<//>
  </section>`;
}
