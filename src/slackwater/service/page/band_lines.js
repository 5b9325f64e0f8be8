/** What a band chart is drawn from: a line, its band, gaps as gaps, what was modelled dashed, what was suspended hatched. */

import { axis, common, labelled, roomy, spread, timeAxis } from "./axes.js";
import { interval, share, when } from "./format.js";
import { colour } from "./palette.js";

/** Answers that are right as they are: where one of them has no value, that is its value. */
const RIGHT = new Set(["exact", "subset"]);

/** Whether nothing is known of how far off an answer is: an agent is away, say, or too few rows were seen. */
export function unbounded({ how, low, high }) {
  return !RIGHT.has(how) && how !== "suspended" && !(Number.isFinite(low) && Number.isFinite(high));
}

/** Windows that end further apart than so many slides have others between them that were left out. */
const GAP = 1.5;

/**
 * Whether there is a gap before a point. Windows of time end a slide apart; those of rows end when a row comes, so
 * that their distance says nothing. Points that were put together say themselves whether there was one before them.
 */
function gapBefore(points, i, slide) {
  if (i === 0) return false;
  return points[i].gap ?? (slide !== null && points[i].at - points[i - 1].at > GAP * slide);
}

/** How often windows were left out between two answers. */
export function gapsOf(points, slide) {
  return points.filter((_point, i) => gapBefore(points, i, slide)).length;
}

/**
 * Columns for uPlot: time, low, high, measured, modelled; the stretches in which a query was suspended, and those in
 * which its answers had no interval; and by row the place of its point. An answer over current values stands `until`
 * the next one.
 */
export function columnsOf(points, { slide = null, kind = "windows", until = null } = {}) {
  return kind === "current" ? standing(points, until) : joined(points, slide);
}

/** Answers of windows: a line from one to the next, unless others between them were left out. */
function joined(points, slide) {
  const at = [], low = [], high = [], solid = [], dashed = [], suspended = [], unknown = [], index = [];
  const blank = (time) => {
    for (const column of [low, high, solid, dashed]) column.push(null);
    at.push(time);
    index.push(-1);
  };
  points.forEach((point, i) => {
    const before = points[i - 1];
    const gap = gapBefore(points, i, slide);
    if (gap) blank((before.at + point.at) / 2);
    const stretch = [before && !gap ? before.at : point.at - (slide ?? 1), point.at];
    if (point.how === "suspended") {
      suspended.push(stretch);
      return blank(point.at);
    }
    if (unbounded(point)) unknown.push(stretch);
    const value = orNull(point.value);
    const modelled = point.how === "modelled";
    const place = at.length;
    at.push(point.at);
    low.push(orNull(point.low));
    high.push(orNull(point.high));
    solid.push(modelled ? null : value);
    dashed.push(modelled ? value : null);
    index.push(i);
    // the line reaches from what was measured to what is modelled, and back
    if (place && modelled && solid[place - 1] !== null) dashed[place - 1] = solid[place - 1];
    if (place && !modelled && dashed[place - 1] !== null && solid[place - 1] === null) dashed[place] = value;
  });
  return { columns: [at, low, high, solid, dashed], suspended, unknown, index };
}

/** Answers over current values: each stands until the next one, and moves by its slope until then. */
function standing(points, until) {
  const at = [], low = [], high = [], solid = [], dashed = [], suspended = [], unknown = [], index = [];
  const modelled = (point) => point.how === "modelled";
  const drawn = (point) => point !== undefined && point.how !== "suspended" && Number.isFinite(point.value);
  points.forEach((point, i) => {
    const next = points[i + 1];
    const end = next?.at ?? Math.max(point.at, until ?? point.at);
    if (point.how === "suspended") suspended.push([point.at, end]);
    else if (unbounded(point)) unknown.push([point.at, end]);
    const shown = drawn(point);
    for (const time of end > point.at ? [point.at, end] : [point.at]) {
      const moved = (time - point.at) * (point.slope ?? 0);
      // the line goes up or down to the next answer as that one is drawn
      const turns = time === end && drawn(next) && modelled(next) !== modelled(point);
      at.push(time);
      low.push(shown ? orNull(point.low + moved) : null);
      high.push(shown ? orNull(point.high + moved) : null);
      solid.push(shown && (!modelled(point) || turns) ? orNull(point.value + moved) : null);
      dashed.push(shown && (modelled(point) || turns) ? orNull(point.value + moved) : null);
      index.push(shown || unbounded(point) ? i : -1);
    }
  });
  return { columns: [at, low, high, solid, dashed], suspended, unknown, index };
}

const orNull = (value) => (Number.isFinite(value) ? value : null);

/** Options of a band chart in an element; `suspended` and `unknown` give its stretches, `told` gets the row below the pointer. */
export function bandOptions(place, { axes = true, suspended, unknown, told }) {
  const none = { points: { show: false }, paths: uPlot.paths.linear() };
  const edge = { ...none, stroke: () => colour("band-edge"), width: 1 };
  return {
    ...common(place),
    padding: [6, 2, axes ? 0 : 2, 0],
    scales: { x: { time: true, range: spread }, y: { range: roomy } },
    axes: [timeAxis({ show: axes, size: 18, space: 64 }), axis({ size: labelled, space: 24, side: 1 })],
    series: [
      {},
      edge,
      edge,
      { ...none, stroke: () => colour("water"), width: 1.75 },
      { ...none, stroke: () => colour("water"), width: 1.5, dash: [4, 4] },
    ],
    bands: [{ series: [2, 1], fill: () => colour("band") }],
    hooks: {
      drawClear: [(chart) => (tint(chart, unknown()), hatch(chart, suspended()))],
      draw: [dots],
      setCursor: [(chart) => told(chart.cursor.idx)],
    },
  };
}

/** Where stretches of time lie on a chart, in pixels. */
function placesOf(chart, stretches) {
  const { bbox } = chart;
  const places = stretches.map(([from, to]) => [
    Math.max(bbox.left, chart.valToPos(from, "x", true)),
    Math.min(bbox.left + bbox.width, chart.valToPos(to, "x", true)),
  ]);
  return places.filter(([left, right]) => right > left);
}

/** A quiet ground where nothing is known of how far off an answer is. */
function tint(chart, stretches) {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.globalAlpha = 0.4;
  ctx.fillStyle = colour("suspended");
  // in whole pixels, so that neighbours neither overlap nor leave a line between them
  for (const [left, right] of placesOf(chart, stretches)) {
    ctx.fillRect(Math.round(left), bbox.top, Math.round(right) - Math.round(left), bbox.height);
  }
  ctx.restore();
}

/** Hatches where nothing was looked at. */
function hatch(chart, stretches) {
  const { ctx, bbox } = chart;
  for (const [left, right] of placesOf(chart, stretches)) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, bbox.top, right - left, bbox.height);
    ctx.clip();
    ctx.strokeStyle = colour("suspended");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([]);
    const step = 7 * devicePixelRatio;
    ctx.beginPath();
    // on one grid for all stretches, so that neighbours look like one
    const first = Math.floor((left - bbox.height) / step) * step;
    for (let x = first; x < right; x += step) {
      ctx.moveTo(x, bbox.top + bbox.height);
      ctx.lineTo(x + bbox.height, bbox.top);
    }
    ctx.stroke();
    ctx.restore();
  }
}

/** Dots for answers that have a gap on both sides: a line needs two. */
function dots(chart) {
  const [at, , , solid, dashed] = chart.data;
  const value = (i) => solid[i] ?? dashed[i] ?? null;
  const { ctx } = chart;
  ctx.fillStyle = colour("water");
  for (let i = 0; i < at.length; i += 1) {
    if (value(i) === null || value(i - 1) !== null || value(i + 1) !== null) continue;
    ctx.beginPath();
    ctx.arc(chart.valToPos(at[i], "x", true), chart.valToPos(value(i), "y", true), 2.2 * devicePixelRatio, 0, 7);
    ctx.fill();
  }
}

/** A point in words. */
export function pointText(point) {
  const kept = point.rate < 1 ? `, ${share(point.rate)} kept` : "";
  const none = unbounded(point) ? ", no interval" : "";
  return `${when(point.at)}  ${interval(point.value, point.low, point.high)}  ${point.how}${none}${kept}`;
}
