// The versions that run, and what is known to be wrong with them.
import { useEffect, useMemo } from 'preact/hooks';
import { html } from './dom.js';
import { clients, complete, failure, members, watchClients } from './fleet.js';
import { grouped, softwareOf } from './page-clients.js';
import { href, scope } from './router.js';
import { Scope } from './scope.js';
import { UpgradeCheck } from './upgrade.js';
import { compareVersions, count, plural, quoted, visible } from './text.js';
import { Bar, Empty, Failure, Listing, Members, Text, Title } from './widgets.js';

/** @typedef {import('../types/rest').ClientView} ClientView */
/** @typedef {{name: string, software: string, version: string, clients: ClientView[]}} Version */

export function VersionsPage() {
  useEffect(() => watchClients(scope.value ? { scope: scope.value } : {}), [scope.value]);
  const byName = useMemo(() => versionsOf(clients.value), [clients.value]);
  const all = clients.value.length;
  return html`
    <${Title} text="Versions"><span class="sum" role="status">${complete.value ? plural(all, 'client') : 'reading …'}</span><${Scope} /><//>
    <${Members} members=${members.value} />
    <${Failure} error=${failure.value} shown=${all > 0} />
    ${complete.value && !all ? html`<${Empty} title="No client is known yet"><p><a href=${href(['clients'])}>How a client appears</a></p><//>` : null}
    <${UpgradeCheck} />
    ${byName.map(([software, versions]) => html`<${Software} key=${software} software=${software} versions=${versions} all=${all} />`)}
  `;
}

/** Software by its number of clients, each with its versions from the newest. @param {ClientView[]} all */
function versionsOf(all) {
  return grouped(all, (client) => client.client_software_name)
    .sort((left, right) => right.clients.length - left.clients.length)
    .map(({ name, clients: members }) => {
      const versions = grouped(members, softwareOf).map((group) => ({
        ...group,
        software: name,
        version: group.clients[0].client_software_version,
      }));
      versions.sort((left, right) => compareVersions(right.version, left.version));
      return /** @type {[string, Version[]]} */ ([name, versions]);
    });
}

/** @param {{software: string, versions: Version[], all: number}} props */
function Software({ software, versions, all }) {
  return html`<section>
    <h2><${Text} text=${software} none="Unknown software" /></h2>
    <${Listing} label=${`Versions of ${visible(software)}`} columns=${[['Version'], ['Clients', 'number'], ['Share'], ['Push', 'number'], ['Known about it']]}>${versions.map(
        (version) => html`<tr key=${version.name}>
          <td><a href=${href(['clients'], { software: quoted(software), version: quoted(version.version) })}><${Text} text=${version.version} none="unknown" /></a></td>
          <td class="number">${count(version.clients.length)}</td>
          <td><${Bar} part=${version.clients.length} whole=${all} label=${`Share of ${visible(version.name)}`} /></td>
          <td class="number">${count(version.clients.filter((client) => client.pushes > 0).length)}</td>
          <td class="wrap">${[...new Set(version.clients.flatMap((client) => client.quirks))].map((quirk) => visible(quirk, 1000)).join(' ')}</td>
        </tr>`,
      )}<//>
  </section>`;
}
