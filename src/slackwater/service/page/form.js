/** The form for a new query: SQL is previewed, then registered; what is wrong is shown where it is. */

import { change, getJson } from "./api.js";
import { Editor } from "./editor.js";
import { Forecast } from "./forecast.js";
import { make, say } from "./format.js";
import { showProblem } from "./problem.js";

const ELSEWHERE = "Queries are altered and dropped in their sheets: click the name of one. Here they are created.";
const byId = (name) => document.getElementById(name);
const CONTRACTS = [
  ["WITH EXACT", "every row is looked at"],
  ["WITH ERROR 5% CONFIDENCE 99%", "an interval that holds the truth, from a sample under load"],
  ["WITH SUBSET GAP 10", "exact answers, of which some are left out under load"],
  ["WITH PRECISION 40", "an interval at most so wide, over LATEST of agents"],
  ["WITH DRIFT 1% BELIEF 90%", "answered again when it has probably moved so far, over LATEST"],
];

export class NewQuery {
  /** What is under way, in words; empty: nothing. */
  #busy = "";
  /** Whether that is a registration. */
  #sending = false;
  /** Whether somebody was told to wait for it. */
  #waits = false;
  /** The SQL that a preview was of, and can be registered. */
  #previewed = null;
  /** How often it was opened: what comes of a registration is for the form that it was sent from. */
  #openings = 0;
  /** Whether somebody has written into the field since it was opened: nothing else is put into it then. */
  #touched = false;

  constructor({ registered, announce }) {
    this.registered = registered;
    this.announce = announce;
    this.dialog = byId("form");
    this.editor = new Editor({ changed: () => this.#edited() });
    this.forecast = new Forecast(byId("forecast"));
    // what is written and taken away again has been written, too
    for (const touch of ["beforeinput", "input", "compositionstart"]) {
      byId("sql").addEventListener(touch, () => (this.#touched = true));
    }
    byId("preview").addEventListener("click", () => this.#preview());
    byId("register").addEventListener("click", () => this.#register());
    this.dialog.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      if (this.#previewed === this.editor.text) this.#register();
      else this.#preview();
    });
  }

  /** Opens with what was written before, or with a beginning. */
  open() {
    if (this.dialog.open) return;
    this.#touched = false;
    this.#openings += 1;
    this.dialog.showModal();
    byId("sql").focus();
    this.#known();
  }

  #edited() {
    this.#problem(null);
    this.#offer();
  }

  /** Lets what was previewed be registered while it still stands there. */
  #offer() {
    const same = this.#previewed !== null && this.#previewed === this.editor.text;
    const button = byId("register");
    button.disabled = !same;
    say(button, this.#sending ? "Registering…" : "Register");
    button.ariaBusy = String(this.#sending);
    this.forecast.stale(this.#previewed !== null && !same);
  }

  async #preview() {
    const sql = this.editor.text;
    await this.#whileBusy("Previewing…", sql, async () => {
      this.#previewed = null;
      this.#offer();
      this.forecast.wait();
      const preview = await change("POST", "/api/preview", { sql });
      const creates = !preview.alters.length && !preview.drops.length;
      if (!creates) preview.notes.unshift(ELSEWHERE);
      this.#previewed = creates ? sql : null;
      this.forecast.show(preview);
      this.names = [...preview.creates, ...preview.alters];
    });
  }

  async #register() {
    if (byId("register").disabled) return;
    const { names } = this;
    const [sql, said, opening] = [this.editor.text, names.join(", "), this.#openings];
    const doing = `Registering ${said}…`;
    const problem = await this.#whileBusy(doing, sql, async () => {
      this.#sending = true;
      this.#offer();
      this.announce(doing, this);
      await change("POST", "/api/queries", { sql });
      this.#previewed = null;
      this.forecast.clear();
      // what somebody writes meanwhile is another one
      if (this.#openings === opening && this.editor.text === sql) {
        this.dialog.close();
        this.editor.text = "";
      }
      this.announce("", this);
      this.registered(names);
    });
    if (problem && !this.dialog.open) this.announce(`${said} was not registered: ${problem.message}`, this);
  }

  /** One request at a time, with what is in the field; what goes wrong is shown at its place, and returned. */
  async #whileBusy(doing, sql, work) {
    if (this.#busy) {
      this.#waits = true;
      return void this.#problem(new Error(`${this.#busy} Nothing else is sent until then.`));
    }
    this.#busy = doing;
    this.dialog.dataset.busy = "yes";
    this.#problem(null);
    let failed = false;
    try {
      await work();
      return null;
    } catch (problem) {
      this.#previewed = null;
      this.forecast.clear();
      // a button that can be pressed no more loses the focus
      if (document.activeElement === byId("register")) byId("sql").focus();
      failed = true;
      this.#problem(problem, sql);
      return problem;
    } finally {
      // what was said of having to wait is true no more
      if (this.#waits && !failed) this.#problem(null);
      [this.#busy, this.#sending, this.#waits] = ["", false, false];
      delete this.dialog.dataset.busy;
      this.#offer();
    }
  }

  /** Says what is wrong with some SQL, and marks the word where that is still what stands there. */
  #problem(problem, sql = null) {
    showProblem(byId("sql-problem"), problem);
    if (problem === null || this.editor.text !== sql) return;
    // a mistake of the page has no place
    this.editor.mark(problem.line == null ? null : { line: problem.line, column: problem.column ?? 1 });
  }

  /** Streams and tables with their columns, and the contracts. */
  async #known() {
    const list = byId("known-list");
    try {
      const [streams, tables] = await Promise.all([getJson("/api/streams"), getJson("/api/tables")]);
      const items = [...streams.map((stream) => item("stream", stream)), ...tables.map((table) => item("table", table))];
      for (const [sql, words] of CONTRACTS) {
        const contract = make("li", "promise");
        contract.append(make("code", "", sql), make("span", "", words));
        items.push(contract);
      }
      list.replaceChildren(...items);
      // one with keys is asked for current values; windows are the easier beginning
      const first = streams.find((stream) => !stream.key?.length) ?? streams[0];
      if (!this.#touched && !this.editor.text && first) this.editor.text = beginning(first);
    } catch (problem) {
      list.replaceChildren(make("li", "", problem.message));
    }
  }
}

function item(kind, { name, columns }) {
  const made = make("li");
  const said = columns.map((column) => `${column.name} ${column.type}`).join(", ");
  made.append(make("span", "kind", kind), make("code", "", name), make("span", "", said));
  return made;
}

/** A query that can be registered as it is. */
function beginning(stream) {
  return [
    "CREATE QUERY my_query AS",
    `  SELECT COUNT(*) AS n FROM ${stream.name}`,
    `  GROUP BY window(${stream.time}, '10 seconds', '1 second')`,
    "  WITH ERROR 5%",
  ].join("\n");
}
