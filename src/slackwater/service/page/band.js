/** The band chart of a query: answers as a line, their intervals as a band, what is missing as what it is. */

import { common } from "./axes.js";
import { bandOptions, columnsOf, gapsOf, pointText, unbounded } from "./band_lines.js";
import { interval, number, ROW, span } from "./format.js";
import { onColours } from "./palette.js";

/** A chart in an element that has its size; `told` gets the text of the point below the pointer, or null. */
export class BandChart {
  constructor(place, { axes = true, told = () => {} } = {}) {
    this.place = place;
    this.told = told;
    this.axes = axes;
    this.suspended = [];
    this.unknown = [];
    this.index = [];
    this.points = [];
    this.chart = null;
    this.sized = new ResizeObserver(() => this.#fit());
    this.sized.observe(place);
    this.unlisten = onColours(() => this.chart?.redraw(false));
  }

  show(query, until) {
    const { frame, series } = query;
    this.points = series.window();
    const { kind, slide_seconds: slide = null } = frame;
    const { columns, ...found } = columnsOf(this.points, { kind, slide, until });
    Object.assign(this, found);
    if (this.chart === null) this.#make(columns);
    else this.chart.setData(columns);
    this.place.setAttribute("aria-label", summary(frame, this.points));
    this.place.dataset.points = String(this.points.length);
    this.#emptiness(frame);
  }

  destroy() {
    this.sized.disconnect();
    this.unlisten();
    this.chart?.destroy();
    this.chart = null;
  }

  #make(columns) {
    const { axes } = this;
    const stretches = { suspended: () => this.suspended, unknown: () => this.unknown };
    this.chart = new uPlot(bandOptions(this.place, { axes, ...stretches, told: (row) => this.#tell(row) }), columns, this.place);
  }

  /** A chart without a line says so instead of showing empty axes. */
  #emptiness({ column }) {
    const drawn = this.points.some((point) => Number.isFinite(point.value) || point.how === "suspended");
    if (drawn) return delete this.place.dataset.empty;
    const words = column === ROW ? "rows have no line" : this.points.length ? "nothing to draw" : "no answer yet";
    if (this.place.dataset.empty !== words) this.place.dataset.empty = words;
  }

  #tell(row) {
    const point = row === null || row === undefined ? undefined : this.points[this.index[row]];
    this.told(point === undefined ? null : pointText(point));
  }

  #fit() {
    if (this.chart === null || !this.place.clientWidth) return;
    const { width, height } = common(this.place);
    if (width !== this.chart.width || height !== this.chart.height) this.chart.setSize({ width, height });
  }
}

/** The chart in words. */
function summary(frame, points) {
  if (frame.column === ROW) return `${frame.name}: the newest row is ${frame.last_text || "not there yet"}`;
  if (!points.length) return `${frame.name}: no answer yet`;
  const values = points.map((point) => point.value).filter(Number.isFinite);
  const last = points.at(-1);
  const parts = [`${frame.name}: ${points.length} answers ${span(points[0].at, last.at)}`];
  if (values.length) parts.push(`between ${number(Math.min(...values))} and ${number(Math.max(...values))}`);
  const widest = Math.max(0, ...points.map((point) => (point.high - point.low) / 2).filter(Number.isFinite));
  if (widest > 0) parts.push(`widest interval ± ${number(widest)}`);
  const without = points.filter(unbounded).length;
  if (without) parts.push(`no interval for ${without} of them`);
  const gaps = gapsOf(points, frame.slide_seconds ?? null);
  if (gaps) parts.push(`${gaps} gap${gaps === 1 ? "" : "s"}`);
  for (const how of ["modelled", "suspended"]) {
    const count = points.filter((point) => point.how === how).length;
    if (count) parts.push(`${count} ${how}`);
  }
  parts.push(`last ${interval(last.value, last.low, last.high)}, ${last.how}`);
  return parts.join(", ");
}
