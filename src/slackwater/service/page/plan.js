/** The shared plan as a live picture: operators as a river, shedders as gates, queries where they end. */

import { getJson, getText } from "./api.js";
import { compact, say, seconds, share } from "./format.js";
import { Picture } from "./picture.js";
import { completed, costsOf, edgePath, flowsOf, rowsOf, shapeOf } from "./plan_layout.js";

const SVG = "http://www.w3.org/2000/svg";
const CHARACTER = 6.65;
const NARROW_CHARACTER = 5.5;
const NAMES = { stream: "stream", test: "filter", lookup: "lookup", python: "Python", members: "members" };

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
    new ResizeObserver(() => this.svg && this.#build()).observe(this.place);
  }

  /** Asks for the numbers and shows them; at most one question is under way. */
  async refresh({ frame, queries }) {
    if (this.wanted || document.hidden) return;
    this.wanted = true;
    try {
      const insight = await getJson("/api/statistics");
      const streams = insight.streams.filter((stream) => stream.measured && stream.operators.length);
      const { version } = frame;
      if (streams.length) this.show(completed(streams, frame, queries));
      else if (this.version !== version) this.#picture(await getText("/api/plan?format=svg"));
      this.version = version;
    } catch {
      // the stream of frames says that the service is away; the last picture stays
    } finally {
      this.wanted = false;
    }
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
  #picture(text) {
    [this.svg, this.shape] = [null, ""];
    this.declared ??= new Picture(this.place, "The shared plan as it is declared", "declared");
    this.declared.show(text);
    say(this.note, "as declared");
  }

  #build() {
    this.declared?.forget();
    this.declared = null;
    const { rows, height } = rowsOf(this.streams);
    const width = Math.max(240, this.place.clientWidth - 2);
    this.svg = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
    this.elements = new Map();
    const [edges, boxes] = [element("g"), element("g")];
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
    this.#update();
  }

  #operator(row, parts, width) {
    const group = element("g", { class: `operator ${row.operator.kind}`, transform: `translate(${row.x} ${row.y})` });
    parts.gate = group.appendChild(element("g", { class: "gate" }));
    parts.gate.append(element("rect", { x: 0, y: 4, width: 14, height: 18, rx: 3 }), element("path", { d: "M4 8v10M7 8v10M10 8v10" }));
    parts.dot = group.appendChild(element("circle", { cx: 7, cy: 13, r: 5 }));
    const room = Math.floor((width - row.x - 92) / CHARACTER);
    row.room = Math.floor((width - row.x - 94) / NARROW_CHARACTER);
    const label = element("text", { x: 22, y: 16, class: "label" });
    label.textContent = row.operator.label.length > room ? `${row.operator.label.slice(0, room - 1)}…` : row.operator.label;
    const title = element("title");
    title.textContent = `${NAMES[row.operator.kind]}: ${row.operator.label}`;
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
    }
    const name = element("text", { x: 22, y: 14, class: "name" });
    name.textContent = row.name;
    parts.says = element("text", { x: width - row.x - 8, y: 14, class: "rate" });
    group.append(name, parts.says);
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
    for (const row of this.rows) {
      const now = known.get(row.stream.stream);
      const parts = this.elements.get(row.key);
      if (row.kind === "operator") this.#updateOperator(row, parts, now);
      else if (row.kind === "query") this.#updateQuery(row, parts, now);
    }
    const measured = Math.max(...this.streams.map((stream) => stream.measured));
    say(this.note, `measured over ${compact(measured)} batch${measured === 1 ? "" : "es"}`);
    this.svg.setAttribute("aria-label", this.#words());
  }

  #updateOperator(row, parts, { stream, flows, costs, total }) {
    const operator = stream.operators[row.place];
    const shed = operator.passes !== null && operator.passes !== undefined && operator.passes < 1;
    if (parts.gate.classList.contains("shut") !== shed) parts.gate.classList.toggle("shut", shed);
    const flow = flows[row.place];
    if (parts.whole) {
      setWidth(parts.whole, flow.whole);
      setWidth(parts.kept, flow.kept);
    }
    const gate = shed ? `lets pass ${share(operator.passes)}` : "";
    const known = facts(operator, stream);
    // what does not fit before the bar is left out, the last first
    while (known.length > 1 && [gate, ...known].join(" · ").length > row.room) known.pop();
    say(parts.gateSays, gate);
    say(parts.factsSay, (shed ? " · " : "") + known.join(" · "));
    say(parts.cost, operator.seconds === null ? "" : `${seconds(operator.seconds)} a row`);
    const part = costs[row.place] === null || !total ? 0 : costs[row.place] / total;
    parts.barFull.style.width = `${(56 * part).toFixed(1)}px`;
    parts.bar.style.visibility = costs[row.place] === null ? "hidden" : "visible";
  }

  #updateQuery(row, parts, { queries, drops }) {
    const query = queries.get(row.name);
    if (!query) return;
    const drop = drops.get(row.name.toLowerCase());
    let state = "whole";
    let words = "all";
    if (query.suspended || drop?.shut) [state, words] = ["suspended", "suspended"];
    else if (drop && drop.share > 0) [state, words] = ["shed", `leaves out ${share(drop.share)} of windows`];
    else if (query.rate < 1) [state, words] = ["shed", `${share(query.rate)}${query.error ? `, ± ${share(query.error)}` : ""}`];
    say(parts.says, words);
    if (parts.mark.dataset.state !== state) parts.mark.dataset.state = parts.says.dataset.state = state;
  }

  #words() {
    return this.streams
      .map((stream) => {
        const gates = stream.operators.filter((operator) => operator.passes !== null && operator.passes < 1);
        const shed = gates.map((operator) => `${share(operator.passes)} before ${operator.label}`).join(", ");
        return `Plan of ${stream.stream}: ${stream.operators.length} operators, ${stream.queries.length} queries; shedders: ${shed || "none"}`;
      })
      .join(". ");
  }
}

function facts(operator, stream) {
  if (operator.kind === "stream") {
    const rows = `${compact(stream.rate)} rows a second`;
    return [rows, stream.size === null ? "not measured" : `${compact(stream.size)} a batch`];
  }
  const { rows_in: before, rows_out: after } = operator;
  if (after === null || after === undefined) return [NAMES[operator.kind]];
  const own = before > 0 ? `selects ${share(after / before)}` : "";
  return [own, `${share(after)} of all rows`].filter(Boolean);
}

/** The square root of the flow, so that a hundredth of the water is still a line. */
function setWidth(path, flow) {
  path.style.strokeWidth = `${(flow <= 0 ? 0 : 1 + 8 * Math.sqrt(Math.min(1, flow))).toFixed(2)}px`;
}

function element(name, attributes = {}) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
