/** Axes of charts, in the page's type and colours. */

import { ticks } from "./format.js";
import { colour } from "./palette.js";

const FONT = "10px 'Instrument Sans', system-ui, sans-serif";
const DAY = 86_400;
/** Pixels that half a time of day takes. */
const HALF_A_TIME = 22;

/** Seconds between the times of an axis: never less than one, since they are shown in whole ones. */
const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, DAY, 2 * DAY, 7 * DAY, 30 * DAY,
];

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

/** Times of day, days where the chart is longer than two; one that would be cut off at an edge is left out. */
function times(chart, splits) {
  const { min, max } = chart.scales.x;
  const [from, to] = max - min > 2 * DAY ? [5, 10] : max - min > DAY / 6 ? [11, 16] : [11, 19];
  const width = chart.bbox.width / devicePixelRatio;
  const left = chart.bbox.left / devicePixelRatio;
  const right = chart.width - left - width;
  return splits.map((split) => {
    const at = chart.valToPos(split, "x");
    const cut = at + left < HALF_A_TIME || width - at + right < HALF_A_TIME;
    return cut ? "" : new Date(split * 1000).toISOString().slice(from, to);
  });
}

/** Room above and below; a line that does not move lies in the middle. */
export function roomy(_chart, least, most) {
  if (least === null || most === null) return [0, 1];
  const room = most > least ? (most - least) * 0.14 : Math.abs(most) * 0.1 || 1;
  return [least - room, most + room];
}

/** All times that there are; one alone has half a minute on both sides. */
export function spread(chart, least, most) {
  // uPlot itself gives a day to one time
  const times = chart.data[0];
  return times.length === 1 ? [times[0] - 30, times[0] + 30] : [least, most];
}
