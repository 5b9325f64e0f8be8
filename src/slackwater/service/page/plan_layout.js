/** Where the operators of a plan stand: rows below each other, each right of what it reads. */

export const ROW = 38;
export const LEAF = 21;
const INDENT = 20;
const LEAST_INDENT = 8;
/** Of the width, what steps to the right may take; and pixels that are left for words. */
const STEPS = 0.4;
const WORDS = 170;
const GAP = 15;
const LEFT = 14;
const MOST_LEAVES = 24;
const MOST_OPERATORS = 120;

/**
 * Streams with all their queries: those that read a view, or a stream of which nothing is measured, are no part of
 * the statistics, and stand at the stream itself. Those that are measured come first.
 */
export function completed(streams, frame, queries) {
  const known = new Map(streams.map((stream) => [stream.stream, stream]));
  const missing = new Map(frame.streams.map((stream) => [stream.name, []]));
  const told = new Set(streams.flatMap((stream) => stream.queries.map((query) => query.query)));
  for (const { name, frame: query } of queries.values()) {
    if (told.has(name)) continue;
    const { contract, rate, error, suspended } = query;
    missing.get(query.stream)?.push({ query: name, contract, rate: rate ?? 1, error, suspended });
  }
  const all = frame.streams.map(({ name, rows_per_second: rate, updates_per_second: updates }) => {
    const stream = known.get(name) ?? { stream: name, measured: 0, rate, size: null, operators: [rootOf(name)], queries: [], drops: [] };
    return { ...stream, updates, queries: [...stream.queries, ...missing.get(name)] };
  });
  // where something is measured, and shed, is above what never moves
  return all.sort((a, b) => Number(b.measured > 0) - Number(a.measured > 0));
}

function rootOf(name) {
  return { label: name, kind: "stream", parent: -1, rows_in: 1, rows_out: 1, seconds: null, passes: null, queries: [] };
}

/** What a picture is built from; as long as it is the same, only numbers change. */
export function shapeOf(streams) {
  return JSON.stringify(
    streams.map((stream) => [
      stream.stream,
      stream.operators.map((o) => [o.label, o.kind, o.parent, o.queries]),
      stream.queries.map((query) => query.query),
    ]),
  );
}

/** How many steps to the right the deepest row of the picture stands. */
function depthOf(streams) {
  const deepest = ({ operators }) => {
    const depths = [];
    for (const { parent } of operators) depths.push(parent >= 0 ? depths[parent] + 1 : 0);
    return Math.max(0, ...depths) + 1;
  };
  return Math.max(1, ...streams.map(deepest));
}

/** Rows of the picture from above to below: operators, queries that end at them, and what is left out. */
export function rowsOf(streams, room = Infinity) {
  const rows = [];
  const steps = depthOf(streams);
  const indent = Math.max(LEAST_INDENT, Math.min(INDENT, Math.floor((STEPS * room) / steps)));
  let y = 10;
  for (const stream of streams) {
    const children = stream.operators.map(() => []);
    stream.operators.forEach((operator, place) => {
      if (operator.parent >= 0) children[operator.parent].push(place);
    });
    const ended = new Set(stream.operators.flatMap((operator) => operator.queries ?? []));
    const loose = stream.queries.map((query) => query.query).filter((name) => !ended.has(name));
    let drawn = 0;
    const visit = (place, depth, parent) => {
      const operator = stream.operators[place];
      drawn += 1;
      const own = { kind: "operator", key: `${stream.stream}/${place}`, stream, place, operator, depth, parent, x: LEFT + depth * indent, y };
      rows.push(own);
      y += ROW;
      const queries = [...(operator.queries ?? []), ...(place === 0 ? loose : [])];
      for (const name of queries.slice(0, MOST_LEAVES)) leaf(own, "query", name);
      if (queries.length > MOST_LEAVES) leaf(own, "more", `and ${queries.length - MOST_LEAVES} more queries`);
      for (const child of children[place]) {
        if (drawn >= MOST_OPERATORS) continue;
        y += 4;
        visit(child, depth + 1, own);
      }
    };
    const leaf = (parent, kind, name) => {
      const x = LEFT + (parent.depth + 1) * indent;
      rows.push({ kind, key: `${stream.stream}/${parent.place}/${name}`, stream, name, parent, depth: parent.depth + 1, x, y });
      y += LEAF;
    };
    if (stream.operators.length) visit(0, 0, null);
    if (drawn < stream.operators.length) {
      leaf(rows.at(-1), "more", `and ${stream.operators.length - drawn} more operators`);
    }
    y += GAP;
  }
  return { rows, height: Math.max(60, y), width: Math.max(room, LEFT + steps * indent + WORDS) };
}

/** The part of the rows of a stream that is read at its source. */
export const readOf = ({ share = 1 }) => share ?? 1;

/** The water of each operator: what would come to it, and what comes after the source and the shedders before it. */
export function flowsOf(stream) {
  const kept = [];
  return stream.operators.map((operator, place) => {
    const above = operator.parent >= 0 ? kept[operator.parent] : readOf(stream);
    kept[place] = above * (operator.passes ?? 1);
    const whole = operator.rows_in ?? 1;
    return { whole, kept: whole * kept[place] };
  });
}

/** What an operator costs of a batch, in executor seconds; null where it has no time of its own. */
export function costsOf(stream, flows) {
  return stream.operators.map((operator, place) =>
    operator.seconds === null || operator.seconds === undefined ? null : operator.seconds * flows[place].kept * stream.size,
  );
}

/** From an operator down to one that reads it. */
export function edgePath(from, to) {
  const [x, top, y] = [from.x + 7, from.y + 20, to.y + (to.kind === "operator" ? 13 : 10)];
  const bend = Math.min(11, (y - top) / 2, to.x + 5 - x);
  return `M${x} ${top}V${y - bend}Q${x} ${y} ${x + bend} ${y}H${to.x + 5}`;
}
