// What the receiver knows to be wrong with its setup, and how to prove the rest.
import { html } from './dom.js';
import { Problems, useStatus } from './page-overview.js';
import { count, time } from './text.js';
import { Command, Failure, Text, Title } from './widgets.js';

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
    <div class="plain"><table class="plain">
      <thead><tr><th scope="col">Name</th><th scope="col">Clients connect to</th><th scope="col">Broker</th><th scope="col">Advertises</th><th scope="col">Node</th><th scope="col" class="number">Connections</th></tr></thead>
      <tbody>${status.listeners.map(
        (listener) => html`<tr key=${listener.name}>
          <td><${Text} text=${listener.name} /></td><td><${Text} text=${listener.bind} /></td><td><${Text} text=${listener.upstream} /></td>
          <td><${Text} text=${listener.broker.advertised} none="unknown" /></td>
          <td>${listener.broker.id === null ? 'unknown' : `${listener.broker.id}${listener.broker.proven ? ', proven' : ''}`}</td>
          <td class="number">${count(listener.connections)}</td>
        </tr>`,
      )}</tbody>
    </table></div>
  </section>`;
}

/** @param {{status: StatusView}} props */
function Certificates({ status }) {
  if (!status.certificates.length) return null;
  return html`<section>
    <h2>Certificates</h2>
    <div class="plain"><table class="plain">
      <thead><tr><th scope="col">Of</th><th scope="col">Shown to</th><th scope="col">Expires</th></tr></thead>
      <tbody>${status.certificates.map(
        (certificate) => html`<tr key=${`${certificate.listener} ${certificate.side}`}><td><${Text} text=${certificate.listener} /></td><td>${certificate.side}</td><td>${time(certificate.expires_at)}</td></tr>`,
      )}</tbody>
    </table></div>
  </section>`;
}
