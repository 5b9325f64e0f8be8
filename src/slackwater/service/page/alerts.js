/** Alerts: what each one waits for, whether it is raised, and whether its webhook takes what it says. */

import { rows } from "./agents.js";
import { change } from "./api.js";
import { compact, make, say } from "./format.js";

const SURE_MS = 4_000;
const byId = (name) => document.getElementById(name);

export class AlertsPanel {
  #raised = new Map();

  constructor({ announce }) {
    this.announce = announce;
  }

  show(frame) {
    const { alerts } = frame;
    const panel = byId("alerts");
    if (panel.hidden !== !alerts.length) panel.hidden = !alerts.length;
    const raised = alerts.filter((alert) => alert.raised > 0).length;
    say(byId("alerts-note"), raised ? `${raised} of ${alerts.length} raised` : "none is raised");
    rows(byId("alerts-list"), alerts, () => this.#item(), (item, alert) => this.#show(item, alert));
    this.#tell(alerts);
  }

  #item() {
    const item = make("li", "alert");
    const drop = make("button", "quiet small changes", "Drop");
    drop.type = "button";
    drop.addEventListener("click", () => this.#drop(item, drop));
    const [sign, name, condition] = [make("span", "sign"), make("strong", "alert-name"), make("span", "condition")];
    sign.setAttribute("aria-hidden", "true");
    item.append(sign, name, condition, make("span", "state"), drop, make("p", "trouble"));
    return item;
  }

  #show(item, alert) {
    const [, name, condition, state, drop, trouble] = item.children;
    const up = alert.raised > 0 ? "yes" : "no";
    if (item.dataset.raised !== up) item.dataset.raised = up;
    if (item.dataset.name !== alert.name) {
      item.dataset.name = alert.name;
      drop.setAttribute("aria-label", `Drop the alert ${alert.name}`);
    }
    say(name, alert.name);
    say(condition, `${alert.query}: ${alert.condition}`);
    const groups = alert.raised > 1 ? ` in ${compact(alert.raised)} groups` : "";
    say(state, `${alert.raised > 0 ? `raised${groups}` : "calm"} · ${compact(alert.events)} event${alert.events === 1 ? "" : "s"}`);
    const waiting = alert.waiting ? `${compact(alert.waiting)} waiting for the webhook` : "";
    const title = `${alert.query}: ${alert.condition}, to ${alert.url}${alert.trouble ? `: ${alert.trouble}` : ""}`;
    if (item.title !== title) item.title = title;
    say(trouble, [waiting, alert.trouble].filter(Boolean).join(": "));
  }

  /** The first click asks, the second one drops. */
  async #drop(item, button) {
    if (button.dataset.sure !== "yes") {
      button.dataset.sure = "yes";
      say(button, "Really drop?");
      setTimeout(() => this.#calm(button), SURE_MS);
      return;
    }
    this.#calm(button);
    try {
      await change("DELETE", `/api/alerts/${encodeURIComponent(item.dataset.name)}`);
      this.announce(`Alert ${item.dataset.name} is dropped.`);
    } catch (problem) {
      say(item.lastElementChild, problem.message);
    }
  }

  #calm(button) {
    delete button.dataset.sure;
    say(button, "Drop");
  }

  #tell(alerts) {
    for (const alert of alerts) {
      const before = this.#raised.get(alert.name);
      const now = alert.raised > 0;
      if (before !== undefined && before !== now) this.announce(`Alert ${alert.name} is ${now ? "raised" : "calm again"}.`);
      this.#raised.set(alert.name, now);
    }
  }
}
