// The values of a client: those of its last push, and their course from the first look on.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { read } from './api.js';
import { Chart, Sparkline } from './chart.js';
import { html } from './dom.js';
import { replaceQuery, route, scope } from './router.js';
import { Table } from './table.js';
import { plural, time, visible } from './text.js';
import { Failure, Text } from './widgets.js';

/** @typedef {import('../types/rest').PushView} Push */
/** @typedef {import('../types/rest').ValuesView} Values */
/** @typedef {import('./chart.js').Course} Course */
/**
 * @typedef {object} Series
 * @property {string} key Its name and attributes; it stands for it in links.
 * @property {string} name
 * @property {string} of Its attributes.
 * @property {string} unit
 * @property {string | null} description
 * @property {boolean} delta
 * @property {number | null} value
 * @property {Course} course
 */

const EVERY_MS = 5_000;
const MOST_VALUES = 720;
const MOST_CHARTS = 6;
const PREFIX = /^org\.apache\.kafka\./;
// What one looks at first.
const HEADLINES = [
  /throttle\.time\.max$/,
  /record\.error\.rate$/,
  // That of consumers contains the broker's wait for data.
  /producer\.(node\.)?request\.latency\.avg$/,
  /commit\.latency\.avg$/,
  /record\.send\.rate$/,
  /records\.lag\.max$/,
  /records\.consumed\.rate$/,
  /poll\.idle\.ratio\.avg$/,
  /rebalance\.rate\.per\.hour$/,
];

/** @param {{id: string}} props */
export function ValuesOf({ id }) {
  const courses = useRef(/** @type {Map<string, Course>} */ (new Map()));
  const after = useRef(/** @type {string | null} */ (null));
  const [push, setPush] = useState(/** @type {Push | null} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  useEffect(() => {
    const abort = new AbortController();
    const look = async () => {
      try {
        /** @type {Values} */
        const found = await read(`v1/clients/${encodeURIComponent(id)}/values`, { query: { after: after.current, scope: scope.value }, signal: abort.signal });
        after.current = found.next;
        for (const item of found.items) addTo(courses.current, item);
        const latest = found.items[found.items.length - 1];
        if (latest) setPush(latest);
        setError(null);
      } catch (problem) {
        if (!abort.signal.aborted) setError(/** @type {Error} */ (problem));
      }
    };
    look();
    const timer = setInterval(() => document.hidden || look(), EVERY_MS);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, [id, scope.value]);
  const series = useMemo(() => (push ? seriesOf(push, courses.current) : []), [push]);
  return html`<section class="values">
    <h2>Values</h2>
    <${Failure} error=${error} shown=${push !== null} />
    ${push
      ? html`<p class="note">Of the push of ${time(push.received_at)}, ${plural(series.length, 'series', 'series')}. Courses begin with the first look.${push.cut && ' It has more data points than are shown.'}</p>
          <${Charts} series=${series} /><${Listed} series=${series} />`
      : html`<p>No push of it is kept yet. The next one appears here.</p>`}
  </section>`;
}

/** @param {string} name @param {Record<string, string>} attributes */
function keyOf(name, attributes) {
  const pairs = Object.entries(attributes).map(([key, value]) => `${key}=${value}`);
  return `${name.replace(PREFIX, '')}${pairs.length ? `{${pairs.sort().join(',')}}` : ''}`;
}

/** @param {Map<string, Course>} courses @param {Push} push */
function addTo(courses, push) {
  const at = new Date(push.received_at).getTime() / 1000;
  for (const metric of push.metrics) {
    for (const point of metric.points) {
      const key = keyOf(metric.name, point.attributes);
      const course = courses.get(key) ?? { times: [], values: [] };
      // A new object, so that a chart sees the change.
      courses.set(key, { times: [...course.times, at].slice(-MOST_VALUES), values: [...course.values, point.value].slice(-MOST_VALUES) });
    }
  }
}

/** @param {Push} push @param {Map<string, Course>} courses @returns {Series[]} */
function seriesOf(push, courses) {
  return push.metrics.flatMap((metric) =>
    metric.points.map((point) => {
      const key = keyOf(metric.name, point.attributes);
      return {
        key,
        name: metric.name.replace(PREFIX, ''),
        of: Object.entries(point.attributes).map(([name, value]) => `${name}=${value}`).join(', '),
        unit: (metric.unit ?? '').replace(/[{}]/g, '').replace(/^1$/, ''),
        description: metric.description,
        delta: metric.delta,
        value: point.value,
        course: courses.get(key) ?? { times: [], values: [] },
      };
    }),
  );
}

/** The keys of the series that have a chart. @param {Series[]} series */
function charted(series) {
  const { chart } = route.value.query;
  if (chart !== undefined) return chart.split(' ').filter(Boolean).slice(0, MOST_CHARTS);
  const found = HEADLINES.flatMap((pattern) => series.filter((entry) => pattern.test(entry.name)).slice(0, 1));
  return found.slice(0, 3).map((entry) => entry.key);
}

/** @param {{series: Series[]}} props */
function Charts({ series }) {
  const keys = charted(series);
  const shown = keys.flatMap((key) => series.filter((entry) => entry.key === key));
  return html`<div class="charts">${shown.map(
    (entry) => html`<${Chart} key=${entry.key} course=${entry.course} unit=${entry.unit} label=${visible(entry.key)} />`,
  )}</div>`;
}

/** @param {number | null} value */
function shownValue(value) {
  return value === null ? '–' : value.toLocaleString('en', { maximumSignificantDigits: 6 });
}

/** @param {{series: Series[]}} props */
function Listed({ series }) {
  const { query } = route.value;
  const words = (query.metric ?? '').toLowerCase().split(/\s+/).filter(Boolean);
  const rows = series.filter((entry) => words.every((word) => entry.key.toLowerCase().includes(word)));
  const keys = charted(series);
  /** @param {string} key */
  const toggle = (key) => replaceQuery({ chart: (keys.includes(key) ? keys.filter((other) => other !== key) : [...keys, key]).join(' ') || ' ' });
  /** @type {import('./table.js').Column<Series>[]} */
  const columns = [
    { key: 'name', title: 'Metric', by: (row) => row.name, show: (row) => html`<span title=${row.description ?? ''}><${Text} text=${row.name} /></span>`, width: '36%' },
    { key: 'of', title: 'Of', by: (row) => row.of, show: (row) => html`<${Text} text=${row.of} none="" />`, minor: true },
    { key: 'value', title: 'Value', by: (row) => row.value, show: (row) => html`${shownValue(row.value)} <span class="note">${row.unit}${row.delta ? ' since the push before' : ''}</span>`, number: true, width: '14rem' },
    { key: 'course', title: 'Course', show: (row) => html`<${Sparkline} course=${row.course} />`, width: '8rem', minor: true },
    {
      key: 'chart',
      title: 'Chart',
      show: (row) => html`<input type="checkbox" checked=${keys.includes(row.key)} disabled=${!keys.includes(row.key) && keys.length >= MOST_CHARTS}
        aria-label=${`Chart of ${visible(row.key)}`} onChange=${() => toggle(row.key)} />`,
      width: '5rem',
    },
  ];
  return html`<search class="toolbar"><input type="search" placeholder="Search metrics" aria-label="Search metrics" value=${query.metric ?? ''}
      onInput=${(/** @type {{currentTarget: HTMLInputElement}} */ event) => replaceQuery({ metric: event.currentTarget.value })} /></search>
    <${Table} label="Values of the last push" columns=${columns} rows=${rows} id=${(/** @type {Series} */ row) => row.key}
      sorted=${query.sort} onSort=${(/** @type {string} */ sort) => replaceQuery({ sort })} />`;
}
