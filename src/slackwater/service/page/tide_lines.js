/** What the tide line is drawn from: the load as water against the capacity, and the level below it. */

import { axis, common, timeAxis, within } from "./axes.js";
import { tick } from "./format.js";
import { colour } from "./palette.js";

const BARE = { points: { show: false } };
const WIDTH = 44;

/** Moments so many times further apart than they mostly are have others between them that nobody has measured. */
const FAR_APART = 4;

/** Columns by time in which a line ends where nobody has measured it: between moments that are far apart is one of nulls. */
export function brokenUp([at, ...columns]) {
  const steps = Float64Array.from(at.slice(1), (time, i) => time - at[i]).sort();
  const longest = FAR_APART * steps[(steps.length - 1) >> 1];
  const places = [];
  for (let i = 1; i < at.length; i += 1) if (at[i] - at[i - 1] > longest) places.push(i);
  if (!places.length) return [at, ...columns];
  const broken = (column, between) => {
    const parts = places.flatMap((place, n) => [...column.slice(places[n - 1] ?? 0, place), between(place)]);
    return [...parts, ...column.slice(places.at(-1))];
  };
  return [broken(at, (place) => (at[place - 1] + at[place]) / 2), ...columns.map((column) => broken(column, () => null))];
}

/** Options of the chart of the load; where no load is measured its first line is that of the rows. */
export function loadOptions(place, more = {}) {
  return {
    ...withCursor(place),
    // it has no axis below it: half a line of room for its lowest number
    padding: [4, 6, 7, 0],
    scales: { x: { time: true }, y: { range: from0(1e-6, 1.12) } },
    axes: [timeAxis({ show: false }), axis({ size: WIDTH, space: 34, values: (_chart, splits) => splits.map((split) => tick(split)) })],
    series: [
      {},
      { ...BARE, stroke: () => colour("shed-line"), width: 1.5 },
      { ...BARE, stroke: () => colour("water"), width: 1.5, fill: water },
      { ...BARE, stroke: () => colour("ink"), width: 1.25, dash: [7, 5] },
    ],
    bands: [{ series: [1, 2], fill: () => colour("shed") }],
    ...more,
  };
}

/** Options of the chart of the level. */
export function levelOptions(place, more = {}) {
  return {
    ...withCursor(place),
    padding: [4, 6, 0, 0],
    scales: { x: { time: true }, y: { range: from0(1, 1.15) } },
    axes: [
      timeAxis({ size: 18, space: 90, grid: { show: false } }),
      axis({ size: WIDTH, splits: (chart) => (chart.scales.y.max > 2.4 ? [0, Math.floor(chart.scales.y.max)] : [0, 1]) }),
    ],
    series: [{}, { ...BARE, stroke: () => colour("level"), width: 1.75, fill: () => colour("level-fill") }],
    ...more,
  };
}

/** What both have, with one pointer for the two. */
function withCursor(place) {
  const shared = common(place);
  return { ...shared, cursor: { ...shared.cursor, sync: { key: "tide" } } };
}

const from0 = (least, room) => (_chart, _low, most) => [0, within(Math.max(least, most ?? 0) * room)];

/** Water is deeper in colour below. */
function water(chart) {
  const { ctx, bbox } = chart;
  if (!bbox.height) return colour("water-top");
  const fill = ctx.createLinearGradient(0, bbox.top, 0, bbox.top + bbox.height);
  fill.addColorStop(0, colour("water-top"));
  fill.addColorStop(1, colour("water-deep"));
  return fill;
}
