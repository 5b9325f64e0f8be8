/** Axes of charts, in the page's type and colours. */

import { ticks } from "./format.js";
import { colour } from "./palette.js";

const FONT = "10px 'Instrument Sans', system-ui, sans-serif";
const DAY = 86_400;
/** Pixels that half a time of day takes. */
const HALF_A_TIME = 22;

/** What uPlot takes for a month and for a year: steps of so many days begin with one. */
const MONTH = 30 * DAY;
const YEAR = 365 * DAY;

/** Seconds between the times of an axis: never less than one, since they are shown in whole ones. */
const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, DAY, 2 * DAY, 7 * DAY,
  MONTH, 2 * MONTH, 3 * MONTH, 6 * MONTH, YEAR, 2 * YEAR, 5 * YEAR, 10 * YEAR, 25 * YEAR, 100 * YEAR, 1000 * YEAR,
];
/** Values that differ by no more than this part of them are one line: there are no numbers between them for ticks. */
const STILL = 1e-9;
/** What lies further out has no place on an axis: from one end to the other there is still a number. */
const FARTHEST = Number.MAX_VALUE / 4;
/** Nor have steps that are smaller: below them numbers have fewer digits. */
const LEAST = 1e-290;

/** An axis; `more` is what it has of its own. */
export function axis(more) {
  return {
    stroke: () => colour("quiet"),
    font: FONT,
    gap: 4,
    grid: { stroke: () => colour("line"), width: 1 },
    ticks: { show: false },
    values: (_chart, splits) => ticks(splits),
    ...more,
  };
}

/** The width of an axis at a side: its longest label has room in it. */
export function labelled(_chart, labels) {
  return Math.max(40, ...(labels ?? []).map((label) => 9 + 5.9 * label.length));
}

/** An axis of times. */
export function timeAxis(more) {
  return axis({ incrs: STEPS, values: times, ...more });
}

/** What all charts have: no legend, no zoom, and times in UTC. */
export function common(place) {
  return {
    width: Math.max(40, place.clientWidth),
    height: Math.max(30, place.clientHeight),
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6, width: 0 } },
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
  };
}

/** What is shown of a time, of "2026-03-01T12:00:00": of each only what steps and length of an axis leave open. */
function shownOf(step, length) {
  if (step >= YEAR) return [0, 4];
  if (step >= MONTH) return [0, 7];
  if (length > 2 * DAY) return [5, 10];
  return length > DAY / 6 ? [11, 16] : [11, 19];
}

/** Times of day, days or years; one that would be cut off at an edge is left out. */
function times(chart, splits, _axis, _space, step) {
  const { min, max } = chart.scales.x;
  const [from, to] = shownOf(step, max - min);
  const width = chart.bbox.width / devicePixelRatio;
  const left = chart.bbox.left / devicePixelRatio;
  const right = chart.width - left - width;
  return splits.map((split) => {
    const at = chart.valToPos(split, "x");
    const cut = at + left < HALF_A_TIME || width - at + right < HALF_A_TIME;
    return cut ? "" : new Date(split * 1000).toISOString().slice(from, to);
  });
}

/** Room above and below; a line that does not move, or by too little for ticks, lies in the middle. */
export function roomy(_chart, least, most) {
  if (least === null || most === null) return [0, 1];
  const [low, high] = [within(least), within(most)];
  const largest = Math.max(Math.abs(low), Math.abs(high));
  const moved = high - low;
  if (largest === 0) return [-1, 1];
  if (moved > STILL * largest && moved > LEAST) return [low - 0.14 * moved, high + 0.14 * moved];
  const room = Math.max(0.1 * largest, LEAST);
  // a little below the middle: there it would lie between two pixels, now on one and now on the other
  return [low - room, high + 1.02 * room];
}

/** What an axis can show of a value. */
export function within(end) {
  return Math.max(-FARTHEST, Math.min(FARTHEST, end));
}

/** All times that there are; one alone has half a minute on both sides. */
export function spread(chart, least, most) {
  // uPlot itself gives a day to one time
  const times = chart.data[0];
  return times.length === 1 ? [times[0] - 30, times[0] + 30] : [least, most];
}
