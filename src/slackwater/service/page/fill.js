/** What was before the page was opened: answers of a card that comes into view, and the tide line. */

import { getAnswers, getJson } from "./api.js";
import { keyText, ROW } from "./format.js";
import { ofSeries } from "./run.js";
import { MOMENTS, ROOM } from "./series.js";

const MOST_AT_A_TIME = 3;
/** After so long points that could not be had are asked for again, and later each time. */
const FIRST_WAIT_MS = 1_000;
const LONGEST_WAIT_MS = 60_000;
/** How long each query has waited the last time. */
const waits = new WeakMap();
const waiting = [];
let underWay = 0;

/** Fetches the points of a query before those that are known, once for each series; `done` where there were any. */
export function fill(query, done) {
  if (query.filled || query.frame.column === null || query.frame.column === ROW) return;
  query.filled = true;
  waiting.push(() => fetchPoints(query, done));
  next();
}

function next() {
  while (underWay < MOST_AT_A_TIME && waiting.length) {
    underWay += 1;
    waiting.pop()().finally(() => {
      underWay -= 1;
      next();
    });
  }
}

async function fetchPoints(query, done) {
  const { series, frame } = query;
  try {
    const answers = await answersOf(query.name, { column: frame.column, keys: frame.keys, limit: ROOM });
    // the query may show another group by now, whose points are in the same series: it is cleared for them
    if (query.series !== series || ofSeries(query.frame) !== ofSeries(frame)) return;
    series.before(answers.map(pointOf));
    waits.delete(query);
    if (answers.length) done();
  } catch {
    // the card goes on with what comes, and asks again with it
    const wait = Math.min(LONGEST_WAIT_MS, 2 * (waits.get(query) ?? FIRST_WAIT_MS / 2));
    waits.set(query, wait);
    setTimeout(() => {
      if (query.series === series && ofSeries(query.frame) === ofSeries(frame)) query.filled = false;
    }, wait);
  }
}

/** Answers of a query, oldest first. */
export const answersOf = (name, asked) => getAnswers(answersPath(name, asked));

/** The address of answers of a query; keys that are NULL are named, so that an empty text is one. */
export function answersPath(name, { column = null, keys = {}, until = null, limit }) {
  const asked = new URLSearchParams({ limit });
  if (column !== null) asked.set("column", column);
  const nulls = Object.keys(keys).filter((key) => keys[key] === null);
  for (const [key, value] of Object.entries(keys)) if (value !== null) asked.set(`key.${key}`, keyText(value));
  if (Object.keys(keys).length) for (const key of nulls.length ? nulls : [""]) asked.append("null", key);
  if (until !== null) asked.set("until", until);
  return `/api/queries/${encodeURIComponent(name)}/answers?${asked}`;
}

/** An answer as a point. */
export function pointOf(answer) {
  const size = (value) => (typeof value === "number" ? value : null);
  return {
    at: answer.window_end ?? answer.at ?? answer.emitted_at,
    value: size(answer.value),
    low: size(answer.low),
    high: size(answer.high),
    how: answer.how,
    met: answer.met,
    rate: answer.rate,
    slope: size(answer.slope),
  };
}

/** Puts what the service remembers into the tide line, where frames have not told it. */
export async function fillTide(tide, done) {
  const { runs } = tide;
  try {
    const moments = await getJson(`/api/moments?limit=${MOMENTS}`);
    // of another run by now, whose frames are counted anew
    if (tide.runs !== runs) return;
    tide.fill(moments);
    done();
  } catch {
    // the line has only what frames have told then
  }
}
