// Values as people read them. Pure.

// Control characters, and characters that change the direction or the place of others or have no
// width: with them, a client id could look like another one.
const HIDDEN = /[\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/**
 * A text from outside in one line: hidden characters as \u202e, and cut.
 * @param {unknown} value
 * @param {number} [longest]
 */
export function visible(value, longest = 200) {
  const text = String(value ?? '');
  const cut = text.length > longest ? `${text.slice(0, longest)}…` : text;
  return cut.replace(HIDDEN, (character) => {
    const code = character.charCodeAt(0);
    return `\\u${code.toString(16).padStart(4, '0')}`;
  });
}

/** @param {number | null | undefined} value */
export function count(value) {
  return value == null ? '–' : Math.round(value).toLocaleString('en');
}

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (value == null) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  let size = value;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${size < 10 && unit > 0 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

const STEPS = /** @type {const} */ ([
  ['d', 86400],
  ['h', 3600],
  ['min', 60],
]);

/**
 * A time span with its largest unit, and the next one below ten.
 * @param {number | null | undefined} seconds
 */
export function span(seconds) {
  if (seconds == null) return '–';
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds)} s`;
  const [unit, size] = STEPS.find(([, step]) => seconds >= step) ?? STEPS[2];
  const whole = Math.floor(seconds / size);
  const below = STEPS[STEPS.findIndex(([name]) => name === unit) + 1];
  if (whole >= 10 || below === undefined) return `${whole} ${unit}`;
  const rest = Math.floor((seconds - whole * size) / below[1]);
  return rest ? `${whole} ${unit} ${rest} ${below[0]}` : `${whole} ${unit}`;
}

/** @param {number | null | undefined} seconds */
export function ago(seconds) {
  return seconds == null ? 'never' : `${span(seconds)} ago`;
}

/**
 * A time of the receiver (RFC 3339) in the reader's zone.
 * @param {string | null | undefined} text
 */
export function time(text) {
  if (!text) return '–';
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? visible(text) : date.toLocaleString();
}

/** @param {number} number @param {string} singular @param {string} [plural] */
export function plural(number, singular, plural = `${singular}s`) {
  return `${count(number)} ${number === 1 ? singular : plural}`;
}

/**
 * A regular expression (RE2) that matches only this text.
 * @param {string} text
 */
export function quoted(text) {
  return text.replace(/[\\.+*?()|[\]{}^$]/g, '\\$&');
}

/**
 * Compare versions by their numbers: 4.10.0 comes after 4.9.1.
 * @param {string} left @param {string} right
 */
export function compareVersions(left, right) {
  return left.localeCompare(right, 'en', { numeric: true });
}
