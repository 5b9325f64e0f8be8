/** Alerts: what each one waits for, whether it is raised, and whether its webhook takes what it says. */

import { rows } from "./agents.js";
import { change } from "./api.js";
import { compact, keys, make, say } from "./format.js";
import { some } from "./status.js";

/** What all questions are about, for the announcer: one takes the place of the other. */
const QUESTION = "question";
const byId = (name) => document.getElementById(name);

export class AlertsPanel {
  #raised = new Map();
  /** By alert: why it could not be dropped, until the next try. */
  #refused = new Map();
  /** The name of the alert that is dropped by another click, for as long as its button has the focus. */
  #sure = null;

  constructor({ announce }) {
    this.announce = announce;
    byId("alerts-list").addEventListener("focusout", ({ relatedTarget: next }) => {
      // its button may be another one by now
      if (this.#sure !== null && next?.closest(".alert")?.dataset.name !== this.#sure) this.#ask(null);
    });
  }

  show(frame) {
    const { alerts } = frame;
    const panel = byId("alerts");
    const list = byId("alerts-list");
    const focused = list.contains(document.activeElement);
    if (this.#sure !== null && !alerts.some((alert) => alert.name === this.#sure)) this.#ask(null);
    if (panel.hidden !== !alerts.length) panel.hidden = !alerts.length;
    const raised = alerts.filter((alert) => alert.raised > 0).length;
    say(byId("alerts-note"), raised ? `${raised} of ${alerts.length} raised` : "none is raised");
    rows(list, alerts, () => this.#item(), (item, alert) => this.#show(item, alert));
    // the last one takes the focus with it when it goes
    if (focused && !alerts.length) byId("side").focus({ preventScroll: true });
    else if (focused && !list.contains(document.activeElement)) list.focus({ preventScroll: true });
    this.#tell(alerts);
  }

  #item() {
    const item = make("li", "alert");
    const drop = make("button", "quiet small changes", "Drop");
    drop.type = "button";
    drop.addEventListener("click", () => {
      // not every browser gives it to a button that is clicked
      drop.focus();
      this.#drop(item.dataset.name);
    });
    const [sign, name, condition] = [make("span", "sign"), make("strong", "alert-name"), make("span", "condition")];
    sign.setAttribute("aria-hidden", "true");
    item.append(sign, name, condition, make("span", "state"), drop, make("p", "trouble"));
    return item;
  }

  #show(item, alert) {
    const [, name, condition, state, drop, trouble] = item.children;
    const up = alert.raised > 0 ? "yes" : "no";
    if (item.dataset.raised !== up) item.dataset.raised = up;
    if (item.dataset.name !== alert.name) item.dataset.name = alert.name;
    this.#label(drop, alert.name);
    say(name, alert.name);
    say(condition, `${alert.query}: ${alert.condition}`);
    say(state, `${alert.raised > 0 ? `raised${where(alert)}` : "calm"} · ${compact(alert.events)} event${alert.events === 1 ? "" : "s"}`);
    const waiting = alert.waiting ? `${compact(alert.waiting)} waiting for the webhook` : "";
    const title = `${alert.query}: ${alert.condition}, to ${alert.url}${alert.trouble ? `: ${alert.trouble}` : ""}`;
    if (item.title !== title) item.title = title;
    const told = [waiting, alert.trouble].filter(Boolean).join(": ");
    say(trouble, [this.#refused.get(alert.name), told].filter(Boolean).join("; "));
  }

  /** The first click asks, the second one drops. Places in the list may change hands in between. */
  async #drop(name) {
    if (this.#sure !== name) return this.#ask(name);
    this.#ask(null);
    this.#refused.delete(name);
    try {
      await change("DELETE", `/api/alerts/${encodeURIComponent(name)}`);
      this.announce(`Alert ${name} is dropped.`, name);
    } catch (problem) {
      this.#refused.set(name, `not dropped: ${problem.message}`);
      const item = [...byId("alerts-list").children].find((each) => each.dataset.name === name);
      if (item) say(item.lastElementChild, this.#refused.get(name));
      this.announce(`Alert ${name} was not dropped: ${problem.message}`, name);
    }
  }

  /** Asks whether an alert is to be dropped; none: asks no more. */
  #ask(name) {
    this.#sure = name;
    for (const item of byId("alerts-list").children) this.#label(item.querySelector("button"), item.dataset.name);
    // the button has the focus already, so that its new words are read to nobody; what is asked no more is not said
    this.announce(name === null ? "" : `Really drop the alert ${name}? Press once more.`, QUESTION);
  }

  #label(button, name) {
    const sure = name === this.#sure;
    say(button, sure ? "Really drop?" : "Drop");
    const label = sure ? `Really drop the alert ${name}?` : `Drop the alert ${name}`;
    if (button.getAttribute("aria-label") !== label) button.setAttribute("aria-label", label);
    button.toggleAttribute("data-sure", sure);
  }

  #tell(alerts) {
    const turned = alerts.filter((alert) => (this.#raised.get(alert.name) ?? alert.raised > 0) !== alert.raised > 0);
    for (const [raised, words] of [[true, "raised"], [false, "calm again"]]) {
      const names = turned.filter((alert) => alert.raised > 0 === raised).map((alert) => alert.name);
      if (names.length) this.announce(names.length > 1 ? `Alerts ${some(names)} are ${words}.` : `Alert ${names[0]} is ${words}.`);
    }
    for (const alert of alerts) this.#raised.set(alert.name, alert.raised > 0);
  }
}

/** In which groups an alert is raised: some by name, and how many more. */
function where({ raised, groups = [] }) {
  if (!groups.length) return raised > 1 ? ` in ${compact(raised)} groups` : "";
  const more = raised - groups.length;
  return ` for ${groups.map(keys).join(", ")}${more > 0 ? ` and ${compact(more)} more` : ""}`;
}
