/** The newest answers of a query as a table: one line for each column and group, of which one can be chosen. */

import { getCounted } from "./api.js";
import { answersOf, pointOf } from "./fill.js";
import { groupOf, keys, make, moment, number, ROW, say, share, when } from "./format.js";
import { showProblem } from "./problem.js";
import { Series } from "./series.js";

const MOST = 50;
/** So long after the last letter a search begins. */
const TYPING_MS = 250;
const EVERY_MS = 2_000;
/** A recording is moved through by hand, and nothing runs beside it. */
const EVERY_RECORDED_MS = 400;
const SERIES_POINTS = 300;
const HEADS = ["time (UTC)", "column", "group", "answer", "interval", "how", "kept", "rows", "met"];
const byId = (name) => document.getElementById(name);

export class LatestAnswers {
  #askedAt = -Infinity;
  #underWay = false;
  /** Null, or somebody has asked while a question was under way: whether at once. */
  #again = null;
  #timer = 0;
  #shown = "";
  #typing = 0;
  /** What was searched for with the answers that are shown. */
  #searched = "";

  /** ``chosen`` is called with a series other than that of the card, or with null for that one. */
  constructor({ chosen, announce }) {
    this.chosen = chosen;
    this.announce = announce;
    this.choice = null;
    this.details = byId("latest");
    this.place = byId("latest-list");
    this.problem = make("div", "problem");
    this.empty = make("p", "empty");
    this.tools = byId("latest-tools");
    this.field = byId("latest-search");
    this.table = make("table", "answers");
    const head = this.table.createTHead().insertRow();
    for (const word of HEADS) head.appendChild(make("th", "", word)).scope = "col";
    this.body = this.table.createTBody();
    this.place.append(this.problem, this.empty, this.table);
    this.#clear();
    this.query = null;
    this.until = null;
    this.details.addEventListener("toggle", () => this.details.open && this.refresh(true));
    this.field.addEventListener("input", () => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => this.refresh(true), TYPING_MS);
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.field.value) return;
      event.preventDefault();
      this.field.value = "";
      this.field.dispatchEvent(new Event("input"));
    });
  }

  /** Another query; ``until`` is how far its stream has come. */
  of(query, recorded, until) {
    [this.query, this.recorded, this.until, this.#shown, this.choice] = [query, recorded, until, "", null];
    this.field.value = this.#searched = "";
    this.#clear();
    this.#trouble(byId("chosen-problem"), null);
    this.refresh(true);
  }

  #clear() {
    this.body.replaceChildren();
    this.empty.hidden = this.table.hidden = this.tools.hidden = true;
    this.#trouble(this.problem, null);
  }

  /** Shows the query as it is now. */
  at(until) {
    this.until = until;
    this.refresh();
  }

  /**
   * Asks for them where they are looked at, and for the series that was chosen wherever one was: it is in the chart.
   * At most one question is under way, and there are not many in a short time.
   */
  async refresh(atOnce = false) {
    if (this.query === null || !(this.details.open || this.choice !== null)) return;
    clearTimeout(this.#timer);
    if (this.#underWay) {
      this.#again = atOnce || this.#again === true;
      return;
    }
    const early = (this.recorded ? EVERY_RECORDED_MS : EVERY_MS) - (performance.now() - this.#askedAt);
    if (!atOnce && early > 0) {
      // no other frame may come that asks again
      this.#timer = setTimeout(() => this.refresh(), early);
      return;
    }
    const query = this.query;
    this.#askedAt = performance.now();
    this.#underWay = true;
    try {
      if (this.details.open) await this.#list(query);
      if (this.query === query && this.choice !== null) await this.#follow(query, this.choice);
    } finally {
      this.#underWay = false;
      const again = this.#again;
      this.#again = null;
      if (again !== null) this.refresh(again);
    }
  }

  /** The newest answers of all columns and groups, or of those that are searched for. */
  async #list(query) {
    const search = this.field.value.trim();
    try {
      const { answers, there, cut } = await getCounted(this.#path(query, search));
      if (this.query !== query) return;
      this.#trouble(this.problem, null);
      this.#count(answers, there, cut, search);
      this.#show(answers);
    } catch (problem) {
      // what was there before stays to be read
      if (this.query === query) this.#trouble(this.problem, problem);
    }
  }

  /** Shows the series of a line instead of that of the card; the same line again: that of the card. */
  #choose(answer) {
    const { frame } = this.query;
    const other = same(answer, frame) || (this.choice !== null && same(answer, this.choice)) ? null : answer;
    this.choice = other && { column: other.column, keys: other.keys };
    this.#mark();
    this.#trouble(byId("chosen-problem"), null);
    if (this.choice === null) this.chosen(null);
    else this.refresh(true);
  }

  /** Shows the series that was chosen as it is now. */
  async #follow(query, choice) {
    const asked = { column: choice.column, keys: choice.keys, until: this.#shownUntil(query), limit: SERIES_POINTS };
    try {
      const answers = await answersOf(query.name, asked);
      if (this.query !== query || this.choice !== choice) return;
      const series = new Series(SERIES_POINTS);
      for (const answer of answers) series.push(pointOf(answer));
      this.#trouble(byId("chosen-problem"), null);
      this.chosen({ ...choice, series, answer: answers.at(-1) });
    } catch (problem) {
      if (this.query === query && this.choice === choice) this.#trouble(byId("chosen-problem"), problem);
    }
  }

  /** Why the table or the chosen series stands still; said once, however often it is asked for. */
  #trouble(place, problem) {
    const words = problem?.message ?? "";
    if (place.dataset.words === words) return;
    place.dataset.words = words;
    showProblem(place, problem);
  }

  /** A recording is asked for what was there at the chosen time; null: for the newest. */
  #shownUntil(query) {
    const at = query.series.window().at(-1)?.at ?? this.until;
    return this.recorded && at !== null ? new Date(at * 1000).toISOString() : null;
  }

  /** Says which line is the one in the chart. */
  #mark() {
    const shown = this.choice ?? this.query.frame;
    for (const row of this.body.rows) {
      const now = String(same(row.answer, shown));
      const button = row.querySelector("button");
      if (button && button.getAttribute("aria-pressed") !== now) button.setAttribute("aria-pressed", now);
    }
  }

  #path(query, search) {
    const asked = new URLSearchParams({ limit: MOST });
    const until = this.#shownUntil(query);
    if (until !== null) asked.set("until", until);
    if (search) asked.set("search", search);
    return `/api/queries/${encodeURIComponent(query.name)}/latest?${asked}`;
  }

  /** Says how many there are where not all are shown, and lets them be searched. */
  #count(answers, there, cut, search) {
    this.tools.hidden = there <= MOST && !search && document.activeElement !== this.field;
    const { column, columns, keys: group, groups } = this.query.frame;
    const kinds = column === ROW ? "rows" : columns.filter((name) => !(name in group)).length > 1 ? "columns and groups" : "groups";
    // answers of long ago still stand where they are of current values
    const most = cut || (!search && column !== ROW && groups > there);
    const of = there > answers.length ? `${number(answers.length)} of ${most ? "at least " : ""}` : "";
    const words = `${of}${number(there)} ${kinds}${search ? " with that" : ""}${most ? "; of so many not all are kept" : ""}`;
    say(byId("latest-count"), words);
    const none = cut ? "None of those that are kept has that." : "None has that.";
    say(this.empty, search ? none : "No answer yet.");
    if (search !== this.#searched) this.announce(words, this.field);
    this.#searched = search;
  }

  #show(answers) {
    const text = JSON.stringify(answers);
    if (text === this.#shown) return this.#mark();
    this.#shown = text;
    this.empty.hidden = answers.length > 0;
    this.table.hidden = !answers.length;
    // rows have no series that could be chosen
    const several = answers.some((answer) => answer.column !== ROW && !same(answer, answers[0]));
    const known = new Map([...this.body.rows].map((row) => [row.key, row]));
    const lines = answers.map((answer) => {
      const key = `${answer.column} ${groupOf(answer.keys)}`;
      const row = known.get(key) ?? this.#line(key);
      known.delete(key);
      this.#tell(row, answer, several);
      return row;
    });
    this.#order(lines, [...known.values()]);
    this.#mark();
  }

  #line(key) {
    const row = document.createElement("tr");
    row.key = key;
    for (const _ of HEADS) row.insertCell();
    return row;
  }

  /** Shows an answer in the line of its series. */
  #tell(row, answer, several) {
    row.answer = answer;
    const time = answer.window_end ?? answer.at;
    const group = keys(answer.keys);
    const texts = [
      time ? when(moment(time)) : "–", answer.column === ROW ? "" : (answer.column ?? ""), group, valueText(answer.value), intervalText(answer),
      answer.how, share(answer.rate), number(answer.rows), answer.met ? "✓" : "✗",
    ];
    const place = group ? 2 : 1;
    texts.forEach((text, i) => {
      const cell = row.cells[i];
      if (i === place) this.#offer(cell, row, text, several);
      else say(cell, text);
    });
    const met = row.lastElementChild;
    const style = `met ${answer.met}`;
    if (met.className === style) return;
    met.className = style;
    met.setAttribute("aria-label", answer.met ? "met" : "not met");
  }

  /** Lets a line be chosen for the chart, where there are several. */
  #offer(cell, row, text, several) {
    let button = cell.firstElementChild;
    if (!several) {
      button?.remove();
      return say(cell, text);
    }
    if (button === null) {
      button = make("button", "quiet small pick");
      button.type = "button";
      button.addEventListener("click", () => this.#choose(row.answer));
      cell.replaceChildren(button);
    }
    say(button, text);
    const { column, keys: group } = row.answer;
    const label = `Show ${[column, keys(group)].filter(Boolean).join(" of ")} in the chart`;
    if (button.getAttribute("aria-label") !== label) button.setAttribute("aria-label", label);
  }

  /** Lines in their order; one that is there stays where it is while somebody points at the table, or is in it. */
  #order(lines, gone) {
    const used = this.place.matches(":hover, :focus-within") || this.#marked();
    if (gone.some((row) => row.contains(document.activeElement))) this.details.querySelector("summary").focus({ preventScroll: true });
    for (const row of gone) row.remove();
    if (used) return this.body.append(...lines.filter((row) => !row.isConnected));
    let place = this.body.firstElementChild;
    for (const row of lines) {
      if (row === place) place = place.nextElementSibling;
      else this.body.insertBefore(row, place);
    }
  }

  /** Whether some text of the table is selected. */
  #marked() {
    const selection = document.getSelection();
    return !selection.isCollapsed && selection.containsNode(this.table, true);
  }
}

const same = (one, other) => one.column === other.column && groupOf(one.keys) === groupOf(other.keys);

export function valueText(value) {
  if (typeof value === "number") return number(value, 7);
  if (value === null) return "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function intervalText({ low, high, value, confidence }) {
  if (typeof low !== "number" || typeof high !== "number" || (low === value && high === value)) return "";
  const sure = confidence < 1 ? ` at ${share(confidence)}` : "";
  return `[${number(low, 6)}, ${number(high, 6)}]${sure}`;
}
