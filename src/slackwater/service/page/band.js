/** The band chart of a query: answers as a line, their intervals as a band, what is missing as what it is. */

import { colour, onColours } from "./colours.js";
import { clock, interval, number, share, ticks } from "./format.js";

const FONT = "10px 'Instrument Sans', system-ui, sans-serif";

/** Columns for uPlot: time, low, high, measured, modelled; and the stretches in which a query was suspended. */
export function columnsOf(points, kind, until = null) {
  const at = [], low = [], high = [], solid = [], dashed = [], suspended = [], index = [];
  const slide = kind === "windows" ? slideOf(points) : Infinity;
  const blank = (time) => {
    for (const column of [low, high, solid, dashed]) column.push(null);
    at.push(time);
    index.push(-1);
  };
  points.forEach((point, i) => {
    const before = points[i - 1];
    if (before && point.at - before.at > 1.5 * slide) blank(before.at + slide / 2);
    if (point.how === "suspended") {
      suspended.push([before ? before.at : point.at - (Number.isFinite(slide) ? slide : 1), point.at]);
      return blank(point.at);
    }
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
  const last = points.at(-1);
  // an answer over current values stands until the next one
  if (kind === "current" && last && until !== null && until > last.at && last.how !== "suspended") {
    at.push(until);
    for (const column of [low, high, solid, dashed]) column.push(column.at(-1));
    index.push(points.length - 1);
  }
  return { columns: [at, low, high, solid, dashed], suspended, index };
}

const orNull = (value) => (Number.isFinite(value) ? value : null);

/** How far apart windows end: the least distance, since a gap only makes it larger. */
function slideOf(points) {
  let least = Infinity;
  for (let i = 1; i < points.length; i += 1) least = Math.min(least, points[i].at - points[i - 1].at);
  return least;
}

/** How often windows were left out between two answers. */
function gapsOf(points, kind) {
  const most = kind === "windows" ? 1.5 * slideOf(points) : Infinity;
  return points.filter((point, i) => i > 0 && point.at - points[i - 1].at > most).length;
}

/** A chart in an element that has its size; `told` gets the text of the point below the pointer, or null. */
export class BandChart {
  constructor(place, { axes = true, told = () => {} } = {}) {
    this.place = place;
    this.told = told;
    this.axes = axes;
    this.suspended = [];
    this.index = [];
    this.points = [];
    this.kind = null;
    this.chart = null;
    this.sized = new ResizeObserver(() => this.#fit());
    this.sized.observe(place);
    this.unlisten = onColours(() => this.chart?.redraw(false));
  }

  show(query, until) {
    const { frame, series } = query;
    this.points = series.window();
    const { columns, suspended, index } = columnsOf(this.points, frame.kind, until);
    [this.suspended, this.index] = [suspended, index];
    if (this.chart === null || this.kind !== frame.kind) this.#make(frame.kind, columns);
    else this.chart.setData(columns);
    this.place.setAttribute("aria-label", summary(frame, this.points));
    this.place.dataset.points = String(this.points.length);
  }

  destroy() {
    this.sized.disconnect();
    this.unlisten();
    this.chart?.destroy();
    this.chart = null;
  }

  #make(kind, columns) {
    this.chart?.destroy();
    this.kind = kind;
    const path = kind === "current" ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear();
    const none = { points: { show: false }, paths: path };
    const edge = { ...none, stroke: () => colour("band-edge"), width: 1 };
    const { width, height } = this.#size();
    this.chart = new uPlot(
      {
        width,
        height,
        padding: [6, 2, this.axes ? 0 : 2, 0],
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 6, width: 0 } },
        scales: { x: { time: true }, y: { range: rangeOf } },
        axes: [axis({ show: this.axes, size: 18, space: 64, incrs: STEPS, values: times }), axis({ size: 40, space: 24, side: 1 })],
        series: [
          {},
          edge,
          edge,
          { ...none, stroke: () => colour("water"), width: 1.75 },
          { ...none, stroke: () => colour("water"), width: 1.5, dash: [4, 4] },
        ],
        bands: [{ series: [2, 1], fill: () => colour("band") }],
        hooks: {
          drawClear: [(chart) => this.#drawSuspended(chart)],
          draw: [(chart) => this.#drawAlone(chart)],
          setCursor: [(chart) => this.#tell(chart.cursor.idx)],
        },
      },
      columns,
      this.place,
    );
  }

  /** Hatches where nothing was looked at. */
  #drawSuspended(chart) {
    const { ctx, bbox } = chart;
    for (const [from, to] of this.suspended) {
      const left = Math.max(bbox.left, chart.valToPos(from, "x", true));
      const right = Math.min(bbox.left + bbox.width, chart.valToPos(to, "x", true));
      if (right <= left) continue;
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
  #drawAlone(chart) {
    const [at, , , solid, dashed] = chart.data;
    const value = (i) => solid[i] ?? dashed[i] ?? null;
    const { ctx } = chart;
    ctx.fillStyle = colour("water");
    for (let i = 0; i < at.length; i += 1) {
      if (value(i) === null || (value(i - 1) ?? null) !== null || (value(i + 1) ?? null) !== null) continue;
      ctx.beginPath();
      ctx.arc(chart.valToPos(at[i], "x", true), chart.valToPos(value(i), "y", true), 2.2 * devicePixelRatio, 0, 7);
      ctx.fill();
    }
  }

  #tell(place) {
    const point = place === null || place === undefined ? undefined : this.points[this.index[place]];
    this.told(point === undefined ? null : pointText(point));
  }

  #size() {
    return { width: Math.max(40, this.place.clientWidth), height: Math.max(30, this.place.clientHeight) };
  }

  #fit() {
    if (this.chart === null || !this.place.clientWidth) return;
    const { width, height } = this.#size();
    if (width !== this.chart.width || height !== this.chart.height) this.chart.setSize({ width, height });
  }
}

/** An axis in the page's type and colours. */
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

/** Seconds between the times of an axis: never less than one, since they are shown in whole ones. */
export const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];

/** Times of day; one that would be cut off at an edge is left out. */
export function times(chart, splits) {
  const width = chart.bbox.width / devicePixelRatio;
  const left = chart.bbox.left / devicePixelRatio;
  const right = chart.width - left - width;
  const room = 22;
  return splits.map((split) => {
    const at = chart.valToPos(split, "x");
    return at + left < room || width - at + right < room ? "" : clock(split);
  });
}

/** Room above and below; a line that does not move lies in the middle. */
function rangeOf(_chart, least, most) {
  if (least === null || most === null) return [0, 1];
  const room = most > least ? (most - least) * 0.14 : Math.abs(most) * 0.1 || 1;
  return [least - room, most + room];
}

function pointText(point) {
  const kept = point.rate < 1 ? `, ${share(point.rate)} kept` : "";
  return `${clock(point.at)}  ${interval(point.value, point.low, point.high)}  ${point.how}${kept}`;
}

/** The chart in words. */
function summary(frame, points) {
  if (!points.length) return `${frame.name}: no answer yet`;
  const values = points.map((point) => point.value).filter(Number.isFinite);
  const last = points.at(-1);
  const parts = [`${frame.name}: ${points.length} answers from ${clock(points[0].at)} to ${clock(last.at)}`];
  if (values.length) parts.push(`between ${number(Math.min(...values))} and ${number(Math.max(...values))}`);
  const widest = Math.max(0, ...points.map((point) => (point.high - point.low) / 2).filter(Number.isFinite));
  if (widest > 0) parts.push(`widest interval ± ${number(widest)}`);
  const gaps = gapsOf(points, frame.kind);
  if (gaps) parts.push(`${gaps} gap${gaps === 1 ? "" : "s"}`);
  for (const how of ["modelled", "suspended"]) {
    const count = points.filter((point) => point.how === how).length;
    if (count) parts.push(`${count} ${how}`);
  }
  parts.push(`last ${interval(last.value, last.low, last.high)}, ${last.how}`);
  return parts.join(", ");
}
