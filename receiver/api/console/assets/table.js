// A table that renders only the rows in view, so that 5,000 scroll as smoothly as 50.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { html } from './dom.js';

const ROW_PX = 34;
const BEYOND = 12;

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} key
 * @property {string} title
 * @property {(row: Row) => unknown} show
 * @property {(row: Row) => string | number | null} [by] What to sort by; without it, the column can't be sorted.
 * @property {string} [width] As a CSS width.
 * @property {boolean} [number] Whether to align it at the right.
 * @property {boolean} [minor] Whether a narrow window leaves it out.
 */

/**
 * @template {object} Row
 * @param {object} props
 * @param {string} props.label What the rows are.
 * @param {Column<Row>[]} props.columns
 * @param {readonly Row[]} props.rows
 * @param {(row: Row) => string} props.id
 * @param {string} [props.sorted] The key of the column to sort by; with `-` before it, downwards.
 * @param {(sorted: string) => void} [props.onSort]
 */
export function Table({ label, columns, rows, id, sorted = '', onSort }) {
  const frame = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [view, setView] = useState({ top: 0, height: 800 });
  const down = sorted.startsWith('-');
  const key = sorted.replace(/^-/, '');
  // Preact compares no element that is the very same as before.
  const made = useMemo(() => /** @type {WeakMap<Row, {index: number, element: unknown}>} */ (new WeakMap()), [columns]);
  /** @param {Row} row @param {number} index */
  const element = (row, index) => {
    const known = made.get(row);
    if (known?.index === index) return known.element;
    const fresh = html`<tr key=${id(row)} aria-rowindex=${index + 2}>
      ${columns.map((column) => html`<td key=${column.key} class=${className(column)}>${column.show(row)}</td>`)}
    </tr>`;
    made.set(row, { index, element: fresh });
    return fresh;
  };
  const ordered = useMemo(() => inOrder(columns, rows, key, down), [columns, rows, key, down]);
  useEffect(() => {
    const element = frame.current;
    if (!element) return undefined;
    const look = () => setView({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(look);
    observer.observe(element);
    element.addEventListener('scroll', look, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener('scroll', look);
    };
  }, []);
  const first = Math.max(0, Math.min(Math.floor(view.top / ROW_PX), ordered.length) - BEYOND);
  const last = Math.min(ordered.length, Math.ceil((view.top + view.height) / ROW_PX) + BEYOND);
  return html`<div class="table" ref=${frame} tabindex="0" role="region" aria-label=${label}>
    <table aria-rowcount=${ordered.length + 1}>
      <colgroup>${columns.map(
        (column) => html`<col key=${column.key} class=${column.minor ? 'minor' : ''} style=${{ width: column.width }} />`,
      )}</colgroup>
      <thead><tr aria-rowindex="1">${columns.map((column) => heading(column, key, down, onSort))}</tr></thead>
      <tbody>
        ${first > 0 && html`<tr class="space" aria-hidden="true"><td style=${{ height: `${first * ROW_PX}px` }}></td></tr>`}
        ${ordered.slice(first, last).map((row, index) => element(row, first + index))}
        ${last < ordered.length &&
        html`<tr class="space" aria-hidden="true"><td style=${{ height: `${(ordered.length - last) * ROW_PX}px` }}></td></tr>`}
      </tbody>
    </table>
  </div>`;
}

/**
 * @template Row
 * @param {Column<Row>} column @param {string} key @param {boolean} down
 * @param {((sorted: string) => void) | undefined} onSort
 */
function heading(column, key, down, onSort) {
  const current = column.key === key;
  if (!column.by || !onSort) return html`<th key=${column.key} scope="col" class=${className(column)}>${column.title}</th>`;
  const order = current ? (down ? 'descending' : 'ascending') : 'none';
  const next = current && !down ? `-${column.key}` : column.key;
  return html`<th key=${column.key} scope="col" class=${className(column)} aria-sort=${order}>
    <button type="button" onClick=${() => onSort(next)}>${column.title}${current ? (down ? ' ↓' : ' ↑') : ''}</button>
  </th>`;
}

/** @param {Column<any>} column */
function className(column) {
  return `${column.number ? 'number' : ''} ${column.minor ? 'minor' : ''}`.trim();
}

/**
 * @template Row
 * @param {Column<Row>[]} columns @param {readonly Row[]} rows @param {string} key @param {boolean} down
 */
function inOrder(columns, rows, key, down) {
  const by = columns.find((column) => column.key === key)?.by;
  if (!by) return rows;
  const keyed = rows.map((row) => ({ row, value: by(row) }));
  keyed.sort((left, right) => compare(left.value, right.value, down));
  return keyed.map(({ row }) => row);
}

const collator = new Intl.Collator('en', { numeric: true });

/**
 * Rows without a value come last in both directions.
 * @param {string | number | null} left @param {string | number | null} right @param {boolean} down
 */
function compare(left, right, down) {
  if (left === right) return 0;
  if (left === null) return 1;
  if (right === null) return -1;
  const numbers = typeof left === 'number' && typeof right === 'number';
  const order = numbers ? left - right : collator.compare(String(left), String(right));
  return down ? -order : order;
}
