// Elements as tagged templates: html`<p>${text}</p>`. Texts are never parsed as markup.
import { h } from 'preact';
import htm from 'htm';

export const html = htm.bind(h);
