// The page and its parameters in the address's hash: every state has a link, and no server sees it.
import { computed, signal } from '@preact/signals';

const hash = signal(location.hash);
addEventListener('hashchange', () => {
  hash.value = location.hash;
});

/** The parts of the path, and the parameters. */
export const route = computed(() => {
  const [path, query = ''] = hash.value.replace(/^#\/?/, '').split('?', 2);
  return { parts: path.split('/').map(decoded), query: Object.fromEntries(new URLSearchParams(query)) };
});

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** For whom the receiver answers: for itself, or for the whole cluster. */
export const scope = computed(() => (route.value.query.scope === 'cluster' ? 'cluster' : undefined));

/**
 * A link to a page. Empty parameters are left out, and the scope stays.
 * @param {string[]} parts @param {Record<string, string | undefined>} [query]
 */
export function href(parts, query = {}) {
  const given = Object.entries({ scope: scope.value, ...query }).filter(([, value]) => value);
  const parameters = new URLSearchParams(/** @type {[string, string][]} */ (given));
  return `#/${parts.map(encodeURIComponent).join('/')}${given.length ? `?${parameters}` : ''}`;
}

/**
 * Change parameters of this page, without a new entry in the history.
 * @param {Record<string, string | undefined>} changes
 */
export function replaceQuery(changes) {
  const target = href(route.value.parts, { ...route.value.query, ...changes });
  history.replaceState(null, '', target);
  hash.value = location.hash;
}

/** @param {string} target */
export function go(target) {
  location.hash = target;
}
