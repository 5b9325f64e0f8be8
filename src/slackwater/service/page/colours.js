/** Light or dark: as the system has it, or as the reader has chosen. */

import { recoloured } from "./palette.js";
import { ofBrowser } from "./store.js";

const KEPT = "slackwater-theme";
const NEXT = { system: "light", light: "dark", dark: "system" };
const SIGNS = { system: ["◐", "as the system has them"], light: ["○", "light"], dark: ["●", "dark"] };
const dark = matchMedia("(prefers-color-scheme: dark)");

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen === undefined ? dark.matches : chosen === "dark";
}

function apply(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  button.textContent = SIGNS[theme][0];
  button.setAttribute("aria-label", `Colours: ${SIGNS[theme][1]}`);
  button.title = `Colours: ${SIGNS[theme][1]}`;
  recoloured();
}

export function startColours() {
  let theme = ofBrowser.get(KEPT) ?? "system";
  if (!(theme in NEXT)) theme = "system";
  document.getElementById("theme").addEventListener("click", () => {
    theme = NEXT[theme];
    ofBrowser.set(KEPT, theme);
    apply(theme);
  });
  dark.addEventListener("change", recoloured);
  apply(theme);
}
