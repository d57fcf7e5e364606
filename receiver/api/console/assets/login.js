// Who we are for the receiver. The token is sent once, and kept nowhere: its session is a cookie.
import { useState } from 'preact/hooks';
import { Problem, logIn, logOut, session } from './api.js';
import { html } from './dom.js';
import { Failure, Text, Title } from './widgets.js';

export function Login() {
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [busy, setBusy] = useState(false);
  /** @param {SubmitEvent} event */
  const submit = async (event) => {
    event.preventDefault();
    const field = /** @type {HTMLInputElement} */ (/** @type {HTMLFormElement} */ (event.currentTarget).elements.namedItem('token'));
    setBusy(true);
    try {
      await logIn(field.value.trim());
    } catch (problem) {
      const refused = problem instanceof Problem && problem.status === 401;
      setError(refused ? new Error('The receiver does not know this token.') : /** @type {Error} */ (problem));
      field.select();
    } finally {
      setBusy(false);
    }
  };
  return html`
    <${Title} text="Log in" />
    <section class="empty">
      <p>This receiver answers known callers only. Give one of its tokens (<code>rest.tokens</code>; a new one comes
        from <code>kafka-telemetry token new</code>). The browser gets a session of 12 hours, and keeps no token.</p>
      <form onSubmit=${submit}>
        <label>Token <input name="token" type="password" required autocomplete="off" aria-describedby="wrong" /></label>
        <button class="main" disabled=${busy}>Log in</button>
      </form>
      <div id="wrong"><${Failure} error=${error} /></div>
    </section>
  `;
}

/** The caller, in the navigation. */
export function Caller() {
  const caller = session.value;
  if (!caller || caller.authenticated_by === 'nothing') return null;
  return html`<p class="session"><${Text} text=${caller.name} /> (${caller.role})
    ${caller.authenticated_by === 'session' &&
    html`<button type="button" onClick=${() => logOut().catch(() => {})}>Log out</button>`}</p>`;
}
