/** The newest answers of a query as a table: one line for each column and group. */

import { getJson } from "./api.js";
import { answersPath } from "./fill.js";
import { clock, keys, make, moment, number, share } from "./format.js";
import { showProblem } from "./problem.js";

const MOST = 50;
const EVERY_MS = 2_000;
const HEADS = ["time", "column", "group", "answer", "interval", "how", "kept", "rows", "met"];
const byId = (name) => document.getElementById(name);

export class LatestAnswers {
  #askedAt = -Infinity;
  #underWay = false;
  #shown = "";

  constructor() {
    this.details = byId("latest");
    this.place = byId("latest-list");
    this.query = null;
    this.details.addEventListener("toggle", () => this.details.open && this.refresh(true));
  }

  /** Another query. */
  of(query, recorded) {
    [this.query, this.recorded, this.#shown] = [query, recorded, ""];
    this.place.replaceChildren();
    this.refresh(true);
  }

  /** Asks for them where they are looked at; at most one question is under way, and not many in a short time. */
  async refresh(atOnce = false) {
    if (!this.details.open || this.query === null || this.#underWay) return;
    if (!atOnce && performance.now() - this.#askedAt < EVERY_MS) return;
    const query = this.query;
    this.#askedAt = performance.now();
    this.#underWay = true;
    try {
      const answers = await getJson(this.#path(query));
      if (this.query === query) this.#show(this.recorded ? answers.toSorted(newestFirst) : answers);
    } catch (problem) {
      const place = make("div", "problem");
      showProblem(place, problem);
      this.place.replaceChildren(place);
      this.#shown = "";
    } finally {
      this.#underWay = false;
      if (this.query !== query) this.refresh(true);
    }
  }

  /** A recording is asked for what was there at the chosen time. */
  #path(query) {
    const last = query.series.window().at(-1);
    if (!this.recorded || last === undefined) return `/api/queries/${encodeURIComponent(query.name)}/latest?limit=${MOST}`;
    return answersPath(query.name, { until: new Date(last.at * 1000).toISOString(), limit: MOST });
  }

  #show(answers) {
    const text = JSON.stringify(answers);
    if (text === this.#shown) return;
    this.#shown = text;
    if (!answers.length) return this.place.replaceChildren(make("p", "empty", "No answer yet."));
    const table = make("table", "answers");
    const head = table.createTHead().insertRow();
    for (const word of HEADS) head.appendChild(make("th", "", word)).scope = "col";
    const body = table.createTBody();
    for (const answer of answers) {
      const row = body.insertRow();
      const time = answer.window_end ?? answer.at;
      const cells = [
        time ? clock(moment(time)) : "–", answer.column ?? "", keys(answer.keys), valueText(answer.value), intervalText(answer),
        answer.how, share(answer.rate), number(answer.rows), answer.met ? "✓" : "✗",
      ];
      for (const cell of cells) row.insertCell().textContent = cell;
      row.lastElementChild.className = `met ${answer.met}`;
      row.lastElementChild.setAttribute("aria-label", answer.met ? "met" : "not met");
    }
    this.place.replaceChildren(table);
  }
}

const timeOf = (answer) => moment(answer.window_end ?? answer.at ?? answer.emitted_at);
const newestFirst = (one, other) => timeOf(other) - timeOf(one);

function valueText(value) {
  if (typeof value === "number") return number(value, 7);
  return value === null ? "–" : String(value);
}

function intervalText({ low, high, value, confidence }) {
  if (typeof low !== "number" || typeof high !== "number" || (low === value && high === value)) return "";
  const sure = confidence < 1 ? ` at ${share(confidence)}` : "";
  return `[${number(low, 6)}, ${number(high, 6)}]${sure}`;
}
