/** The sheet of one query: a large band chart, what is known of it, and how to alter or drop it. */

import { awayIn, rows } from "./agents.js";
import { change, getJson } from "./api.js";
import { BandChart } from "./band.js";
import { errorText, howText, ofText, openWords } from "./card.js";
import { compact, make, ROW, say, seconds, share } from "./format.js";
import { LatestAnswers, intervalText, valueText } from "./latest.js";
import { showProblem } from "./problem.js";

/** What stands on buttons, and while what they do is under way. */
const ALTER = { words: "Alter", doing: "Altering…", button: "alter" };
const DROP = { words: "Drop this query", doing: "Dropping…", button: "drop" };
const byId = (name) => document.getElementById(name);
const pathOf = (query) => `/api/queries/${encodeURIComponent(query.name)}`;

export class QuerySheet {
  constructor({ announce }) {
    this.announce = announce;
    this.dialog = byId("query");
    this.query = null;
    this.chart = null;
    this.latest = new LatestAnswers({ chosen: (chosen) => this.#choose(chosen), announce });
    this.chosen = null;
    this.until = null;
    this.recorded = false;
    /** By query: what is done with it; one thing at a time. */
    this.underWay = new Map();
    this.frame = null;
    this.dialog.addEventListener("close", () => this.#closed());
    byId("contract-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#alter();
    });
    byId("drop").addEventListener("click", () => this.#confirm(true));
    byId("drop-no").addEventListener("click", () => this.#confirm(false));
    byId("drop-yes").addEventListener("click", () => this.#drop());
  }

  /** ``version``: of the query set that a recording shows; null for a run that goes on. */
  open(query, until, version) {
    [this.query, this.chosen, this.version, this.recorded] = [query, null, version, version !== null];
    say(byId("query-heading"), query.name);
    this.#fresh();
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.scrollTop = 0;
    this.chart?.destroy();
    this.chart = new BandChart(byId("query-chart"), { told: (text) => this.#hover(text) });
    this.#draw(until);
    this.latest.of(query, this.recorded, until);
    this.#said(query);
  }

  /** Its contract, and nothing of what was said of another one. */
  #fresh() {
    byId("contract").value = this.query.frame.contract;
    showProblem(byId("contract-problem"), null);
    say(byId("contract-done"), "");
    this.#confirm(false);
    this.#showWork();
  }

  /** Shows the query as it is now; one that is no more closes the sheet. */
  show(state, until) {
    this.frame = state.frame;
    if (this.query === null) return;
    const now = state.queries.get(this.query.name);
    if (now === undefined) {
      const { name } = this.query;
      this.dialog.close();
      // what is outside of a dialog that is open is read to nobody
      return this.announce(`${name} is no more.`);
    }
    // one of the same name that was made anew has other columns and groups
    const anew = now !== this.query;
    if (anew) this.chosen = null;
    this.query = now;
    const version = this.recorded ? state.frame.version : null;
    if (anew) this.#fresh();
    if (anew || version !== this.version) {
      this.version = version;
      this.#said(now);
    }
    this.#draw(until(now));
    if (anew) this.latest.of(now, this.recorded, this.until);
    else this.latest.at(this.until);
  }

  /** Shows another column or group than the card does; null: the same. */
  #choose(chosen) {
    this.chosen = chosen;
    if (this.query !== null) this.#draw(this.until);
  }

  #draw(until) {
    this.until = until;
    const { frame } = this.query;
    const { chosen } = this;
    const away = this.frame === null ? "" : awayIn(this.frame, frame.stream);
    const open = openWords(chosen ? chosen.answer : this.query.series.newest, away);
    const shown = chosen ? { ...frame, ...ofAnswer(chosen.answer), column: chosen.column, keys: chosen.keys } : frame;
    say(byId("query-answer"), open || (chosen ? answerText(chosen.answer) : frame.last_text) || "–");
    byId("query-answer").classList.toggle("no-interval", open !== "");
    byId("query-answer").classList.toggle("row", shown.column === ROW);
    this.ofText = ofText(shown);
    if (!this.hovered) say(byId("query-of"), this.ofText);
    this.chart.show(chosen ? { ...this.query, frame: shown, series: chosen.series } : this.query, until);
    const met = chosen ? (chosen.answer?.met ?? null) : (this.query.series.window().at(-1)?.met ?? frame.met);
    const all = frame.groups > 1 ? "met in all groups" : severalColumns(frame) ? "met in all columns" : null;
    const facts = [
      ["contract", frame.contract],
      ["met", metText(met)],
      ...(all === null ? [] : [[all, metText(frame.met)]]),
      ["how", howText(shown, open, away)],
      ["error", errorText(shown)],
      ["to be expected", frame.expected_error === null ? "–" : frame.expected_error === 0 ? "none" : share(frame.expected_error)],
      ["kept", share(shown.rate)],
      ["load", seconds(frame.load)],
      ["answers", compact(frame.answers)],
      ["groups", frame.groups ? compact(frame.groups) : "–"],
      frame.kind === "current" ? ["evaluated", compact(frame.evaluated)] : ["left out", leftOut(shown)],
      ["stream", frame.stream],
    ];
    rows(byId("query-facts"), facts, factGroup, (group, [name, value]) => {
      say(group.firstElementChild, name);
      say(group.lastElementChild, value);
      const mark = name === "met" ? String(met) : name === all ? String(frame.met) : "";
      if (group.dataset.met !== mark) group.dataset.met = mark;
    });
  }

  #hover(text) {
    this.hovered = text;
    say(byId("query-of"), text ?? this.ofText);
  }

  /** The SQL it was declared with. */
  async #said(query) {
    const place = byId("query-sql");
    const { version } = this;
    const still = () => this.query === query && this.version === version;
    say(place, "");
    try {
      const found = await getJson(pathOf(query) + (version === null ? "" : `?version=${version}`));
      if (still()) say(place, found.sql);
    } catch (problem) {
      if (still()) say(place, problem.message);
    }
  }

  async #alter() {
    const query = this.query;
    const field = byId("contract");
    const contract = field.value.trim().replace(/^WITH\s+/i, "");
    say(byId("contract-done"), "");
    await this.#sent(query, ALTER, "contract-problem", async () => {
      await change("PATCH", pathOf(query), { contract });
      // another one may be in the sheet by now
      if (this.query?.name !== query.name) return this.announce(`${query.name} is altered: ${contract}`, query.name);
      say(byId("contract-done"), `Altered: ${contract}. It counts from the next batch on.`);
      field.value = contract;
      this.#said(query);
    });
  }

  async #drop() {
    const query = this.query;
    await this.#sent(query, DROP, "drop-problem", async () => {
      await change("DELETE", pathOf(query));
      if (this.query?.name === query.name) this.dialog.close();
      this.announce(`${query.name} is dropped.`, query.name);
    });
  }

  /**
   * Does one thing with a query at a time, which may take a batch; why it was refused is said in the sheet of its
   * query, or aloud where that is closed.
   */
  async #sent(query, what, place, work) {
    const { name } = query;
    const before = this.underWay.get(name);
    if (before) {
      byId(place).dataset.waits = name;
      return showProblem(byId(place), new Error(`${before.doing} Nothing else is done with ${name} until then.`));
    }
    this.underWay.set(name, what);
    showProblem(byId(place), null);
    if (what === DROP) this.#confirm(false);
    this.#showWork();
    this.announce(`${name}: ${what.doing}`, name);
    try {
      await work();
    } catch (problem) {
      delete byId(place).dataset.waits;
      if (this.query?.name === query.name) showProblem(byId(place), problem);
      else this.announce(`${query.name}: ${problem.message}`, query.name);
    } finally {
      this.underWay.delete(name);
      this.#showWork();
      // that one has to wait is true no more
      for (const told of [byId("contract-problem"), byId("drop-problem")]) {
        if (told.dataset.waits !== name) continue;
        delete told.dataset.waits;
        if (this.query?.name === name) showProblem(told, null);
      }
    }
  }

  /** What is done with the query, on its button. */
  #showWork() {
    const doing = this.query && this.underWay.get(this.query.name);
    for (const what of [ALTER, DROP]) {
      const button = byId(what.button);
      say(button, doing === what ? what.doing : what.words);
      button.ariaBusy = String(doing === what);
    }
  }

  /** Asks before a query is dropped. */
  #confirm(asks) {
    const before = !byId("confirm").hidden;
    byId("confirm").hidden = !asks;
    byId("drop").hidden = asks;
    showProblem(byId("drop-problem"), null);
    say(byId("confirm-says"), asks ? `Drop ${this.query.name}? It gives no more answers; those it gave stay.` : "");
    if (asks) byId("drop-no").focus();
    else if (before && this.dialog.open) byId("drop").focus();
  }

  #closed() {
    this.chart?.destroy();
    [this.query, this.chart, this.hovered, this.chosen] = [null, null, null, null];
    this.latest.query = null;
  }
}

/** An answer with its interval. */
const answerText = (answer) => (answer ? `${valueText(answer.value)} ${intervalText(answer)}`.trim() : "");

/** What a frame says of the answer on a card, of another one. */
function ofAnswer(answer) {
  if (!answer) return { how: null, rate: null, error: null, suspended: false };
  const { how, rate, value, low, high } = answer;
  const half = [value, low, high].every((size) => typeof size === "number") ? (high - low) / 2 : null;
  const error = half === 0 ? 0 : half === null || value === 0 ? null : half / Math.abs(value);
  return { how, rate, error, suspended: how === "suspended" };
}

/** Whether a query answers with several columns, beside its group keys. */
const severalColumns = ({ column, columns, keys }) => column !== ROW && columns.filter((name) => !(name in keys)).length > 1;

const metText = (met) => ({ true: "yes", false: "no", null: "no answer yet" })[met];

/** What is left out, in words: whole windows under SUBSET, else rows. */
function leftOut({ contract, rate }) {
  if (rate === null) return "–";
  return rate >= 1 ? "nothing" : `${share(1 - rate)} of ${contract.startsWith("SUBSET") ? "windows" : "rows"}`;
}

function factGroup() {
  const group = make("div");
  group.append(make("dt"), make("dd"));
  return group;
}
