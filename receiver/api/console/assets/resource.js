// A document that a page shows: read, read again while somebody looks, and kept while it can't be.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { onEvent } from './live.js';

// An answer that takes long is asked for less often, so that ten consoles together cost the core of a
// large fleet some two percent of a processor.
const PAUSE_PER_WAIT = 500;
const LONGEST_PAUSE_MS = 60_000;

/**
 * How long to wait before the next reading.
 * @param {number} every The shortest pause in milliseconds.
 * @param {number} tookMs How long the latest reading took.
 */
export function pauseAfter(every, tookMs) {
  return Math.max(every, Math.min(tookMs * PAUSE_PER_WAIT, LONGEST_PAUSE_MS));
}

/**
 * @template T
 * @typedef {object} Resource
 * @property {T | undefined} data What was read last.
 * @property {Error | undefined} error Why the last reading failed.
 * @property {() => void} reload
 */

/**
 * Read a document now, every so often, and after events.
 * @template T
 * @param {(abort: AbortSignal) => Promise<T>} load
 * @param {unknown[]} inputs Anything that `load` depends on.
 * @param {{every?: number, after?: (type: string) => boolean}} [when]
 * @returns {Resource<T>}
 */
export function useResource(load, inputs, { every = 10_000, after = (type) => type === 'lost' } = {}) {
  const [state, setState] = useState(/** @type {{data?: T, error?: Error}} */ ({}));
  const latest = useRef({ load, after });
  latest.current = { load, after };
  const [turn, setTurn] = useState(0);
  const reload = useCallback(() => setTurn((before) => before + 1), []);
  useEffect(() => setState({}), inputs);
  useEffect(() => {
    const abort = new AbortController();
    const begun = performance.now();
    /** @type {number | undefined} */
    let timer;
    const again = () => {
      timer = setTimeout(() => (document.hidden ? again() : reload()), pauseAfter(every, performance.now() - begun));
    };
    latest.current
      .load(abort.signal)
      .then(
        (data) => abort.signal.aborted || setState({ data }),
        (error) => abort.signal.aborted || setState((before) => ({ ...before, error })),
      )
      .finally(() => abort.signal.aborted || again());
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [...inputs, turn, every]);
  useEffect(() => {
    /** @type {number | undefined} */
    let soon;
    const stop = onEvent((event) => {
      if (event.type !== 'lost' && !latest.current.after(event.type)) return;
      // Many events come together, such as when a core starts again.
      soon ??= setTimeout(() => {
        soon = undefined;
        reload();
      }, 500);
    });
    const seen = () => document.hidden || reload();
    document.addEventListener('visibilitychange', seen);
    return () => {
      document.removeEventListener('visibilitychange', seen);
      clearTimeout(soon);
      stop();
    };
  }, []);
  return { data: state.data, error: state.error, reload };
}
