/** Light or dark: as the system has it, or as the reader has chosen; and the same colours for canvases. */

const KEPT = "slackwater-theme";
const NEXT = { system: "light", light: "dark", dark: "system" };
const SIGNS = { system: ["◐", "as the system has them"], light: ["○", "light"], dark: ["●", "dark"] };
const dark = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set();
let palette = null;

/** A colour of the page by its name in the style sheet, for what is drawn on a canvas. */
export function colour(name) {
  palette ??= new Map();
  if (!palette.has(name)) {
    palette.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  }
  return palette.get(name);
}

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen === undefined ? dark.matches : chosen === "dark";
}

/** Calls back when the colours have changed. */
export function onColours(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function changed() {
  palette = null;
  for (const listener of listeners) listener();
}

function apply(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  button.textContent = SIGNS[theme][0];
  button.setAttribute("aria-label", `Colours: ${SIGNS[theme][1]}`);
  button.title = `Colours: ${SIGNS[theme][1]}`;
  changed();
}

export function startColours() {
  let theme = localStorage.getItem(KEPT) ?? "system";
  if (!(theme in NEXT)) theme = "system";
  document.getElementById("theme").addEventListener("click", () => {
    theme = NEXT[theme];
    localStorage.setItem(KEPT, theme);
    apply(theme);
  });
  dark.addEventListener("change", changed);
  apply(theme);
}
