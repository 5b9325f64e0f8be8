/** The shared plan in words: what stands beside the operators of its picture, and all of it as a table for who does not see it. */

import { rows } from "./agents.js";
import { compact, make, say, seconds, share } from "./format.js";
import { readOf } from "./plan_layout.js";

const NAMES = { stream: "stream", test: "filter", lookup: "lookup", python: "Python", members: "members" };
const HEADS = ["operator", "reads", "rows", "cost of a row", "shedder", "queries that end here"];
const byId = (name) => document.getElementById(name);

/** What an operator is. */
export const nameOf = ({ kind, label }) => `${NAMES[kind]}: ${label}`;

/** What is known of the rows of an operator, the most important first. */
export function facts(operator, stream) {
  if (operator.kind === "stream") {
    const sent = stream.updates ?? null;
    // how fast rows come stands above; what the plan knows is the rate in the stream's own time
    const size = stream.size === null ? "not measured" : `${compact(stream.size)} rows a batch`;
    return sent === null ? [size] : [`${compact(sent)} updates a second`, size];
  }
  const { rows_in: before, rows_out: after } = operator;
  if (after === null || after === undefined) return [NAMES[operator.kind]];
  // of what comes from the stream itself both are one number
  if (before === 1) return [`selects ${share(after)} of all rows`];
  const own = before > 0 ? `selects ${share(after / before)}` : "";
  return [own, `${share(after)} of all rows`].filter(Boolean);
}

/** What a row costs an operator; filters of a stream, or its lookups, may be known only together. */
export function costOf({ kind, seconds: cost, shared }) {
  if (cost === null) return "not measured";
  return shared ? `${seconds(cost)}, mean of the ${kind === "lookup" ? "lookups" : "filters"}` : seconds(cost);
}

/** Whether a shedder stands before an operator. */
const sheds = ({ passes }) => passes !== null && passes !== undefined && passes < 1;

/** Whether an operator is the stream itself, of which its source leaves rows out. */
const skips = (operator, stream) => operator.parent < 0 && readOf(stream) < 1;

/** What lies before an operator that does not see all rows: a source that is read in part, or a shedder. */
export function gateOf(operator, stream) {
  const read = skips(operator, stream) ? `reads ${share(readOf(stream))}` : "";
  return [read, sheds(operator) ? `lets pass ${share(operator.passes)}` : ""].filter(Boolean).join(", ");
}

/** How a query does: its state, the same in words, and in fewer of them. The error is the one to be expected. */
export function stateOf(query, drop) {
  if (query.suspended || drop?.shut) return ["suspended", "suspended", "suspended"];
  if (drop && drop.share > 0) return ["shed", `leaves out ${share(drop.share)} of windows`, `− ${share(drop.share)}`];
  if (query.rate >= 1) return ["whole", "all", "all"];
  const kept = share(query.rate);
  if (!query.error) return ["shed", kept, kept];
  return ["shed", `${kept}, ± ${share(query.error)} expected`, `${kept}, ≈ ${share(query.error)}`];
}

/** All streams in a sentence each. */
export function summary(streams) {
  return streams
    .map((stream) => {
      const shed = stream.operators.filter(sheds).map((operator) => `${share(operator.passes)} before ${operator.label}`);
      const read = readOf(stream) < 1 ? `; reads ${share(readOf(stream))} of its rows` : "";
      const size = `${stream.operators.length} operators, ${stream.queries.length} queries`;
      return `Plan of ${stream.stream}: ${size}${read}; shedders: ${shed.join(", ") || "none"}`;
    })
    .join(". ");
}

/** Shows a plan as it is declared. */
export function showDeclared(text) {
  byId("plan-table").hidden = true;
  byId("plan-text").hidden = false;
  say(byId("plan-text"), text);
}

/** Shows the rows of the picture, each with what is known `now` of its stream; nothing of it is announced. */
export function showTable(drawn, now) {
  const table = byId("plan-table");
  table.hidden = false;
  byId("plan-text").hidden = true;
  if (!table.tHead) {
    const head = table.createTHead().insertRow();
    for (const word of HEADS) head.appendChild(make("th", "", word)).scope = "col";
    table.createTBody();
  }
  const ends = new Map(drawn.map((row) => [row.key, []]));
  for (const row of drawn) if (row.kind !== "operator") ends.get(row.parent.key).push(leafText(row, now(row)));
  const operators = drawn.filter((row) => row.kind === "operator");
  rows(table.tBodies[0], operators, operatorRow, (line, row) => {
    const { stream } = now(row);
    const operator = stream.operators[row.place];
    const cells = [
      nameOf(operator),
      row.parent?.operator.label ?? "",
      facts(operator, stream).join(", "),
      costOf(operator),
      gateOf(operator, stream) || "none",
      ends.get(row.key).join("; "),
    ];
    cells.forEach((text, i) => say(line.children[i], text));
  });
}

function leafText({ kind, name }, { queries, drops }) {
  const query = queries.get(name);
  return kind === "query" && query ? `${name}: ${stateOf(query, drops.get(name.toLowerCase()))[1]}` : name;
}

function operatorRow() {
  const line = make("tr");
  const name = make("th");
  name.scope = "row";
  line.append(name, ...HEADS.slice(1).map(() => make("td")));
  return line;
}
