// Values over time: small ones in tables, and one to look into, whose library is loaded for it.
import { useEffect, useRef } from 'preact/hooks';
import { html } from './dom.js';

/** @typedef {{times: number[], values: (number | null)[]}} Course Times in seconds since the epoch. */

const WIDTH = 100;
const HEIGHT = 20;

/** A course as a small line; its last value stands beside it, so it says nothing to screen readers. @param {{course: Course}} props */
export function Sparkline({ course }) {
  const { times, values } = course;
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return null;
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const [begin, end] = [times[0], times[times.length - 1]];
  const points = values.flatMap((value, index) => {
    if (value === null) return [];
    const x = ((times[index] - begin) / (end - begin || 1)) * WIDTH;
    const y = HEIGHT - 1 - ((value - low) / (high - low || 1)) * (HEIGHT - 2);
    return [`${x.toFixed(1)},${y.toFixed(1)}`];
  });
  return html`<svg class="sparkline" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
    <polyline points=${points.join(' ')} /></svg>`;
}

/** The last minutes as marks: those with a push. @param {{minutes: string}} props 15 hexadecimal digits, the oldest first. */
export function Minutes({ minutes }) {
  const bits = [...minutes].map((digit) => parseInt(digit, 16).toString(2).padStart(4, '0')).join('');
  const marks = [...bits].flatMap((bit, minute) => (bit === '1' ? [`M${minute}.5 1V11`] : []));
  return html`<svg class="minutes" viewBox=${`0 0 ${bits.length} 12`} preserveAspectRatio="none" role="img"
    aria-label=${`pushes in ${marks.length} of the last ${bits.length} minutes`}><path class="base" d=${`M0 11.5H${bits.length}`} />
    <path d=${marks.join('')} /></svg>`;
}

/** @param {{course: Course, label: string, unit: string}} props */
export function Chart({ course, label, unit }) {
  const frame = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {import('uplot') | null} */ (null));
  const latest = useRef(course);
  latest.current = course;
  useEffect(() => {
    const element = /** @type {HTMLDivElement} */ (frame.current);
    let gone = false;
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: 180 }));
    styles();
    import('uplot').then(({ default: UPlot }) => {
      if (gone) return;
      plot.current = new UPlot(options(element, label), dataOf(latest.current), element);
      observer.observe(element);
    });
    return () => {
      gone = true;
      observer.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [label, unit]);
  useEffect(() => plot.current?.setData(dataOf(course)), [course]);
  return html`<figure class="chart"><figcaption>${label}${unit && ` (${unit})`}</figcaption>
    <div ref=${frame} role="img" aria-label=${`${label} over time; the table has the latest value`}></div></figure>`;
}

/** @param {Course} course @returns {import('uplot').AlignedData} */
function dataOf({ times, values }) {
  return [times, values];
}

/** @param {HTMLElement} element @param {string} label @returns {import('uplot').Options} */
function options(element, label) {
  const style = getComputedStyle(document.documentElement);
  const axis = { stroke: style.getPropertyValue('--soft'), grid: { stroke: style.getPropertyValue('--line'), width: 1 } };
  return {
    width: element.clientWidth,
    height: 180,
    scales: { y: { range: (_, low, high) => [Math.min(0, low), high === low ? low + 1 : high * 1.1] } },
    series: [{}, { label, stroke: style.getPropertyValue('--accent'), width: 2, points: { size: 6 } }],
    axes: [axis, { ...axis, size: 70, values: (_, splits) => splits.map((value) => `${value.toLocaleString('en')}`) }],
    legend: { show: false },
  };
}

/** Load the library's style sheet once. */
function styles() {
  const href = new URL('uplot.css', import.meta.url).href;
  if ([...document.styleSheets].some((sheet) => sheet.href === href)) return;
  const link = document.createElement('link');
  link.rel = 'stylesheet';
  link.href = href;
  document.head.append(link);
}
