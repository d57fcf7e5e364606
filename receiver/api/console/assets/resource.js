// A document that a page shows: read, read again while somebody looks, and kept while it can't be.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { onEvent } from './live.js';

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
    latest.current.load(abort.signal).then(
      (data) => abort.signal.aborted || setState({ data }),
      (error) => abort.signal.aborted || setState((before) => ({ ...before, error })),
    );
    return () => abort.abort();
  }, [...inputs, turn]);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || reload(), every);
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
    return () => {
      clearInterval(timer);
      clearTimeout(soon);
      stop();
    };
  }, [every]);
  return { data: state.data, error: state.error, reload };
}
