/** The colours of the style sheet, for what is drawn on a canvas. */

const listeners = new Set();
let palette = new Map();

/** A colour by its name in the style sheet. */
export function colour(name) {
  if (!palette.has(name)) {
    palette.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  }
  return palette.get(name);
}

/** Calls back when the colours have changed. */
export function onColours(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The style sheet has other colours now. */
export function recoloured() {
  palette = new Map();
  for (const listener of listeners) listener();
}
