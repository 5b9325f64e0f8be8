/** The shared plan as a live picture: operators as a river, shedders as gates, queries where they end. */

import { getJson, getText } from "./api.js";
import { compact, say, seconds } from "./format.js";
import { watchEdges } from "./edges.js";
import { Picture } from "./picture.js";
import { completed, costsOf, edgePath, flowsOf, rowsOf, shapeOf } from "./plan_layout.js";
import { costOf, facts, gateOf, nameOf, showDeclared, showTable, stateOf, summary } from "./plan_words.js";

const SVG = "http://www.w3.org/2000/svg";
const CHARACTER = 6.65;
const NARROW_CHARACTER = 5.5;
/** Where keys go from a query in the picture: by so many queries. */
const STEPS = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity };

export class Plan {
  constructor({ open }) {
    this.open = open;
    this.place = document.getElementById("plan");
    this.note = document.getElementById("plan-note");
    this.shape = "";
    this.version = null;
    this.svg = null;
    this.declared = null;
    this.streams = [];
    this.wanted = false;
    /** What is to be shown after the question that is under way. */
    this.next = null;
    this.look = watchEdges(this.place);
    new ResizeObserver(() => this.svg && this.#build()).observe(this.place);
  }

  /** Asks for the numbers and shows them; at most one question is under way. */
  async refresh(state) {
    if (document.hidden) return;
    if (this.wanted) {
      this.next = state;
      return;
    }
    this.wanted = true;
    try {
      await this.#ask(state);
    } catch {
      // the stream of frames says that the service is away; the last picture stays
    } finally {
      this.wanted = false;
    }
    const { next } = this;
    this.next = null;
    if (next !== null) this.refresh(next);
  }

  async #ask({ frame, queries }) {
    const recorded = frame.mode === "recorded";
    const { version } = frame;
    const insight = await getJson(recorded ? `/api/statistics?at=${encodeURIComponent(frame.at)}` : "/api/statistics");
    const streams = insight.streams.filter((stream) => stream.measured && stream.operators.length);
    if (streams.length) this.show(completed(streams, frame, queries));
    // before the first batches of a recording nothing had been measured, whatever was shown of a later time
    else if (this.version !== version || (recorded && this.svg !== null)) {
      const [drawn, text] = await Promise.all(["svg", "text"].map((format) => getText(`/api/plan?format=${format}`)));
      this.#picture(drawn, text, recorded);
    }
    this.version = version;
  }

  show(streams) {
    this.streams = streams;
    const shape = shapeOf(streams);
    if (shape !== this.shape || this.svg === null) {
      this.shape = shape;
      this.#build();
    } else this.#update();
  }

  /** The declared plan, while nothing is measured. */
  #picture(drawn, text, recorded) {
    [this.svg, this.shape] = [null, ""];
    this.declared ??= new Picture(this.place, "The shared plan as it is declared", "declared");
    this.declared.show(drawn);
    showDeclared(text);
    say(this.note, recorded ? "as declared at the end; nothing was measured" : "as declared");
  }

  #build() {
    this.declared?.forget();
    this.declared = null;
    const { rows, height, width } = rowsOf(this.streams, Math.max(240, this.place.clientWidth - 2));
    this.svg = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group" });
    this.svg.addEventListener("keydown", (event) => this.#key(event));
    const focused = document.activeElement?.closest("#plan .leaf")?.dataset.key;
    this.elements = new Map();
    const [edges, boxes] = [element("g", { "aria-hidden": "true" }), element("g")];
    for (const row of rows) {
      const parts = {};
      if (row.parent) {
        const d = edgePath(row.parent, row);
        if (row.kind === "operator") {
          parts.whole = edges.appendChild(element("path", { d, class: "flow whole" }));
          parts.kept = edges.appendChild(element("path", { d, class: "flow kept" }));
        } else edges.appendChild(element("path", { d, class: "flow thin" }));
      }
      boxes.append(row.kind === "operator" ? this.#operator(row, parts, width) : this.#leaf(row, parts, width));
      this.elements.set(row.key, parts);
    }
    this.svg.append(edges, boxes);
    this.rows = rows;
    const top = this.place.scrollTop;
    this.place.replaceChildren(this.svg);
    this.place.scrollTop = top;
    this.leaves = [...boxes.querySelectorAll(".leaf.query")];
    this.#reach(this.leaves.find((leaf) => leaf.dataset.key === focused) ?? this.leaves[0], focused !== undefined);
    this.#update();
    this.look();
  }

  /** One of the queries is reached by Tab, the others from there by arrows: there may be hundreds. */
  #reach(leaf, focus = true) {
    if (leaf === undefined) return;
    for (const other of this.leaves) other.setAttribute("tabindex", other === leaf ? "0" : "-1");
    if (focus) leaf.focus();
  }

  #key(event) {
    const place = this.leaves.indexOf(event.target.closest(".leaf.query"));
    if (place < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = STEPS[event.key];
    if (step !== undefined) this.#reach(this.leaves[Math.max(0, Math.min(this.leaves.length - 1, place + step))]);
    else if (event.key === "Enter" || event.key === " ") this.open(event.target.closest(".leaf").dataset.name);
    else return;
    event.preventDefault();
  }

  #operator(row, parts, width) {
    const place = `translate(${row.x} ${row.y})`;
    const group = element("g", { class: `operator ${row.operator.kind}`, transform: place, "aria-hidden": "true" });
    parts.gate = group.appendChild(element("g", { class: "gate" }));
    parts.gate.append(element("rect", { x: 0, y: 4, width: 14, height: 18, rx: 3 }), element("path", { d: "M4 8v10M7 8v10M10 8v10" }));
    parts.dot = group.appendChild(element("circle", { cx: 7, cy: 13, r: 5 }));
    const room = Math.floor((width - row.x - 92) / CHARACTER);
    row.room = Math.floor((width - row.x - 94) / NARROW_CHARACTER);
    const label = element("text", { x: 22, y: 16, class: "label" });
    label.textContent = shortened(row.operator.label, room);
    const title = element("title");
    parts.title = title;
    parts.facts = element("text", { x: 22, y: 30, class: "facts" });
    parts.gateSays = element("tspan", { class: "gate-says" });
    parts.factsSay = element("tspan");
    parts.facts.append(parts.gateSays, parts.factsSay);
    const right = width - row.x - 8;
    parts.cost = element("text", { x: right, y: 16, class: "cost" });
    parts.bar = element("rect", { x: right - 56, y: 22, width: 56, height: 3, rx: 1.5, class: "bar" });
    parts.barFull = element("rect", { x: right - 56, y: 22, width: 56, height: 3, rx: 1.5, class: "bar full" });
    group.append(title, label, parts.facts, parts.cost, parts.bar, parts.barFull);
    return group;
  }

  #leaf(row, parts, width) {
    const group = element("g", { class: `leaf ${row.kind}`, transform: `translate(${row.x} ${row.y})` });
    if (row.kind === "query") {
      group.append(element("rect", { x: 0, y: 0, width: width - row.x - 4, height: 20, rx: 4, class: "back" }));
      parts.mark = group.appendChild(element("circle", { cx: 9, cy: 10, r: 3.5, class: "mark" }));
      group.addEventListener("click", () => this.open(row.name));
      group.setAttribute("role", "button");
      group.setAttribute("aria-label", row.name);
      [group.dataset.name, group.dataset.key] = [row.name, row.key];
      parts.group = group;
    }
    parts.name = element("text", { x: 22, y: 14, class: "name" });
    parts.name.textContent = row.name;
    parts.title = element("title");
    parts.title.textContent = row.name;
    row.room = width - row.x - 38;
    parts.says = element("text", { x: width - row.x - 8, y: 14, class: "rate" });
    group.append(parts.title, parts.name, parts.says);
    return group;
  }

  #update() {
    const known = new Map();
    for (const stream of this.streams) {
      const flows = flowsOf(stream);
      const costs = costsOf(stream, flows);
      const total = costs.reduce((sum, cost) => sum + (cost ?? 0), 0);
      const queries = new Map(stream.queries.map((query) => [query.query, query]));
      const drops = new Map(stream.drops.flatMap((drop) => drop.queries.map((name) => [name.toLowerCase(), drop])));
      known.set(stream.stream, { stream, flows, costs, total, queries, drops });
    }
    const nowOf = (row) => known.get(row.stream.stream);
    for (const row of this.rows) {
      const now = nowOf(row);
      const parts = this.elements.get(row.key);
      if (row.kind === "operator") this.#updateOperator(row, parts, now);
      else if (row.kind === "query") this.#updateQuery(row, parts, now);
    }
    const measured = Math.max(...this.streams.map((stream) => stream.measured));
    say(this.note, `measured over ${compact(measured)} batch${measured === 1 ? "" : "es"}`);
    this.svg.setAttribute("aria-label", summary(this.streams));
    showTable(this.rows, nowOf);
  }

  #updateOperator(row, parts, { stream, flows, costs, total }) {
    const operator = stream.operators[row.place];
    const gate = gateOf(operator, stream);
    const shed = gate !== "";
    if (parts.gate.classList.contains("shut") !== shed) parts.gate.classList.toggle("shut", shed);
    const flow = flows[row.place];
    if (parts.whole) {
      setWidth(parts.whole, flow.whole);
      setWidth(parts.kept, flow.kept);
    }
    const known = facts(operator, stream);
    // what does not fit before the bar is left out, the last first
    while (known.length > 1 && [gate, ...known].join(" · ").length > row.room) known.pop();
    say(parts.gateSays, gate);
    say(parts.factsSay, (shed ? " · " : "") + known.join(" · "));
    say(parts.title, titleOf(operator));
    say(parts.cost, operator.seconds === null ? "" : `${seconds(operator.seconds)} a row`);
    const part = costs[row.place] === null || !total ? 0 : costs[row.place] / total;
    parts.barFull.style.width = `${(56 * part).toFixed(1)}px`;
    parts.bar.style.visibility = costs[row.place] === null ? "hidden" : "visible";
  }

  #updateQuery(row, parts, { queries, drops }) {
    const query = queries.get(row.name);
    if (!query) return;
    const [state, words, brief] = stateOf(query, drops.get(row.name.toLowerCase()));
    const left = (said) => Math.floor((row.room - NARROW_CHARACTER * said.length) / CHARACTER);
    // the name has the room first
    const said = left(words) < row.name.length ? brief : words;
    say(parts.says, said);
    say(parts.name, shortened(row.name, left(said)));
    say(parts.title, `${row.name}: ${words}`);
    parts.group.setAttribute("aria-label", `${row.name}: ${words}`);
    if (parts.mark.dataset.state !== state) parts.mark.dataset.state = parts.says.dataset.state = state;
  }
}

/** What an operator is, and whether its cost is that of others as well. */
function titleOf(operator) {
  return operator.shared && operator.seconds !== null ? `${nameOf(operator)}; a row costs ${costOf(operator)}` : nameOf(operator);
}

/** The square root of the flow, so that a hundredth of the water is still a line. */
function setWidth(path, flow) {
  path.style.strokeWidth = `${(flow <= 0 ? 0 : 1 + 8 * Math.sqrt(Math.min(1, flow))).toFixed(2)}px`;
}

/** A text in so many characters; the whole is in its title. */
function shortened(text, room) {
  return text.length > room ? `${text.slice(0, Math.max(1, room - 1))}…` : text;
}

function element(name, attributes = {}) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
